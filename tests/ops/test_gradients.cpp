// Every gradient rule of the op table against central differences in f64, and against the gradient of its expansion.
#include <gtest/gtest.h>

#include <map>

#include "ir/builder.h"
#include "ir/expand.h"
#include "ir/interpret.h"
#include "passes/training/differentiate.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using namespace ir;
using Values = std::map<std::string, Tensor>;

constexpr double kStep = 1e-6, kAbsolute = 1e-5, kRelative = 1e-3;

/// The op's results weighted by constants and summed to a scalar, the only output.
Graph loss_graph(const OpCase& c, std::mt19937& random) {
  Graph graph = graph_of(c);
  Builder b(graph);
  Var total = b.full({DType::f64, {}}, 0);
  for (Value* result : graph.nodes()[0]->results) {
    Var weighted = b.wrap(result) * b.constant(random_tensor(result->type, -1, 1, random));
    std::vector<std::int64_t> axes;
    for (std::int64_t a = 0; a < weighted.rank(); ++a) axes.push_back(a);
    total = total + b.sum(weighted, axes);
  }
  graph.outputs() = {total.value};
  return graph;
}

std::vector<Value*> float_inputs(const Graph& graph) {
  std::vector<Value*> inputs;
  for (Value* input : graph.inputs())
    if (is_float(input->type.dtype)) inputs.push_back(input);
  return inputs;
}

Values random_values(const OpCase& c, const Graph& graph, std::mt19937& random) {
  Values values;
  for (const Value* input : graph.inputs()) values.emplace(input->name, random_tensor(input->type, c.low, c.high, random));
  return values;
}

/// Gradients of the loss by every float input, by name.
Values gradients_of(Graph graph, const Values& values) {
  const std::vector<Value*> wanted = float_inputs(graph);
  graph.outputs() = passes::differentiate(graph, graph.outputs()[0], wanted);
  const InterpretResult result = interpret(graph, values);
  Values gradients;
  for (std::size_t i = 0; i < wanted.size(); ++i) gradients.emplace(wanted[i]->name, result.outputs[i]);
  return gradients;
}

double loss_at(const Graph& graph, Values values, const std::string& name, std::int64_t element, double offset) {
  Tensor& moved = values.at(name);
  moved.set(element, moved.at(element) + offset);
  return interpret(graph, values).outputs[0].at(0);
}

bool has_gradient(const OpCase& c) {
  if (!c.op->gradient) return c.op->kind == Kind::composite;
  const Graph graph = graph_of(c);
  for (const Value* output : graph.outputs())
    if (!is_float(output->type.dtype)) return false;
  return !float_inputs(graph).empty();
}

class Gradient : public testing::TestWithParam<SharedCase> {};

TEST_P(Gradient, equals_central_differences) {
  std::mt19937 random(7);
  const Graph graph = loss_graph(*GetParam(), random);
  const Values values = random_values(*GetParam(), graph, random);
  int checked = 0;
  for (const auto& [name, gradient] : gradients_of(clone(graph), values)) {
    for (std::int64_t i = 0; i < gradient.elements(); ++i, ++checked) {
      const double numeric = (loss_at(graph, values, name, i, kStep) - loss_at(graph, values, name, i, -kStep)) / (2 * kStep);
      EXPECT_NEAR(gradient.at(i), numeric, kAbsolute + kRelative * std::abs(numeric)) << "by element " << i << " of " << name;
    }
  }
  EXPECT_GT(checked, 0);
}

TEST_P(Gradient, of_a_composite_equals_that_of_its_expansion) {
  if (GetParam()->op->kind != Kind::composite) return;
  std::mt19937 random(8);
  const Graph graph = loss_graph(*GetParam(), random);
  const Values values = random_values(*GetParam(), graph, random);
  Graph expanded = clone(graph);
  ASSERT_TRUE(expand(expanded));
  const Values own = gradients_of(clone(graph), values), derived = gradients_of(std::move(expanded), values);
  for (const auto& [name, gradient] : own)
    for (std::int64_t i = 0; i < gradient.elements(); ++i) {
      const double other = derived.at(name).at(i);
      EXPECT_NEAR(gradient.at(i), other, 1e-9 * std::max(1.0, std::abs(other))) << "by element " << i << " of " << name;
    }
}

std::vector<OpCase> differentiable() {
  std::vector<OpCase> cases;
  for (OpCase& c : op_cases())
    if (has_gradient(c)) cases.push_back(std::move(c));
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Table, Gradient, testing::ValuesIn(shared_cases(differentiable())),
                         [](const auto& info) { return info.param->label; });

TEST(Gradients, every_rule_of_the_table_is_checked) {
  const std::vector<OpCase> cases = differentiable();
  for (const OpDef* op : ops::kTable)
    if (op->gradient) {
      EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [&](const OpCase& c) { return c.op == op; }))
          << op->name << " has a rule and no differentiable sample";
    }
}

}  // namespace
}  // namespace gcomp::tests
