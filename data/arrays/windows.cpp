#include "data/arrays/windows.h"

#include <algorithm>
#include <cstring>

#include "ir/base/error.h"
#include "ir/base/integers.h"
#include "runtime/row_reader.h"

namespace gcomp::data {
namespace {

constexpr std::int64_t kUnaskedLength = 256;

struct WindowForm {
  std::string name = "tokens";  // of the array that the model reads
  DType dtype = DType::i64;
  std::int64_t length = 0, stride = 0;
};

class WindowSource final : public Source {
 public:
  WindowSource(std::string source, std::vector<TokenRun> runs, WindowForm form, WindowExtras extras);

  std::string source() const override { return source_; }
  std::int64_t rows() const override { return first_rows_.back(); }
  std::vector<NamedType> arrays() const override {
    return {{form_.name, {form_.dtype, {form_.length}}}, {"label", {form_.dtype, {form_.length}}}};
  }
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override;
  bool is_sequence() const override { return true; }
  std::int64_t overlap() const override { return quotient_up(form_.length, form_.stride) - 1; }
  std::vector<std::string> notes() const override { return extras_.notes; }
  std::string vocabulary() const override { return extras_.vocabulary; }
  std::string where(std::int64_t row) const override;

 private:
  struct Place {
    const TokenRun& run;
    std::int64_t token;  // the window's first
  };
  Place locate(std::int64_t row) const;

  std::string source_;
  std::vector<TokenRun> runs_;
  WindowForm form_;
  WindowExtras extras_;
  std::vector<std::int64_t> first_rows_;  // of each run, and the number of all
};

WindowSource::WindowSource(std::string source, std::vector<TokenRun> runs, WindowForm form, WindowExtras extras)
    : source_(std::move(source)), form_(std::move(form)), extras_(std::move(extras)), first_rows_{0} {
  for (TokenRun& run : runs) {
    if (run.tokens <= form_.length) {
      check_user(runs.size() > 1, "'", run.path, "' has ", run.tokens, " tokens, too few for a window of ", form_.length,
                 " and the token after it");
      extras_.notes.push_back(concat("'", run.path, "' is left out: its ", run.tokens, " tokens are too few for a window of ",
                                     form_.length, " and the token after it"));
      continue;
    }
    first_rows_.push_back(first_rows_.back() + (run.tokens - form_.length - 1) / form_.stride + 1);
    runs_.push_back(std::move(run));
  }
  check_user(!runs_.empty(), "'", source_, "' has no file with tokens for a window of ", form_.length, " and the token after it");
}

WindowSource::Place WindowSource::locate(std::int64_t row) const {
  const auto after = std::upper_bound(first_rows_.begin(), first_rows_.end(), row);
  const auto run = static_cast<std::size_t>(after - first_rows_.begin()) - 1;
  return {runs_[run], (row - first_rows_[run]) * form_.stride};
}

/// Unsigned numbers that lie at the end of `bytes` become larger ones that fill it. In place, front to back: as each grows, what is
/// written stays behind what is still to be read.
template <class To, class From>
void widen(std::span<std::byte> bytes) {
  const std::size_t count = bytes.size() / sizeof(To);
  const std::byte* from = bytes.data() + bytes.size() - count * sizeof(From);
  for (std::size_t i = 0; i < count; ++i) {
    From narrow;
    std::memcpy(&narrow, from + i * sizeof(From), sizeof(From));
    const To wide = narrow;
    std::memcpy(bytes.data() + i * sizeof(To), &wide, sizeof(To));
  }
}

template <class To>
void widen_tokens(int width, std::span<std::byte> bytes) {
  if (width == 1) widen<To, std::uint8_t>(bytes);
  else if (width == 2) widen<To, std::uint16_t>(bytes);
  else if constexpr (sizeof(To) > sizeof(std::uint32_t)) widen<To, std::uint32_t>(bytes);
}

void WindowSource::fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const {
  const auto [run, first] = locate(row);
  const auto width = static_cast<std::size_t>(run.width), begin = (static_cast<std::size_t>(first) + array) * width;
  const std::span<std::byte> stored = bytes.last(static_cast<std::size_t>(form_.length) * width);
  try {
    if (run.memory) std::memcpy(stored.data(), run.memory->data() + begin, stored.size());
    else run.file->read(run.offset + begin, stored);
  } catch (const UserError& error) {
    throw UserError(concat(runtime::where_of(source_, arrays()[array].first), ", row ", row, ": ", error.what()));
  }
  if (form_.dtype == DType::i32) widen_tokens<std::int32_t>(run.width, bytes);
  else widen_tokens<std::int64_t>(run.width, bytes);
}

std::string WindowSource::where(std::int64_t row) const {
  const auto [run, first] = locate(row);
  return concat("'", run.path, "', tokens ", first, " to ", first + form_.length);
}

/// The model's inputs that tokens fit: integers, one number or list of them for each row.
std::vector<const WantedArray*> integer_inputs(std::span<const WantedArray> wanted) {
  std::vector<const WantedArray*> inputs;
  for (const WantedArray& array : wanted)
    if (array.input && array.dtype && is_integer(*array.dtype)) inputs.push_back(&array);
  return inputs;
}

/// What the model's inputs say, where those that do say the same; else 0.
std::int64_t window_length(std::span<const WantedArray* const> inputs) {
  std::int64_t length = 0;
  for (const WantedArray* input : inputs) {
    if (!input->row || input->row->size() != 1 || (*input->row)[0] < 1) continue;
    if (length != 0 && length != (*input->row)[0]) return 0;
    length = (*input->row)[0];
  }
  return length;
}

/// kUnaskedLength, or as many as the longest run has.
std::int64_t unasked_length(std::span<const TokenRun> runs) {
  std::int64_t most = 1;
  for (const TokenRun& run : runs) most = std::max(most, run.tokens - 1);
  return std::min(most, kUnaskedLength);
}

WindowForm window_form(const OpenRequest& request, std::span<const TokenRun> runs, std::vector<std::string>& notes) {
  const Options& options = request.options;
  const std::vector<const WantedArray*> inputs = integer_inputs(request.wanted);
  WindowForm form;
  if (inputs.size() == 1) form.name = inputs[0]->name;
  form.length = options.has("length") ? options.integer("length") : window_length(inputs);
  if (form.length == 0 && request.wanted.empty()) {
    form.length = unasked_length(runs);
    notes.push_back(concat("windows have ", form.length, " tokens, for no model is there to ask; length=N says otherwise"));
  }
  if (form.length == 0)
    throw UserError(
        concat("'", request.path.string(), "': the model does not say how long its windows of tokens are; give length=N"),
        ExitCode::usage);
  form.stride = options.has("stride") ? options.integer("stride") : form.length;
  const bool narrow = std::ranges::all_of(runs, [](const TokenRun& run) { return run.width <= 2; });
  if (narrow && !inputs.empty() && std::ranges::all_of(inputs, [](const auto* input) { return input->dtype == DType::i32; }))
    form.dtype = DType::i32;
  return form;
}

}  // namespace

std::unique_ptr<Source> open_windows(const OpenRequest& request, std::vector<TokenRun> runs, WindowExtras extras) {
  WindowForm form = window_form(request, runs, extras.notes);
  return std::make_unique<WindowSource>(request.path.string(), std::move(runs), std::move(form), std::move(extras));
}

}  // namespace gcomp::data
