// normalize and standardize: numbers that travel with the model, as the program does the work.
#include <algorithm>
#include <array>
#include <cmath>

#include "data/transforms/layout.h"
#include "data/transforms/rule.h"
#include "ir/base/nearest.h"
#include "runtime/convert.h"

namespace gcomp::data {
namespace {

struct Preset {
  std::string_view name;
  std::array<double, 3> mean, std;
  std::size_t channels = 3;
};
constexpr Preset kPresets[] = {
    {"imagenet", {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}},
    {"cifar10", {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}},
    {"cifar100", {0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}},
    {"mnist", {0.1307}, {0.3081}, 1},
};

Normalization given(const Options& options) {
  if (options.has("preset")) {
    const std::string name = options.word("preset");
    const auto preset = std::ranges::find(kPresets, name, &Preset::name);
    const auto channels = static_cast<std::ptrdiff_t>(preset->channels);
    return {.mean = {preset->mean.begin(), preset->mean.begin() + channels},
            .std = {preset->std.begin(), preset->std.begin() + channels}};
  }
  return {.mean = options.numbers("mean"), .std = options.numbers("std")};
}

std::string_view normalize_problem(const Options& o) {
  if (o.has("preset")) return o.has("mean") || o.has("std") ? "a preset has its own mean and std" : "";
  if (!o.has("mean") || !o.has("std")) return "wanted a preset (imagenet, cifar10, cifar100, mnist), or mean= and std=";
  const std::size_t means = o.numbers("mean").size();
  if (means != o.numbers("std").size()) return "mean and std have one number for each channel, or one for all";
  return means != 1 && means != 3 ? "mean and std have 1 or 3 numbers" : "";
}
std::string_view standardize_problem(const Options& o) {
  if (o.has("mean") != o.has("std")) return "mean and std are given together";
  if (!o.has("mean")) return "";
  const std::size_t means = o.numbers("mean").size();
  return means == 0 || means != o.numbers("std").size() ? "mean and std have one number for each column, or one for all" : "";
}

constexpr std::string_view kNormalizeFirst[] = {"preset"};
constexpr OptionDef kNormalizeOptions[] = {
    OptionDef::word("preset", "none", "imagenet|cifar10|cifar100|mnist").or_none().says("mean and std of such images"),
    OptionDef::numbers("mean", "none").or_none().says("of each channel, or of all, where white is 1"),
    OptionDef::numbers("std", "none").or_none().more_than(0).says("likewise"),
};
constexpr OptionDef kStandardizeOptions[] = {
    OptionDef::numbers("mean", "none").or_none().says("of each column, or of all; none: that of the training rows"),
    OptionDef::numbers("std", "none").or_none().more_than(0).says("likewise"),
};

struct Moments {
  std::int64_t count = 0;
  std::vector<double> mean, squares;
};

/// Welford's recurrence over one row's columns.
void add_row(Moments& moments, std::span<const double> row) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::size_t column = i % moments.mean.size();
    const double count = static_cast<double>(moments.count + 1 + static_cast<std::int64_t>(i / moments.mean.size()));
    const double before = row[i] - moments.mean[column];
    moments.mean[column] += before / count;
    moments.squares[column] += before * (row[i] - moments.mean[column]);
  }
  moments.count += static_cast<std::int64_t>(row.size() / moments.mean.size());
}

Normalization statistics(const Dataset& data, std::string_view name, std::span<const std::int64_t> rows) {
  const std::vector<NamedType> arrays = data.arrays();
  const auto found = std::ranges::find(arrays, name, &NamedType::first);
  std::vector<std::string> names;
  for (const NamedType& array : arrays) names.push_back(array.first);
  check_user(found != arrays.end(), "standardize: ", data.source(), " has no array '", name, "'", did_you_mean(name, names));
  const TensorType& type = found->second;
  check_user(type.dtype != DType::boolean, "standardize: '", name, "' is ", to_string(type), ", wanted numbers");
  const std::size_t columns = type.shape.empty() ? 1 : static_cast<std::size_t>(type.shape.back());
  const std::int64_t count = rows.empty() ? data.rows() : static_cast<std::int64_t>(rows.size());
  check_user(count > 0 && columns > 0, "standardize: '", name, "' has nothing to take statistics of");
  Moments moments{.count = 0, .mean = std::vector<double>(columns), .squares = std::vector<double>(columns)};
  Tensor row(type);
  const auto array = static_cast<std::size_t>(found - arrays.begin());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t number = rows.empty() ? i : rows[static_cast<std::size_t>(i)];
    data.fetch(array, number, row.bytes());
    const std::vector<double> values = row.to_doubles();
    for (const double value : values)
      check_user(std::isfinite(value), "standardize: ", data.source(), ", row ", number, ": '", name, "' has ", value);
    add_row(moments, values);
  }
  Normalization made{.mean = moments.mean, .std = {}};
  for (const double squares : moments.squares) {
    const double std = std::sqrt(squares / static_cast<double>(moments.count));
    made.std.push_back(std > 0 ? std : 1);
  }
  return made;
}

