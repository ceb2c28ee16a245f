#include <algorithm>
#include <array>

#include "ir/base/nearest.h"
#include "passes/training/losses/calls.h"

namespace gcomp::passes {
namespace {

using FormulaKind = Formula::Kind;

constexpr std::array kLossRules{&kCrossEntropy,
                                &kNll,
                                &kMse,
                                &kL1,
                                &kSmoothL1,
                                &kHuber,
                                &kBce,
                                &kBceWithLogits,
                                &kKlDiv,
                                &kPoissonNll,
                                &kGaussianNll,
                                &kFocal,
                                &kDice,
                                &kMarginRanking,
                                &kMultiMargin,
                                &kMultilabelMargin,
                                &kSoftMargin,
                                &kMultilabelSoftMargin,
                                &kHingeEmbedding,
                                &kCosineEmbedding,
                                &kTripletMargin};
constexpr std::array kLossDefinitions = definitions_of(kLossRules);

constexpr std::string_view kOutputPrefix = "output:", kGraphPrefix = "graph:", kAxisOption = ":axis=";

/// Reads the terms of one loss in the order of the text.
class TermReader {
 public:
  explicit TermReader(const LossSpec& loss) : loss_(loss) {}

  std::vector<LossTerm> read() {
    if (loss_.is_graph) return {{&loss_.expression, nullptr, {}}};
    visit(loss_.expression);
    if (terms_.empty()) fail(loss_.expression, "wanted a loss");
    return std::move(terms_);
  }

 private:
  [[noreturn]] void fail(const Formula& where, const std::string& message) const {
    fail_in(loss_, where, ExitCode::usage, message);
  }

  void visit(const Formula& e) {
    if (e.kind == FormulaKind::number) return;
    if (e.kind == FormulaKind::list) fail(e, "a list is the value of an option, wanted a loss");
    if (e.kind == FormulaKind::call || is_loss_name(e)) return add_call(e);
    if (e.kind == FormulaKind::name) return terms_.push_back({&e, nullptr, {}});
    for (const Formula& operand : e.operands) visit(operand);
  }

  /// Alone a name is a loss's: an output is output:NAME or quoted.
  bool is_loss_name(const Formula& e) const {
    if (e.kind != FormulaKind::name || e.quoted) return false;
    return &e == &loss_.expression || find_definition(kLossDefinitions, e.text);
  }

  void add_call(const Formula& call) {
    const Definition& definition = definition_at(kLossDefinitions, "loss", call, loss_.what, loss_.text);
    Options options = read_options(definition, call, loss_.what, loss_.text);
    const LossRule& rule = rule_of(kLossRules, options);
    terms_.push_back({&call, &rule, read_call(loss_, call, rule.call(), std::move(options))});
  }

  const LossSpec& loss_;
  std::vector<LossTerm> terms_;
};

/// "graph:FILE".
LossSpec from_graph(std::string_view text, std::string_view what) {
  if (text.size() == kGraphPrefix.size())
    throw UserError(concat(what, ": 'graph:' needs a file: graph:loss.onnx"), ExitCode::usage);
  LossSpec loss;
  loss.text = text;
  loss.what = what;
  loss.expression = {.kind = FormulaKind::name, .text = std::string(text), .quoted = true, .end = text.size()};
  loss.is_graph = true;
  return loss;
}

/// "output:NAME" and "cross_entropy:axis=N", which were there before expressions.
LossSpec from_older_form(std::string_view text, std::string_view what) {
  LossSpec loss;
  loss.text = text;
  loss.what = what;
  if (text.starts_with(kOutputPrefix)) {
    const std::string_view name = text.substr(kOutputPrefix.size());
    if (name.empty()) throw UserError("loss 'output' needs the name of a graph output: output:NAME", ExitCode::usage);
    loss.text = name;
    loss.expression = {.kind = FormulaKind::name, .text = std::string(name), .quoted = true, .end = name.size()};
    return loss;
  }
  if (text == kOutputPrefix.substr(0, kOutputPrefix.size() - 1)) return from_older_form(kOutputPrefix, what);
  const std::size_t colon = text.find(':');
  const bool has_option = colon != text.npos && find_definition(kLossDefinitions, text.substr(0, colon));
  if (has_option && text.substr(colon).starts_with(kAxisOption) && text.starts_with("cross_entropy:"))
    loss.text = concat("cross_entropy(axis=", text.substr(colon + kAxisOption.size()), ")");
  else if (has_option)
    throw UserError(concat("loss '", text, "': found option '", text.substr(colon + 1), "', wanted axis=N (cross_entropy only)"),
                    ExitCode::usage);
  loss.expression = parse_formula(loss.text, what);
  return loss;
}

}  // namespace

std::vector<LossTerm> terms_of(const LossSpec& loss) { return TermReader(loss).read(); }

const LossFile& LossSpec::graph_file() const {
  check_internal(file != nullptr, "the graph of loss '", text, "' was not read");
  return *file;
}

bool LossSpec::has_default_arguments() const {
  return std::ranges::any_of(terms_of(*this),
                             [](const LossTerm& term) { return std::ranges::any_of(term.call.operands, &CallOperand::is_output); });
}

LossSpec parse_loss(std::string_view text, std::string_view output) {
  constexpr std::string_view kWhat = "--loss";
  LossSpec loss = text.starts_with(kGraphPrefix) ? from_graph(text, kWhat) : from_older_form(text, kWhat);
  loss.output = output;
  const bool has_default = loss.has_default_arguments();  // reads all of it
  if (!output.empty() && !has_default)
    throw UserError(concat("--output ", output, ": the loss '", text, "' names its output itself"), ExitCode::usage);
  return loss;
}

std::span<const Definition* const> loss_definitions() { return kLossDefinitions; }

std::vector<std::string> possible_outputs(const LossSpec& loss) {
  if (loss.is_graph) return loss.graph_file().inputs();
  std::vector<std::string> names;
  for (const LossTerm& term : terms_of(loss)) {
    if (!term.rule) names.push_back(term.expression->text);
    collect_possible_outputs(loss, term.call, names);
  }
  return names;
}

std::vector<std::string> possible_arrays(const LossSpec& loss) {
  if (loss.is_graph) return loss.graph_file().inputs();
  std::vector<std::string> names;
  for (const LossTerm& term : terms_of(loss)) collect_possible_arrays(term.call, names);
  return names;
}

namespace {

double combine(const Formula& e, std::span<const double>& terms) {
  const auto next = [&] {
    const double value = terms.front();
    terms = terms.subspan(1);
    return value;
  };
  const auto operand = [&](std::size_t i) { return combine(e.operands[i], terms); };
  switch (e.kind) {
    case FormulaKind::number: return e.value;
    case FormulaKind::negate: return -operand(0);
    case FormulaKind::add: {
      const double a = operand(0);
      return a + operand(1);
    }
    case FormulaKind::subtract: {
      const double a = operand(0);
      return a - operand(1);
    }
    case FormulaKind::multiply: {
      const double a = operand(0);
      return a * operand(1);
    }
    case FormulaKind::divide: {
      const double a = operand(0);
      return a / operand(1);
    }
    case FormulaKind::name:
    case FormulaKind::call: return next();
    case FormulaKind::list: break;
  }
  throw InternalError("a list in a loss");
}

}  // namespace

std::size_t term_count(const LossSpec& loss) { return terms_of(loss).size(); }

double combine_terms(const LossSpec& loss, std::span<const double> terms) { return combine(loss.expression, terms); }

}  // namespace gcomp::passes
