#include "passes/products/split_reductions.h"

#include <algorithm>

#include "ir/base/integers.h"
#include "ir/ops/table.h"
#include "ir/reshape_runs.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Of the axes of a value, those to keep, as axes of what it is a rearranged view of.
struct Kept {
  const Value* value;
  std::vector<bool> axes;
};

/// One view further back; false where there is none, or where axes that are kept and others become one.
bool look_behind(Kept& kept) {
  const Node* node = kept.value->producer;
  if (!node || node->operands.size() != 1) return false;
  const Value* operand = node->operands[0];
  std::vector<bool> axes(operand->type.shape.size());
  if (node->op->kind == Kind::pointwise) {
    axes = kept.axes;
  } else if (node->op == &ops::kTranspose) {
    const auto& permutation = node->attributes.integers("permutation");
    for (std::size_t d = 0; d < axes.size(); ++d) axes[static_cast<std::size_t>(permutation[d])] = kept.axes[d];
  } else if (node->op == &ops::kReshape) {
    for (const ReshapeRun& run : reshape_runs(operand->type.shape, kept.value->type.shape)) {
      const bool first = kept.axes[run.to[0]];
      if (!std::ranges::all_of(run.to, [&](std::size_t axis) { return kept.axes[axis] == first; })) return false;
      for (const std::size_t axis : run.from) axes[axis] = first;
    }
  } else {
    return false;
  }
  kept = {operand, std::move(axes)};
  return true;
}

/// How many results lie side by side in memory, as far as is known: whether a reduction goes along rows or sums columns.
std::int64_t neighbours_kept(const Node& node) {
  Kept kept{node.operands[0], std::vector<bool>(node.operands[0]->type.shape.size(), true)};
  for (const std::int64_t axis : node.attributes.integers("axes")) kept.axes[static_cast<std::size_t>(axis)] = false;
  constexpr int kSteps = 16;  // each reduction looks for itself
  for (int step = 0; step < kSteps && look_behind(kept); ++step) {}
  const Shape& shape = kept.value->type.shape;
  std::size_t last = shape.size();
  while (last > 0 && shape[last - 1] == 1) --last;
  return last > 0 && kept.axes[last - 1] ? shape[last - 1] : 1;
}

std::int64_t kept_parallel(const Node& node) {
  return node.result()->type.elements() / std::min<std::int64_t>(64, std::max<std::int64_t>(neighbours_kept(node), 1));
}

/// A run of neighbouring reduced axes that is cut in parts.
struct Cut {
  std::int64_t first = 0, axes = 0;  ///< of the run, and how many
  std::int64_t size = 1, parts = 1;
};

/// At most `wanted` equal parts of a run. Parts of the rows themselves are whole vectors where there is a choice.
std::int64_t parts_of(std::int64_t size, std::int64_t wanted, bool rows) {
  constexpr std::int64_t kVector = 8;
  const auto largest = [&](std::int64_t multiple) {
    std::int64_t parts = std::min(wanted, size / multiple);
    while (parts > 1 && size % (parts * multiple) != 0) --parts;
    return parts;
  };
  const std::int64_t any = largest(1), whole = rows ? largest(kVector) : any;
  return whole * 2 >= any ? whole : any;
}

/// The axis with the most parts, or a run of neighbouring axes where that is far from enough: cut within the images that a kernel
/// makes one after another, the reduction would not join that kernel.
Cut best_cut(const Shape& shape, const std::vector<std::int64_t>& axes, std::int64_t wanted) {
  Cut best;
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto consider = [&](std::int64_t first, std::int64_t count) {
    Cut cut{first, count, 1, 1};
    for (std::int64_t d = first; d < first + count; ++d) cut.size *= shape[static_cast<std::size_t>(d)];
    cut.parts = parts_of(cut.size, wanted, first + count == rank);
    if (cut.parts > best.parts) best = cut;
  };
  for (std::int64_t axis : axes) consider(axis, 1);
  if (best.parts * 8 >= wanted) return best;
  for (std::size_t i = 0; i < axes.size();) {
    std::size_t end = i + 1;
    while (end < axes.size() && axes[end] == axes[end - 1] + 1) ++end;
    consider(axes[i], static_cast<std::int64_t>(end - i));
    i = end;
  }
  return best;
}

constexpr std::int64_t kFewestStrips = 32;
// Pointwise ops between what a row's reductions take and what columns sum: a product and a cast for a norm's scale, and up to the
// gradient that leaves a norm and its residual for the bias of the product before.
constexpr int kNear = 8;

/// What rows are made of: values that reductions along their last axis take, or that lie at most `steps` pointwise ops before them.
class RowValues {
 public:
  explicit RowValues(const Graph& graph) : found_(graph) {
    constexpr int kSteps = 4;
    for (const Node& node : NodeWalk(graph))
      if (node.op->kind == Kind::reduce && reduces_rows(node)) add(node.operands[0], kSteps);
  }
  /// Whether such a value is within `steps` pointwise ops before this one, or is it.
  bool near(const Value* value, int steps) const {
    if (found_.contains(value)) return true;
    const Node* node = value->producer;
    if (steps == 0 || !node || node->op->kind != Kind::pointwise) return false;
    return std::ranges::any_of(node->operands,
                               [&](const Value* v) { return v->type.shape == value->type.shape && near(v, steps - 1); });
  }

