#include "passes/hoist_slices.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ir/box.h"
#include "ir/ops/table.h"

namespace gcomp::passes {
namespace {

using namespace ir;
using Integers = std::vector<std::int64_t>;

Box box_of(const Node& slice) {
  const Integers &starts = slice.attributes.integers("starts"), &sizes = slice.attributes.integers("sizes"),
                 &steps = slice.attributes.integers("steps");
  Box box;
  for (std::size_t d = 0; d < sizes.size(); ++d) box.push_back({starts[d], sizes[d], sizes[d] == 1 ? 1 : steps[d]});
  return box;
}
/// What computes a box of the first result alone. A slice of a slice is one.
std::optional<BoxedNode> boxed(const Node& node, const Box& box) {
  if (node.op == &ops::kSlice) return BoxedNode{{box_within(box_of(node), box)}, {}};
  std::vector<TensorType> operands;
  for (const Value* operand : node.operands) operands.push_back(operand ? operand->type : absent_type());
  return boxed_node(*node.op, operands, node.result()->type, node.attributes, box);
}

// ---- the graph ----

class SliceHoisting {
 public:
  explicit SliceHoisting(Graph& graph) : graph_(graph), reads_(graph), plans_(graph), replaced_(graph) {}

  bool run() {
    for (const Value* output : graph_.outputs()) read_whole(output);
    const auto& nodes = graph_.nodes();
    for (std::size_t i = nodes.size(); i-- > 0;) plan(*nodes[i]);
    bool any = false;
    for (const Node& node : NodeWalk(graph_)) any = keep_if_it_pays(node) || any;
    if (any) rebuild();
    return any;
  }

 private:
  /// What is read of a value, by all readers that were seen.
  struct Read {
    enum class Of : std::uint8_t { nothing, part, all } of = Of::nothing;
    Box part;
  };

  void read_whole(const Value* value) {
    if (value) reads_[value] = {Read::Of::all, {}};
  }
  void read(const Value* value, const Box& part) {
    Read& known = reads_[value];
    if (!value->producer || is_whole(part, value->type.shape)) known = {Read::Of::all, {}};
    else if (known.of == Read::Of::nothing) known = {Read::Of::part, part};
    else if (known.of == Read::Of::part && known.part != part) known = {Read::Of::all, {}};
  }
  bool is_in_part(const Value* value) { return value && reads_[value].of == Read::Of::part; }

  /// All readers of its results were seen.
  void plan(const Node& node) {
    if (std::optional<BoxedNode> made = boxed_if_alone(node)) {
      for (std::size_t i = 0; i < node.operands.size(); ++i) {
        if (node.operands[i] && made->operands[i]) read(node.operands[i], *made->operands[i]);
        else read_whole(node.operands[i]);
      }
      plans_[&node] = std::move(made);
      return;
    }
    for (const Value* result : node.results) read_whole(result);
    if (node.op == &ops::kSlice && node.result()->type.elements() > 0 &&
        node.result()->type.elements() * 2 <= node.operands[0]->type.elements())
      return read(node.operands[0], box_of(node));
    for (const Value* operand : node.operands) read_whole(operand);
  }

  /// Where a part of the first result is all that is read of the node, and can be computed alone.
  std::optional<BoxedNode> boxed_if_alone(const Node& node) {
    if (node.results.empty() || !is_in_part(node.result())) return std::nullopt;
    for (std::size_t i = 1; i < node.results.size(); ++i)
      if (reads_[node.results[i]].of != Read::Of::nothing) return std::nullopt;
    return boxed(node, reads_[node.result()].part);
  }

  /// Views of what is there as a whole are as cheap before the slice as behind it: a plan pays where something is made. Operands
  /// were seen.
  bool keep_if_it_pays(const Node& node) {
    std::optional<BoxedNode>& plan = plans_[&node];
    if (!plan) return false;
    const auto pays = [&](const Value* operand) { return is_in_part(operand) && plans_[operand->producer]; };
    const bool makes = node.op->kind != Kind::view || node.result()->type.elements() > node.operands[0]->type.elements();
    if (makes || std::ranges::any_of(node.operands, pays)) return true;
    plan.reset();
    read_whole(node.result());
    return false;
  }

  void rebuild() {
    const ValueSet outputs(graph_, graph_.outputs());
    ValueSet named(graph_);
    std::vector<std::unique_ptr<Node>> old = graph_.take_nodes(), retired;
    for (std::unique_ptr<Node>& node : old) {
      const std::optional<BoxedNode>& plan = plans_[node.get()];
      if (!plan && !(node->op == &ops::kSlice && is_in_part(node->operands[0]))) {
        for (Value*& operand : node->operands)
          if (operand) operand = now(operand);
        graph_.append(std::move(node));
        continue;
      }
      Value* made = plan ? in_part(*node, *plan) : now(node->operands[0]);
      const bool is_output = outputs.contains(node->result());
      if (is_output && !named.insert(made)) made = copied(made, *node);  // an output has a name of its own
      if (is_output || node->op != &ops::kSlice) graph_.take_name(node->result(), made);
      replaced_[node->result()] = made;
      retired.push_back(std::move(node));
    }
    for (Value*& output : graph_.outputs()) output = now(output);
  }

  Value* now(Value* value) {
    Value* const made = replaced_.at(value);
    return made ? made : value;
  }

  Value* in_part(const Node& node, const BoxedNode& plan) {
    std::vector<Value*> operands;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      Value* operand = node.operands[i];
      const bool is_whole = operand && !is_in_part(operand);
      if (operand) operand = now(operand);
      operands.push_back(is_whole && plan.operands[i] ? sliced(operand, *plan.operands[i], node) : operand);
    }
    if (node.op == &ops::kSlice) return operands[0];
    return graph_.append(*node.op, std::move(operands), plan.attributes ? *plan.attributes : node.attributes, node.origin)
        ->result();
  }

  Value* copied(Value* value, const Node& reader) { return box_in(value, whole_box(value->type.shape), reader); }
  Value* sliced(Value* value, const Box& part, const Node& reader) {
    return is_whole(part, value->type.shape) ? value : box_in(value, part, reader);
  }
  Value* box_in(Value* value, const Box& part, const Node& reader) {
    Integers starts, steps;
    for (const AxisRange& range : part) starts.push_back(range.start), steps.push_back(range.step);
    Attributes attributes{{"starts", starts}, {"sizes", shape_of_box(part)}, {"steps", steps}};
    return graph_.append(ops::kSlice, {value}, std::move(attributes), reader.origin)->result();
  }

  Graph& graph_;
  ValueTable<Read> reads_;
  NodeTable<std::optional<BoxedNode>> plans_;
  ValueTable<Value*> replaced_;
};

}  // namespace

bool hoist_slices(Graph& graph) { return SliceHoisting(graph).run(); }

}  // namespace gcomp::passes
