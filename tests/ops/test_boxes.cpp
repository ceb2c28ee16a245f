// A box of what a node computes is what a node over boxes of its operands computes (OpDef::boxed).
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ir/box.h"
#include "ir/interpret.h"
#include "ir/text/print.h"
#include "ir/verify.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using namespace ir;

Box random_box(const Shape& shape, std::mt19937& random) {
  const auto below = [&](std::int64_t count) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count)); };
  Box box = whole_box(shape);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (below(3) == 0) continue;
    const std::int64_t step = 1 + below(2), size = 1 + below((shape[d] - 1) / step + 1), reach = (size - 1) * step;
    const std::int64_t first = below(shape[d] - reach);
    const bool backwards = size > 1 && below(4) == 0;
    box[d] = {backwards ? first + reach : first, size, size == 1 ? 1 : backwards ? -step : step};
  }
  return box;
}

Value* sliced(Graph& graph, Value* value, const Box& box) {
  std::vector<std::int64_t> starts, steps;
  for (const AxisRange& range : box) starts.push_back(range.start), steps.push_back(range.step);
  return graph.append(ops::kSlice, {value}, {{"starts", starts}, {"sizes", shape_of_box(box)}, {"steps", steps}}, "")->result();
}

/// Whether a node computes that box alone; then it must give what the slice of the whole result shows, the first output.
bool check_box(const OpCase& c, const std::map<std::string, Tensor>& values, const Box& box) {
  Graph graph = graph_of(c);
  const std::vector<Value*> inputs(graph.inputs().begin(), graph.inputs().end());
  Value* const whole = graph.outputs()[0];
  const std::optional<BoxedNode> boxed = boxed_node(*c.op, c.operands, whole->type, c.attributes, box);
  if (!boxed) return false;
  std::vector<Value*> operands;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    operands.push_back(boxed->operands[i] ? sliced(graph, inputs[i], *boxed->operands[i]) : inputs[i]);
  Value* const part = graph.append(*c.op, operands, boxed->attributes.value_or(c.attributes), "")->result();
  graph.outputs() = {sliced(graph, whole, box), part};
  verify(graph);
  const std::vector<Tensor> outputs = interpret(graph, values).outputs;
  EXPECT_EQ(outputs[0].type(), outputs[1].type());
  for (std::int64_t i = 0; i < outputs[0].elements(); ++i)
    EXPECT_NEAR(outputs[0].at(i), outputs[1].at(i), 1e-12 * std::max(1.0, std::abs(outputs[0].at(i)))) << "element " << i;
  if (testing::Test::HasFailure()) ADD_FAILURE() << print(graph);
  return true;
}

TEST(Boxes, AreMadeOfBoxesOfTheOperands) {
  std::mt19937 random(7);
  std::set<std::string_view> never;
  for (const OpDef* op : ops::kTable)
    if (op->boxed) never.insert(op->name);
  for (const OpCase& c : op_cases()) {
    std::map<std::string, Tensor> values;
    for (std::size_t i = 0; i < c.operands.size(); ++i)
      values.emplace(concat("x", i), random_tensor(c.operands[i], c.low, c.high, random));
    const Graph graph = graph_of(c);
    if (c.op->kind == Kind::collective) continue;  // of several ranks
    const Shape& shape = graph.outputs()[0]->type.shape;
    if (element_count(shape) == 0) continue;
    for (int i = 0; i < 24; ++i)
      if (check_box(c, values, random_box(shape, random))) never.erase(c.op->name);
    ASSERT_FALSE(HasFailure()) << c.label;
  }
  for (const std::string_view name : never) ADD_FAILURE() << "no sample of " << name << " has a box";
}

}  // namespace
}  // namespace gcomp::tests
