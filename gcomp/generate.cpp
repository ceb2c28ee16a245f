#include "gcomp/generate.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "gcomp/driver/generation.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp {

struct Generator::Impl {
  std::optional<Model> model;  // none of a .gcx
  driver::GeneratorOptions options;
  std::optional<Predictor> predictor;
  NamedType input, output;  // [rows, context] and [rows, context, vocabulary], once there is a predictor
  bool looks_back = false;  // it was seen that what comes behind a position changes nothing

  void require_ids(const std::string& name, DType dtype, std::size_t rank) const;
  std::int64_t context_for(std::int64_t tokens) const;
  void compile(std::int64_t context);
  void find_types();
  /// The type of the program's input or output. Throws UserError where nothing is compiled yet.
  const TensorType& compiled(const NamedType& of) const {
    check_user(predictor.has_value(), "nothing is compiled yet: Generator::prepare() or generate() come first");
    return of.second;
  }
  std::vector<double> logits(std::span<const std::int64_t> ids, std::int64_t fill);
};

namespace {

/// The one with logits, of what a program gives.
NamedType logits_of(const std::vector<NamedType>& outputs, const std::string& wanted, const TensorType& ids) {
  std::vector<std::string> names;
  for (const auto& [name, type] : outputs) {
    names.push_back(concat(name, ": ", to_string(type)));
    if (!wanted.empty() && name != wanted) continue;
    if (is_float(type.dtype) && type.rank() == 3 && type.shape[0] == ids.shape[0] && type.shape[1] == ids.shape[1])
      return {name, type};
  }
  throw UserError(concat("generate needs logits [batch, length, vocabulary]",
                         wanted.empty() ? "" : concat(" in output '", wanted, "'"), ", here [", ids.shape[0], ", ", ids.shape[1],
                         ", vocabulary]; the model gives ", listing(names)));
}

void require_tokens(std::span<const std::int64_t> ids, std::int64_t vocabulary) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    check_user(ids[i] >= 0 && ids[i] < vocabulary, "token ", i + 1, " of the text is ", ids[i], ", and the model knows 0 to ",
               vocabulary - 1);
}

}  // namespace

void Generator::Impl::require_ids(const std::string& name, DType dtype, std::size_t rank) const {
  check_user(is_integer(dtype) && rank == 2, "generate needs a model whose input is integers [batch, length]; '", name, "' is ",
             name_of(dtype), " of ", rank, rank == 1 ? " dimension" : " dimensions");
}

/// What the file or the options bind; what they leave open, the text needs.
std::int64_t Generator::Impl::context_for(std::int64_t tokens) const {
  const driver::ShapeRequest& shapes = options.forward.graph.shapes;
  const Dimension& length = model->inputs()[0].dimensions[1];
  if (length.size > 0) return length.size;
  if (const auto whole = shapes.shapes.find(input.first); whole != shapes.shapes.end() && whole->second.size() == 2)
    return whole->second[1];
  if (const auto bound = shapes.dims.find(length.symbol); bound != shapes.dims.end()) return bound->second;
  return options.context > 0 ? options.context : tokens;
}

void Generator::Impl::find_types() {
  const std::vector<NamedType> inputs = driver::program_inputs(*predictor);
  check_user(inputs.size() == 1, "generate needs a model whose only input is the ids of tokens; this one has ", inputs.size());
  input = inputs[0];
  require_ids(input.first, input.second.dtype, input.second.shape.size());
  output = logits_of(driver::program_outputs(*predictor), options.output, input.second);
}

void Generator::Impl::compile(std::int64_t context) {
  driver::PredictOptions forward = options.forward;
  const std::int64_t rows = model->inputs()[0].dimensions[0].size;
  forward.batch = rows > 0 ? rows : 1;
  predictor.emplace(driver::make_predictor(*model, forward));
  predictor->prepare({{input.first, {DType::i64, {forward.batch, context}}}});
  find_types();
}

/// At the last id; what the context has behind them is `fill`. All rows of a batch are the same text.
std::vector<double> Generator::Impl::logits(std::span<const std::int64_t> ids, std::int64_t fill) {
  const Shape& shape = input.second.shape;
  Tensor tokens(DType::i64, shape);
  const std::span<std::int64_t> all = tokens.as<std::int64_t>();
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    const std::span<std::int64_t> one = all.subspan(static_cast<std::size_t>(row * shape[1]), static_cast<std::size_t>(shape[1]));
    std::ranges::copy(ids, one.begin());
    std::fill(one.begin() + static_cast<std::ptrdiff_t>(ids.size()), one.end(), fill);
  }
  for (const auto& [name, tensor] : predictor->predict({{input.first, tokens}})) {
    if (name != output.first) continue;
    const std::int64_t vocabulary = tensor.shape()[2], first = (static_cast<std::int64_t>(ids.size()) - 1) * vocabulary;
    std::vector<double> values(static_cast<std::size_t>(vocabulary));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = tensor.at(first + static_cast<std::int64_t>(i));
    return values;
  }
  throw InternalError(concat("no output '", output.first, "'"));
}