bool lacks_statistics(const TransformCall& call) { return call.rule == &kStandardize && !call.options.has("mean"); }

const TransformCall* find_call(const TransformList& list, const TransformRule& rule, std::string_view array = {}) {
  for (const TransformCall& call : list.calls)
    if (call.rule == &rule && call.array == array) return &call;
  return nullptr;
}

/// The axis that a list of numbers is along; -1 where there is one for all. Throws UserError where the sizes differ.
std::int64_t axis_of(const NamedType& array, const Normalization& numbers, std::int64_t axis, std::string_view what,
                     std::string_view places) {
  if (numbers.mean.size() <= 1) return -1;
  const std::int64_t size = axis < 0 ? 1 : array.second.shape[static_cast<std::size_t>(axis)];
  check_user(size == static_cast<std::int64_t>(numbers.mean.size()), what, " has ", numbers.mean.size(), " numbers, '", array.first,
             "' is ", to_string(array.second), ": ", size, " ", places);
  return axis;
}

}  // namespace

std::optional<Normalization> normalization_of(const TransformList& list) {
  const TransformCall* call = find_call(list, kNormalize);
  return call ? std::optional(given(call->options)) : std::nullopt;
}

std::vector<ProgramForm> program_forms(const TransformList& list, std::span<const NamedType> types,
                                       std::span<const WantedArray> wanted) {
  const std::optional<Normalization> of_images = normalization_of(list);
  std::vector<ProgramForm> forms;
  bool normalized = false;
  for (const NamedType& array : types) {
    const auto& [name, type] = array;
    const auto want = std::ranges::find(wanted, name, &WantedArray::name);
    const bool fed = want != wanted.end() && want->input && (!want->dtype || is_float(*want->dtype));
    if (const TransformCall* call = find_call(list, kStandardize, name)) {
      check_user(call->options.has("mean"), "standardize(", name, "): its statistics are not known yet");
      ProgramForm form{.array = name, .dtype = type.dtype, .pixels = false, .normalization = given_statistics(*call)};
      form.channel_axis = axis_of(array, form.normalization, type.rank() - 1, concat("standardize(", name, ")"), "columns");
      forms.push_back(std::move(form));
    } else if (fed && (type.dtype == DType::u8 || (of_images && is_float(type.dtype) && is_image_shape(type.shape)))) {
      ProgramForm form{.array = name, .dtype = type.dtype, .pixels = type.dtype == DType::u8, .normalization = {}};
      if (of_images) form.normalization = *of_images;
      form.channel_axis = axis_of(array, form.normalization, channel_axis_of(type.shape), "normalize", "channels");
      normalized = normalized || of_images;
      forms.push_back(std::move(form));
    }
  }
  check_user(!of_images || normalized, "normalize: no array of images feeds an input of floats");
  return forms;
}

Normalization given_statistics(const TransformCall& call) {
  return {.mean = call.options.numbers("mean"), .std = call.options.numbers("std")};
}

const TransformCall* find_without_statistics(const TransformList& list) {
  const auto found = std::ranges::find_if(list.calls, lacks_statistics);
  return found == list.calls.end() ? nullptr : &*found;
}

TransformList with_statistics(TransformList list, const Dataset& data, std::span<const std::int64_t> rows) {
  for (TransformCall& call : list.calls) {
    if (!lacks_statistics(call)) continue;
    const Normalization found = statistics(data, call.array, rows);
    call.options.set("mean", found.mean, "standardize");
    call.options.set("std", found.std, "standardize");
  }
  return list;
}

constinit const TransformRule kNormalize{
    .definition = {"normalize", "(x / 255 - mean) / std of each channel, in the program", kNormalizeOptions},
    .kind = TransformRule::Kind::program,
    .positional = kNormalizeFirst,
    .problem = normalize_problem};
constinit const TransformRule kStandardize{
    .definition = {"standardize", "(x - mean) / std of each column, in the program", kStandardizeOptions, "array"},
    .kind = TransformRule::Kind::program,
    .names_array = true,
    .problem = standardize_problem};

}  // namespace gcomp::data
