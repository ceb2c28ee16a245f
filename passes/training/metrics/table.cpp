#include <algorithm>
#include <array>

#include "passes/training/losses/call_graph.h"
#include "passes/training/metrics/metric.h"
#include "passes/training/metrics/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::array kMetricRules{&kAccuracy, &kTopK,      &kPrecision,  &kRecall, &kF1,   &kConfusion, &kAuc,
                                  &kIou,      &kDiceScore, &kPerplexity, &kMae,    &kRmse, &kR2};
constexpr std::array kMetricDefinitions = definitions_of(kMetricRules);

struct ReadMetric {
  const MetricRule* rule = nullptr;
  Call call;
};

ReadMetric read(const MetricSpec& spec) {
  using FormulaKind = Formula::Kind;
  const Formula& e = spec.expression;
  if (e.kind != FormulaKind::name && e.kind != FormulaKind::call)
    fail_in(spec, e, ExitCode::usage, "wanted the name of one metric, or NAME(output, array, option=value, ...)");
  const Definition& definition = definition_at(kMetricDefinitions, "metric", e, spec.what, spec.text);
  Options options = read_options(definition, e, spec.what, spec.text);
  const MetricRule& rule = rule_of(kMetricRules, options);
  return {&rule, read_call(spec, e, rule.call(), std::move(options))};
}

/// The number of rows that all inputs have; 0 where there is none.
std::int64_t common_rows(const Graph& graph) {
  std::int64_t rows = 0;
  for (const Value* input : graph.inputs()) {
    if (input->type.shape.empty()) continue;
    if (rows != 0 && rows != input->type.shape[0]) return 0;
    rows = input->type.shape[0];
  }
  return rows;
}

}  // namespace

Var CountedRows::only(Var x) const {
  if (x.rank() == 0 || x.dim(0) != batch_) {
    covers_all_ = false;
    return x;
  }
  Var counts = b_.iota({DType::i64, x.shape()}, 0) < b_.broadcast(rows_, x.shape(), {});
  return ops::choose(counts, x, 0);
}

std::span<const Definition* const> metric_definitions() { return kMetricDefinitions; }

MetricSpec parse_metric(std::string_view text, std::string_view output) {
  MetricSpec spec;
  spec.text = text;
  spec.what = "--metric";
  spec.expression = parse_formula(text, spec.what);
  spec.output = output;
  static_cast<void>(read(spec));
  return spec;
}

std::optional<bool> higher_is_better(std::string_view metric) { return read(parse_metric(metric)).rule->higher_is_better; }

int output_count(const MetricSpec& metric) { return read(metric).rule->outputs; }

bool keeps_rows(const MetricSpec& metric) { return read(metric).rule->keeps_rows; }

Tensor metric_value(const MetricSpec& metric, std::span<const Tensor> sums) {
  const ReadMetric made = read(metric);
  return made.rule->value(made.call.options, sums);
}

std::vector<std::string> possible_arrays(const MetricSpec& metric) {
  std::vector<std::string> names;
  collect_possible_arrays(read(metric).call, names);
  return names;
}

std::vector<std::string> possible_outputs(const MetricSpec& metric) {
  std::vector<std::string> names;
  collect_possible_outputs(metric, read(metric).call, names);
  return names;
}

std::vector<MetricSpec> default_metrics(const LossSpec& loss) {
  for (const LossTerm& term : terms_of(loss)) {
    const bool decides = term.rule && (term.rule->of_classes || term.rule->of_decisions);
    if (!decides) continue;
    const std::vector<CallOperand>& of = term.call.operands;
    std::string inside;
    const auto add = [&](const std::string& part) { inside += concat(inside.empty() ? "" : ", ", part); };
    if (!of[0].is_output) add(of[0].name), add(of[1].name);
    for (const std::string_view option : {"axis", "ignore_index"})
      if (term.call.options.given(option)) add(concat(option, "=", term.call.options.integer(option)));
    MetricSpec metric = parse_metric(inside.empty() ? "accuracy" : concat("accuracy(", inside, ")"), loss.output);
    metric.takes_scores = term.rule->takes_scores;
    metric.of_classes = term.rule->of_classes;
    return {std::move(metric)};
  }
  return {};
}

EvaluationPlan attach_evaluation(Graph& graph, const LossSpec& loss, const std::vector<MetricSpec>& metrics,
                                 const std::map<std::string, TensorType>& arrays, BoundLoss* bound) {
  const std::int64_t batch = common_rows(graph);
  CallGraph calls(graph, arrays);
  LossGraph terms(calls, loss);
  std::vector<ReadMetric> read_metrics;
  std::vector<std::vector<BoundOperand>> operands;
  for (const MetricSpec& metric : metrics) {
    read_metrics.push_back(read(metric));
    operands.push_back(calls.binder().bind(metric, read_metrics.back().call));
  }
  if (bound) *bound = calls.binder().bound();
  calls.add_inputs();
  Builder& b = calls.builder();
  Var rows = b.input({DType::i64, {}}, "rows", Role::rows);
  const CountedRows counted(b, batch, rows);
  EvaluationPlan plan;
  bool only_sums = true;
  std::vector<Value*> shown;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const std::optional<LossSum> mean = terms.mean_of(i);
    plan.term_is_sum.push_back(mean.has_value());
    only_sums = only_sums && mean;
    if (!mean) {
      shown.push_back(terms.value_of(i).value);
      continue;
    }
    shown.push_back(sum_of_all(counted.only(mean->values)).value);
    shown.push_back(sum_of_all(counted.only(mean->weights ? mean->weights : b.like(mean->values, 1))).value);
  }
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const MetricCall call{calls.build(read_metrics[i].call, operands[i]), counted, metrics[i].takes_scores, metrics[i].of_classes};
    const std::vector<Var> sums = [&] {
      try {
        return read_metrics[i].rule->sums(call);
      } catch (const UserError& error) { fail_in(metrics[i], metrics[i].expression, error.code(), error.what()); }
    }();
    check_internal(static_cast<int>(sums.size()) == read_metrics[i].rule->outputs, metrics[i].text, " gives ", sums.size(),
                   " sums");
    plan.metric_outputs.push_back(read_metrics[i].rule->outputs);
    for (Var sum : sums) shown.push_back(sum.value);
  }
  plan.takes_parts = only_sums && counted.covers_all();
  graph.clear_outputs();
  for (Value* value : shown) graph.add_output(value, Role::evaluated);
  graph.set_name("evaluate");
  graph.remove_dead();
  return plan;
}

}  // namespace gcomp::passes
