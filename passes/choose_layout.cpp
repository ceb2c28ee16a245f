#include "passes/choose_layout.h"

#include <algorithm>
#include <numeric>

#include "ir/ops/table.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;
using Permutation = std::vector<std::int64_t>;
using Replacement = std::optional<std::vector<Value*>>;

Permutation inverse_of(const Permutation& p) {
  Permutation inverse(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) inverse[static_cast<std::size_t>(p[i])] = static_cast<std::int64_t>(i);
  return inverse;
}

/// [n, c, spatial...] to [n, spatial..., c].
Permutation to_channels_last(std::int64_t rank) {
  Permutation p{0};
  for (std::int64_t i = 2; i < rank; ++i) p.push_back(i);
  p.push_back(1);
  return p;
}

Shape permuted(const Shape& shape, const Permutation& p) {
  Shape result;
  for (std::int64_t i : p) result.push_back(shape[static_cast<std::size_t>(i)]);
  return result;
}

Var transposed(Builder& b, Var x, const Permutation& p) {
  const Node* producer = x.value->producer;
  if (is_made_by(x.value, ops::kTranspose)) {  // so that a pair of inverses vanishes at once
    Permutation composed;
    for (std::int64_t i : p) composed.push_back(producer->attributes.integers("permutation")[static_cast<std::size_t>(i)]);
    return b.transpose(b.wrap(producer->operands[0]), composed);
  }
  if (const auto number = splat_value(x.value)) return b.full({x.dtype(), permuted(x.shape(), p)}, *number);
  return b.transpose(x, p);
}

/// The permutation of a transpose back to channels first; null for any other value.
const Permutation* channels_first(const Value* value) {
  if (!value || !value->producer || value->producer->op != &ops::kTranspose || value->type.rank() < 3) return nullptr;
  const Permutation& p = value->producer->attributes.integers("permutation");
  return p == inverse_of(to_channels_last(value->type.rank())) ? &p : nullptr;
}

Replacement through_pointwise(Node& node, Builder& b) {
  const Permutation* first = nullptr;
  for (const Value* operand : node.operands)
    if (const Permutation* p = channels_first(operand)) first = p;
  if (!first) return std::nullopt;
  const Permutation last = inverse_of(*first), back = *first;
  std::vector<Var> operands;
  for (Value* operand : node.operands) operands.push_back(transposed(b, b.wrap(operand), last));
  return std::vector{b.transpose(b.apply(*node.op, operands, node.attributes), back).value};
}

/// A reduction of a transposed value reduces the value itself; where several axes stay, their order is put back.
Replacement through_reduce(Node& node, Builder& b) {
  const Permutation* first = channels_first(node.operands[0]);
  if (!first || node.op->reduction.of >= Reduction::Of::first_maximum) return std::nullopt;
  const auto& axes = node.attributes.integers("axes");
  Permutation moved, kept_before, kept_after;
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(first->size()); ++d) {
    const bool reduced = std::find(axes.begin(), axes.end(), d) != axes.end();
    (reduced ? moved : kept_before).push_back((*first)[static_cast<std::size_t>(d)]);
  }
  kept_after = kept_before;
  std::sort(kept_after.begin(), kept_after.end());
  Permutation back;
  for (std::int64_t d : kept_before) back.push_back(std::find(kept_after.begin(), kept_after.end(), d) - kept_after.begin());
  Var x = b.wrap(node.operands[0]->producer->operands[0]);
  return std::vector{b.transpose(b.reduce(*node.op, x, moved), back).value};
}

/// Windows keep their offsets last: [n, positions..., c, offsets...] goes back to [n, c, positions..., offsets...].
Permutation windows_first(std::int64_t rank, std::size_t spatial) {
  Permutation p = inverse_of(to_channels_last(rank));
  for (std::size_t i = 0; i < spatial; ++i) p.push_back(rank + static_cast<std::int64_t>(i));
  return p;
}

/// From channels first, for a value of that rank, of which so many dimensions are offsets within windows where it holds such.
Permutation to_channels_last(Layout layout, std::int64_t rank, std::int64_t offsets) {
  if (layout == Layout::image) return to_channels_last(rank);
  return inverse_of(windows_first(rank - offsets, static_cast<std::size_t>(offsets)));
}