Generator::Generator(Model model, const GeneratorOptions& options)
    : Generator(
          driver::make_generator(std::move(model), {.output = options.output,
                                                    .context = options.context,
                                                    .forward = driver::predict_options({.graph = options.graph,
                                                                                        .adapter = options.adapter,
                                                                                        .device = options.device,
                                                                                        .device_options = options.device_options,
                                                                                        .hooks = options.hooks})})) {}
Generator::Generator(Owned<Impl> impl) : impl_(std::move(impl)) {}
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;
Generator::~Generator() = default;

Generator Generator::load(const Path& path, const std::string& output, const DeviceOptions& options, DeviceRequest device,
                          const ArtifactTrust& trust) {
  Owned<Impl> impl(new Impl{});
  impl->options.output = output;
  impl->predictor.emplace(Predictor::load(path, options, device, trust));
  try {
    impl->find_types();
  } catch (const UserError& error) { throw UserError(concat("'", path.string(), "': ", error.what()), error.code()); }
  return Generator(std::move(impl));
}

void Generator::prepare(std::int64_t tokens) {
  if (!impl_->predictor) impl_->compile(impl_->context_for(std::max<std::int64_t>(tokens, 1)));
}

std::int64_t Generator::context() const { return impl_->compiled(impl_->input).shape.at(1); }
std::int64_t Generator::vocabulary() const { return impl_->compiled(impl_->output).shape.at(2); }

std::vector<double> Generator::logits(std::span<const std::int64_t> ids) {
  check_user(!ids.empty(), "the text is empty; a model needs a token to begin with");
  prepare(static_cast<std::int64_t>(ids.size()));
  Impl& self = *impl_;
  require_tokens(ids, vocabulary());
  const auto most = static_cast<std::size_t>(context());
  if (ids.size() >= most) return self.logits(ids.last(most), 0);
  std::vector<double> logits = self.logits(ids, 0);
  if (self.looks_back || vocabulary() < 2) return logits;
  // Of how far logits lie apart, which decides texts; what lies within rounding of the largest is none.
  constexpr double kClose = 1e-3, kRounding = 1e-5;
  const std::vector<double> others = self.logits(ids, 1);
  const auto [low, high] = std::ranges::minmax(logits);
  const double most_apart = std::max(kClose * (high - low), kRounding * std::max(std::abs(low), std::abs(high)));
  for (std::size_t i = 0; i < logits.size(); ++i)
    check_user(!(std::abs(logits[i] - others[i]) > most_apart), "the logits at token ", ids.size(), " of ", most,
               " depend on what comes behind it: the model does not look back alone, and its texts need all ", most, " tokens");
  self.looks_back = true;
  return logits;
}

std::vector<std::int64_t> Generator::generate(std::span<const std::int64_t> prompt, const GenerateOptions& options,
                                              const Function<bool(std::int64_t)>& on_token) {
  check_user(options.tokens >= 0, "tokens: found ", options.tokens, ", wanted 0 or more");
  if (options.sampling) check(*options.sampling);
  // Nothing is asked behind the last token.
  prepare(static_cast<std::int64_t>(prompt.size()) + std::max<std::int64_t>(options.tokens - 1, 0));
  std::vector<std::int64_t> text(prompt.begin(), prompt.end());
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const std::vector<double> scores = logits(text);
    text.push_back(options.sampling ? sample_token(scores, *options.sampling, static_cast<std::uint64_t>(i))
                                    : greedy_token(scores));
    if (on_token && !on_token(text.back())) break;
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

std::string Generator::device() const { return impl_->predictor ? impl_->predictor->device() : ""; }

namespace driver {

Generator make_generator(Model model, const GeneratorOptions& options) {
  Owned<Generator::Impl> impl(new Generator::Impl{});
  const std::vector<ValueInfo>& inputs = model.inputs();
  std::vector<std::string> names;
  for (const ValueInfo& known : inputs) names.push_back(known.name);
  check_user(inputs.size() == 1, "model '", model.name(), "': generate needs one input, the ids of tokens; it has ",
             listing(names));
  impl->input.first = inputs[0].name;
  try {
    impl->require_ids(inputs[0].name, inputs[0].dtype, inputs[0].dimensions.size());
  } catch (const UserError& error) { throw UserError(concat("model '", model.name(), "': ", error.what()), error.code()); }
  check_user(options.context >= 0, "context: found ", options.context, ", wanted 1 or more");
  impl->model = std::move(model);
  impl->options = options;
  return Generator(std::move(impl));
}

}  // namespace driver
}  // namespace gcomp