 private:
  static bool reduces_rows(const Node& node) {
    const auto& axes = node.attributes.integers("axes");
    const auto last = static_cast<std::int64_t>(node.operands[0]->type.shape.size()) - 1;
    return axes.size() == 1 && axes[0] == last;
  }
  void add(const Value* value, int steps) {
    found_.insert(value);
    const Node* node = value->producer;
    if (steps == 0 || !node || node->op->kind != Kind::pointwise) return;
    for (const Value* operand : node->operands)
      if (operand->type.shape == value->type.shape) add(operand, steps - 1);
  }

  ValueSet found_;
};

/// A sum over all axes but the last.
bool sums_columns(const Node& node) {
  const auto& axes = node.attributes.integers("axes");
  const std::size_t rank = node.operands[0]->type.shape.size();
  if (node.op->reduction.of != Reduction::Of::sum || !is_float(node.operands[0]->type.dtype) || axes.size() + 1 != rank)
    return false;
  for (std::size_t d = 0; d < axes.size(); ++d)
    if (axes[d] != static_cast<std::int64_t>(d)) return false;
  return true;
}

/// Reduces the operand, seen in such a shape, over some axes, and the results over the others. Sums of parts are in f32 where those
/// of the whole are rounded to 16 bits: they are rounded once.
Value* reduce_parts(const Node& node, Builder& b, const Shape& shape, const std::vector<std::int64_t>& within,
                    const std::vector<std::int64_t>& across) {
  const Var x = b.reshape(b.wrap(node.operands[0]), shape);
  const DType dtype = node.result()->type.dtype;
  const bool widens = node.op->reduction.of == Reduction::Of::sum && is_float(dtype) && size_of(dtype) < 4;
  const Var result = b.reduce(*node.op, b.reduce(*node.op, widens ? b.cast(x, DType::f32) : x, within), across);
  return (widens ? b.cast(result, dtype) : result).value;
}

/// Sums of columns over about `wanted` strips of rows: whole axes from the first on, and a part of the next one.
std::optional<Value*> sum_strips(const Node& node, Builder& b, std::int64_t wanted) {
  const Shape& shape = node.operands[0]->type.shape;
  std::int64_t strips = 1;
  std::size_t d = 0;
  for (; d + 1 < shape.size() && strips * shape[d] <= wanted; ++d) strips *= shape[d];
  if (d + 1 == shape.size()) return std::nullopt;  // a strip would be a row
  const std::int64_t parts = parts_of(shape[d], wanted / strips, false);
  if (strips * parts < kFewestStrips) return std::nullopt;
  Shape split(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(d));
  split.insert(split.end(), {parts, shape[d] / parts});
  split.insert(split.end(), shape.begin() + static_cast<std::ptrdiff_t>(d) + 1, shape.end());
  std::vector<std::int64_t> within, across;
  for (std::size_t axis = 0; axis + 1 < split.size(); ++axis)
    (axis <= d ? across : within).push_back(static_cast<std::int64_t>(axis));
  return reduce_parts(node, b, split, within, across);
}

}  // namespace

bool split_reductions(Graph& graph, const TargetInfo& target, const SplitOptions& options) {
  const RowValues row_values(graph);
  return rewrite(graph, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
           if (node.op->kind != Kind::reduce || node.op->reduction.of >= Reduction::Of::first_maximum) return std::nullopt;
           const TensorType& x = node.operands[0]->type;
           if (x.elements() < options.min_elements) return std::nullopt;
           if (target.row_strips > 0 && sums_columns(node) && row_values.near(node.operands[0], kNear) &&
               x.shape.back() >= options.strip_columns && x.shape.back() <= options.most_strip_columns) {
             const std::int64_t rows = x.elements() / x.shape.back();
             if (const auto sum = sum_strips(node, b, std::min(target.row_strips, rows / options.strip_rows)))
               return std::vector{*sum};
           }
           const std::int64_t kept = std::max<std::int64_t>(kept_parallel(node), 1);
           const bool is_long = x.elements() / node.result()->type.elements() >= options.long_reduction;
           if (kept >= (is_long ? std::max(options.enough_parallel, target.parallel_sums) : options.enough_parallel))
             return std::nullopt;
           const Cut cut = best_cut(x.shape, node.attributes.integers("axes"),
                                    std::max(options.parts, quotient_up(target.parallel_sums, kept)));
           if (cut.parts < 4) return std::nullopt;
           // The axes of the run become two: parts, and what one part adds up.
           Shape split(x.shape.begin(), x.shape.begin() + cut.first);
           split.push_back(cut.parts);
           split.push_back(cut.size / cut.parts);
           split.insert(split.end(), x.shape.begin() + cut.first + cut.axes, x.shape.end());
           std::vector<std::int64_t> within;
           for (std::int64_t axis : node.attributes.integers("axes")) {
             if (axis < cut.first) within.push_back(axis);
             if (axis >= cut.first + cut.axes) within.push_back(axis - cut.axes + 2);
           }
           within.push_back(cut.first + 1);
           std::sort(within.begin(), within.end());
           const auto before = std::count_if(within.begin(), within.end(), [&](std::int64_t axis) { return axis < cut.first; });
           return std::vector{reduce_parts(node, b, split, within, {cut.first - before})};
         }) > 0;
}

}  // namespace gcomp::passes