/// Dimensions of a window; 0 for ops that have none.
std::int64_t window_rank(const Node& node) {
  const Attribute* kernel = node.attributes.find("kernel");
  return kernel ? static_cast<std::int64_t>(std::get<std::vector<std::int64_t>>(*kernel).size()) : 0;
}

/// An op on images computes channels last. A view does so only of what lies that way, since it moves nothing where it is read
/// through; what windows are taken of or added to has no dimensions but batch, channel and theirs.
Replacement channels_last(Node& node, Builder& b) {
  const Layouts& layouts = node.op->layouts;
  const std::int64_t offsets = window_rank(node);
  const Value* image = layouts.operands[0] == Layout::image ? node.operands[0] : node.result();
  if (with_defaults(*node.op, node.attributes).flag("channels_last")) return std::nullopt;
  if (node.op->kind == Kind::view && !channels_first(node.operands[0])) return std::nullopt;
  if (offsets > 0 && image->type.rank() != offsets + 2) return std::nullopt;
  Attributes attributes = node.attributes;
  attributes.set("channels_last", true);
  std::vector<Var> operands;
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    Var x = b.wrap(node.operands[i]);
    operands.push_back(
        layouts.operands[i] == Layout::fixed ? x : transposed(b, x, to_channels_last(layouts.operands[i], x.rank(), offsets)));
  }
  Var y = b.apply(*node.op, operands, attributes);
  if (layouts.result == Layout::fixed) return std::vector{y.value};
  return std::vector{b.transpose(y, inverse_of(to_channels_last(layouts.result, y.rank(), offsets))).value};
}

/// Whether the value is windows put back channels first, as through_window leaves them.
bool is_windows_first(const Value* value, std::size_t spatial) {
  return is_made_by(value, ops::kTranspose) && value->producer->attributes.integers("permutation") ==
                                                   windows_first(value->type.rank() - static_cast<std::int64_t>(spatial), spatial);
}

Replacement reduce_windows(Node& node, Builder& b) {
  const auto& axes = node.attributes.integers("axes");
  if (!is_windows_first(node.operands[0], axes.size()) || axes != ops::last_axes(node.operands[0]->type.rank(), axes.size()))
    return std::nullopt;
  Var reduced = b.reduce(*node.op, b.wrap(node.operands[0]->producer->operands[0]), axes);
  return std::vector{b.transpose(reduced, inverse_of(to_channels_last(reduced.rank()))).value};
}

/// A view that does the same at each index of all other dimensions, as concat does.
Replacement through_view_along_axis(Node& node, Builder& b) {
  const auto* first = channels_first(node.operands[0]);
  if (!first) return std::nullopt;
  const Permutation back = *first, last = inverse_of(back);
  std::vector<Var> operands;
  for (Value* operand : node.operands) operands.push_back(transposed(b, b.wrap(operand), last));
  Attributes attributes = node.attributes;
  attributes.set("axis", back[static_cast<std::size_t>(node.attributes.integer("axis"))]);
  return std::vector{b.transpose(b.apply(*node.op, operands, attributes), back).value};
}

Replacement move(Node& node, Builder& b) {
  if (node.op->layouts.any()) return channels_last(node, b);
  switch (node.op->kind) {
    case Kind::pointwise: return through_pointwise(node, b);
    case Kind::reduce: {
      Replacement made = reduce_windows(node, b);
      return made ? made : through_reduce(node, b);
    }
    case Kind::view: return node.attributes.find("axis") ? through_view_along_axis(node, b) : std::nullopt;
    case Kind::contract:
    case Kind::index:
    case Kind::constant:
    case Kind::scan:
    case Kind::random:
    case Kind::update:
    case Kind::collective:
    case Kind::barrier:
    case Kind::composite:
    case Kind::kernel: break;
  }
  return std::nullopt;
}

bool is_convolution(const Node& node) { return node.op->kind == Kind::contract && node.op->layouts.any(); }

}  // namespace

bool choose_layout(Graph& graph) {
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) { return is_convolution(*node); }))
    return false;
  const bool moved = rewrite(graph, move) > 0;
  return graph.remove_dead() > 0 || moved;
}

}  // namespace gcomp::passes
