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
  if (is_made_by(x.value, ops::kFull)) return b.full({x.dtype(), permuted(x.shape(), p)}, producer->attributes.real("value"));
  return b.transpose(x, p);
}

Replacement convolution_channels_last(Node& node, Builder& b) {
  const Attributes all = with_defaults(*node.op, node.attributes);
  if (all.flag("channels_last")) return std::nullopt;
  Attributes attributes = node.attributes;
  attributes.set("channels_last", true);
  const Permutation last = to_channels_last(node.operands[0]->type.rank());
  auto image = [&](std::size_t i) { return transposed(b, b.wrap(node.operands[i]), last); };
  auto weight = b.wrap(node.operands[1]);
  if (node.op == &ops::kConvolutionWeightGradient) return std::vector{b.apply(*node.op, {image(0), image(1)}, attributes).value};
  return std::vector{b.transpose(b.apply(*node.op, {image(0), weight}, attributes), inverse_of(last)).value};
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

Replacement through_window(Node& node, Builder& b) {
  const std::int64_t rank = node.operands[0]->type.rank();
  const std::size_t spatial = node.attributes.integers("kernel").size();
  if (!channels_first(node.operands[0]) || static_cast<std::int64_t>(spatial) != rank - 2) return std::nullopt;
  Attributes attributes = node.attributes;
  attributes.set("channels_last", true);
  Var x = b.wrap(node.operands[0]->producer->operands[0]);
  return std::vector{b.transpose(b.apply(ops::kWindow, {x}, attributes), windows_first(rank, spatial)).value};
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

/// The sum over windows writes channels last where its readers are images in that layout anyway; its operand is computed in place.
Replacement sum_windows(Node& node, Builder& b) {
  const std::size_t spatial = node.attributes.integers("kernel").size();
  const std::int64_t rank = node.result()->type.rank();
  if (with_defaults(*node.op, node.attributes).flag("channels_last") || static_cast<std::int64_t>(spatial) != rank - 2)
    return std::nullopt;
  Attributes attributes = node.attributes;
  attributes.set("channels_last", true);
  Var windows = transposed(b, b.wrap(node.operands[0]), inverse_of(windows_first(rank, spatial)));
  return std::vector{b.transpose(b.apply(ops::kWindowSum, {windows}, attributes), inverse_of(to_channels_last(rank))).value};
}

Replacement through_concat(Node& node, Builder& b) {
  const auto* first = channels_first(node.operands[0]);
  if (!first) return std::nullopt;
  const Permutation back = *first, last = inverse_of(back);
  std::vector<Var> operands;
  for (Value* operand : node.operands) operands.push_back(transposed(b, b.wrap(operand), last));
  const std::int64_t axis = back[static_cast<std::size_t>(node.attributes.integer("axis"))];
  return std::vector{b.transpose(b.concat(operands, axis), back).value};
}

Replacement move(Node& node, Builder& b) {
  switch (node.op->kind) {
    case Kind::contract: return node.op == &ops::kMatmul ? std::nullopt : convolution_channels_last(node, b);
    case Kind::pointwise: return through_pointwise(node, b);
    case Kind::reduce: {
      Replacement made = reduce_windows(node, b);
      return made ? made : through_reduce(node, b);
    }
    case Kind::view:
      if (node.op == &ops::kWindow) return through_window(node, b);
      return node.op == &ops::kConcat ? through_concat(node, b) : std::nullopt;
    case Kind::index: return node.op == &ops::kWindowSum ? sum_windows(node, b) : std::nullopt;
    case Kind::constant:
    case Kind::scan:
    case Kind::random:
    case Kind::update:
    case Kind::collective:
    case Kind::composite:
    case Kind::kernel: break;
  }
  return std::nullopt;
}

bool is_convolution(const Node& node) { return node.op->kind == Kind::contract && node.op != &ops::kMatmul; }

}  // namespace

bool choose_layout(Graph& graph) {
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) { return is_convolution(*node); }))
    return false;
  const bool moved = rewrite(graph, move) > 0;
  graph.remove_dead();
  return moved;
}

}  // namespace gcomp::passes
