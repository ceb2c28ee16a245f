#include "passes/hoist_slices.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ir/matrices.h"
#include "ir/ops/table.h"
#include "passes/reshape_runs.h"

namespace gcomp::passes {
namespace {

using namespace ir;
using Integers = std::vector<std::int64_t>;

/// Elements start + i * step of an axis, `size` of them.
struct AxisRange {
  std::int64_t start = 0, size = 0, step = 1;

  bool is_whole(std::int64_t extent) const { return start == 0 && size == extent && (step == 1 || extent == 1); }
  bool operator==(const AxisRange& other) const = default;
};
/// Of each axis: a part of a tensor.
using Box = std::vector<AxisRange>;

Box whole_box(const Shape& shape) {
  Box part;
  for (const std::int64_t extent : shape) part.push_back({0, extent, 1});
  return part;
}
Shape shape_of_box(const Box& part) {
  Shape shape;
  for (const AxisRange& range : part) shape.push_back(range.size);
  return shape;
}
bool is_whole(const Box& part, const Shape& shape) {
  for (std::size_t d = 0; d < part.size(); ++d)
    if (!part[d].is_whole(shape[d])) return false;
  return true;
}

Box box_of(const Node& slice) {
  const Integers &starts = slice.attributes.integers("starts"), &sizes = slice.attributes.integers("sizes"),
                 &steps = slice.attributes.integers("steps");
  Box part;
  for (std::size_t d = 0; d < sizes.size(); ++d) part.push_back({starts[d], sizes[d], sizes[d] == 1 ? 1 : steps[d]});
  return part;
}
/// What `inner` takes of what `outer` does.
Box box_within(const Box& outer, const Box& inner) {
  Box part;
  for (std::size_t d = 0; d < outer.size(); ++d) {
    const std::int64_t step = outer[d].step * inner[d].step;
    part.push_back({outer[d].start + inner[d].start * outer[d].step, inner[d].size, inner[d].size == 1 ? 1 : step});
  }
  return part;
}

/// Boxes of the operands of which a part of a result is made; null for an operand that is read whole.
using Boxes = std::vector<std::optional<Box>>;

// ---- reshape ----

/// The ranges of neighbouring axes as one range of their flat index: nothing where they are not one.
std::optional<AxisRange> flattened(const std::vector<std::size_t>& axes, const Shape& shape, const Box& part) {
  AxisRange flat{0, 1, 1};
  std::int64_t inner = 1;  // elements of the axes behind
  for (std::size_t i = axes.size(); i-- > 0;) {
    const std::int64_t extent = shape[axes[i]];
    const AxisRange& range = part[axes[i]];
    flat.start += range.start * inner;
    if (range.size > 1) {
      const std::int64_t step = range.step * inner;
      if (flat.size > 1 && step != flat.step * flat.size) return std::nullopt;
      if (flat.size == 1) flat.step = step;
      flat.size *= range.size;
    }
    inner *= extent;
  }
  return flat;
}

/// A range of a flat index as ranges of its axes.
bool unflatten(AxisRange flat, const std::vector<std::size_t>& axes, const Shape& shape, Box& part) {
  for (std::size_t i = axes.size(); i-- > 0;) {
    const std::int64_t extent = shape[axes[i]];
    AxisRange& range = part[axes[i]];
    if (flat.size == 1) {
      range = {flat.start % extent, 1, 1};
      flat.start /= extent;
    } else if (flat.step % extent == 0) {  // always the same place of this axis
      range = {flat.start % extent, 1, 1};
      flat = {flat.start / extent, flat.size, flat.step / extent};
    } else if (flat.step == 1 && flat.start % extent == 0 && flat.size % extent == 0) {  // whole rows
      range = {0, extent, 1};
      flat = {flat.start / extent, flat.size / extent, 1};
    } else if (flat.start % extent + (flat.size - 1) * flat.step < extent) {  // within one row
      range = {flat.start % extent, flat.size, flat.step};
      flat = {flat.start / extent, 1, 1};
    } else {
      return false;
    }
  }
  return flat.start == 0 && flat.size == 1;
}

std::optional<Box> box_before_reshape(const Shape& from, const Shape& to, const Box& part) {
  if (element_count(from) == 0 || std::ranges::any_of(part, [](const AxisRange& range) { return range.step <= 0; }))
    return std::nullopt;
  Box made = whole_box(from);
  for (const ReshapeRun& run : reshape_runs(from, to)) {
    if (std::ranges::all_of(run.to, [&](std::size_t axis) { return part[axis].is_whole(to[axis]); })) continue;
    const std::optional<AxisRange> flat = flattened(run.to, to, part);
    if (!flat || !unflatten(*flat, run.from, from, made)) return std::nullopt;
  }
  return made;
}

// ---- what a part of a node's result is made of ----

std::optional<Boxes> boxes_of_matmul(const Node& node, const Box& part) {
  Box a = part, b = part;
  const std::size_t rank = part.size(), row = rank - 2, column = rank - 1;
  const Attributes attributes = with_defaults(*node.op, node.attributes);
  const bool a_turned = attributes.flag("transpose_a"), b_turned = attributes.flag("transpose_b");
  const std::int64_t depth = node.operands[0]->type.shape[a_turned ? row : column];
  a[column] = b[row] = {0, depth, 1};
  if (a_turned) std::swap(a[row], a[column]);
  if (b_turned) std::swap(b[row], b[column]);
  return Boxes{a, b};
}

/// Whether a part of attention's result is of some queries alone.
bool drops_queries(const Node& node, const Box& part) {
  const std::size_t row = part.size() - 2;
  return !part[row].is_whole(node.result()->type.shape[row]);
}

/// The matrices q, k, v and the mask. Under the causal mask queries have numbers, but for one that sees all keys.
std::optional<Boxes> boxes_of_attention(const Node& node, const Box& part) {
  const Attributes attributes = with_defaults(*node.op, node.attributes);
  const Shape& keys = node.operands[1]->type.shape;
  const std::size_t rank = part.size(), row = rank - 2, column = rank - 1;
  const bool sees_all = part[row].size == 1 && part[row].start + 1 >= keys[row];
  if ((attributes.flag("causal") && drops_queries(node, part) && !sees_all) || attributes.real("dropout") != 0 ||
      !part[column].is_whole(node.result()->type.shape[column]))
    return std::nullopt;
  Box q = part, k = part, v = part;
  q[column] = {0, keys[column], 1};
  k[row] = v[row] = {0, keys[row], 1};
  k[column] = q[column];
  Boxes made(node.operands.size());
  made[0] = q, made[1] = k, made[2] = v;
  if (node.operands.size() > 3 && node.operands[3]) {
    const Shape& extents = node.operands[3]->type.shape;
    Box mask = part;
    mask[column] = {0, extents[column], 1};
    for (std::size_t d = 0; d < column; ++d)
      if (extents[d] == 1) mask[d] = {0, 1, 1};
    made[3] = mask;
  }
  return made;
}

std::optional<Boxes> boxes_of_view(const Node& node, const Box& part) {
  const Shape& from = node.operands[0]->type.shape;
  if (node.op == &ops::kTranspose) {
    const Integers& permutation = node.attributes.integers("permutation");
    Box made(part.size());
    for (std::size_t d = 0; d < part.size(); ++d) made[static_cast<std::size_t>(permutation[d])] = part[d];
    return Boxes{made};
  }
  if (node.op == &ops::kBroadcast) {
    const Integers& axes = node.attributes.integers("axes");
    Box made = whole_box(from);
    for (std::size_t d = 0; d < axes.size(); ++d)
      if (from[d] != 1) made[d] = part[static_cast<std::size_t>(axes[d])];
    return Boxes{made};
  }
  if (node.op == &ops::kSlice) return Boxes{box_within(box_of(node), part)};
  if (node.op != &ops::kReshape) return std::nullopt;
  std::optional<Box> made = box_before_reshape(from, node.result()->type.shape, part);
  if (!made) return std::nullopt;
  return Boxes{std::move(*made)};
}

std::optional<Boxes> boxes_of_composite(const Node& node, const Box& part) {
  const Shape& shape = node.result()->type.shape;
  const auto is_whole_from = [&](std::size_t first, std::size_t count) {
    for (std::size_t d = first; d < first + count; ++d)
      if (!part[d].is_whole(shape[d])) return false;
    return true;
  };
  if (node.op == &ops::kAttention) return boxes_of_attention(node, part);
  Boxes made(node.operands.size());
  made[0] = part;
  const bool along_one = node.op == &ops::kSoftmax || node.op == &ops::kLogSoftmax;
  if (!along_one && node.op != &ops::kLayerNorm) return std::nullopt;
  const auto axis = static_cast<std::size_t>(with_defaults(*node.op, node.attributes).integer("axis"));
  if (!is_whole_from(axis, along_one ? 1 : shape.size() - axis)) return std::nullopt;
  return made;
}

Boxes boxes_of_reduction(const Node& node, const Box& part) {
  const Integers& axes = node.attributes.integers("axes");
  const Shape& from = node.operands[0]->type.shape;
  Box made = whole_box(from);
  for (std::size_t d = 0, next = 0; d < from.size(); ++d)
    if (std::ranges::find(axes, static_cast<std::int64_t>(d)) == axes.end()) made[d] = part[next++];
  return {made};
}

/// What a part of the first result is made of; nothing where that is not some part of each operand, or the node is not for this
/// pass.
std::optional<Boxes> boxes_before(const Node& node, const Box& part) {
  switch (node.op->kind) {
    case Kind::pointwise: return Boxes(node.operands.size(), part);
    case Kind::constant: return node.op == &ops::kFull ? std::optional(Boxes()) : std::nullopt;
    case Kind::view: return boxes_of_view(node, part);
    case Kind::reduce:
      return node.op->reduction.of < Reduction::Of::first_maximum ? std::optional(boxes_of_reduction(node, part)) : std::nullopt;
    case Kind::contract: return node.op == &ops::kMatmul ? boxes_of_matmul(node, part) : std::nullopt;
    case Kind::composite: return boxes_of_composite(node, part);
    default: return std::nullopt;
  }
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
  /// Of a node whose first result is computed in part.
  struct BoxPlan {
    Box part;
    Boxes operands;
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
    if (const std::optional<Boxes> parts = boxes_if_alone(node)) {
      plans_[&node] = BoxPlan{reads_[node.result()].part, *parts};
      for (std::size_t i = 0; i < node.operands.size(); ++i) {
        if (node.operands[i] && (*parts)[i]) read(node.operands[i], *(*parts)[i]);
        else read_whole(node.operands[i]);
      }
      return;
    }
    for (const Value* result : node.results) read_whole(result);
    if (node.op == &ops::kSlice && node.result()->type.elements() > 0 &&
        node.result()->type.elements() * 2 <= node.operands[0]->type.elements())
      return read(node.operands[0], box_of(node));
    for (const Value* operand : node.operands) read_whole(operand);
  }

  /// Where a part of the first result is all that is read of the node, and can be computed of parts of its operands.
  std::optional<Boxes> boxes_if_alone(const Node& node) {
    if (node.results.empty() || !is_in_part(node.result()) || node.attributes.find(kOperandViews)) return std::nullopt;
    for (std::size_t i = 1; i < node.results.size(); ++i)
      if (reads_[node.results[i]].of != Read::Of::nothing) return std::nullopt;
    return boxes_before(node, reads_[node.result()].part);
  }

  /// Views of what is there as a whole are as cheap before the slice as behind it: a plan pays where something is made. Operands
  /// were seen.
  bool keep_if_it_pays(const Node& node) {
    std::optional<BoxPlan>& plan = plans_[&node];
    if (!plan) return false;
    const auto pays = [&](const Value* operand) { return is_in_part(operand) && plans_[operand->producer]; };
    const bool makes = node.op->kind != Kind::view || node.op == &ops::kBroadcast;
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
      const std::optional<BoxPlan>& plan = plans_[node.get()];
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

  Value* in_part(const Node& node, const BoxPlan& plan) {
    std::vector<Value*> operands;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      Value* operand = node.operands[i];
      const bool is_whole = operand && !is_in_part(operand);
      if (operand) operand = now(operand);
      operands.push_back(is_whole && plan.operands[i] ? sliced(operand, *plan.operands[i], node) : operand);
    }
    if (node.op == &ops::kSlice) return operands[0];
    Attributes attributes = node.attributes;
    if (attributes.find("shape")) attributes.set("shape", shape_of_box(plan.part));
    if (node.op == &ops::kAttention && drops_queries(node, plan.part)) attributes.erase("causal");  // it sees all keys
    return graph_.append(*node.op, std::move(operands), std::move(attributes), node.origin)->result();
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
  NodeTable<std::optional<BoxPlan>> plans_;
  ValueTable<Value*> replaced_;
};

}  // namespace

bool hoist_slices(Graph& graph) { return SliceHoisting(graph).run(); }

}  // namespace gcomp::passes
