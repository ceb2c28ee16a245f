// The algebra of single ops: rewrites that `simplify` tries on each node of the op whose definition names them. All are IEEE-exact.
// What follows from a fact of OpDef (an identity, an involution, a view without fill) needs no rule here.
#pragma once

#include <algorithm>
#include <cmath>

#include "ir/builder.h"
#include "ir/matrices.h"
#include "ir/op.h"
#include "ir/ops/table.h"

namespace gcomp::ir::ops {

inline Node& producer_of(const Node& node, std::size_t operand = 0) { return *node.operands[operand]->producer; }
inline const std::vector<std::int64_t>& integers_of(const Node& node, std::string_view name) {
  return node.attributes.integers(name);
}

// Arithmetic and choice.

inline Value* divide_by_power_of_two(Node& node, Builder& b) {
  const std::optional<double> divisor = splat_value(node.operands[1]);
  if (!divisor || !is_float(node.result()->type.dtype)) return nullptr;
  int exponent = 0;
  if (!std::isfinite(*divisor) || *divisor == 0 || std::fabs(std::frexp(*divisor, &exponent)) != 0.5 || std::abs(exponent) > 12)
    return nullptr;
  return (b.wrap(node.operands[0]) * (1 / *divisor)).value;
}
inline constexpr SimplifyRule kDivRules[] = {{"divide_by_power_of_two", "x / 2^k -> x * 2^-k", divide_by_power_of_two}};

inline Value* select_known(Node& node, Builder&) {
  if (node.operands[1] == node.operands[2]) return node.operands[1];
  const std::optional<double> condition = splat_value(node.operands[0]);
  return condition ? node.operands[*condition != 0 ? 1 : 2] : nullptr;
}
inline constexpr SimplifyRule kSelectRules[] = {{"select_known", "select(true, x, y) -> x; select(c, x, x) -> x", select_known}};

inline Value* cast_to_same(Node& node, Builder&) {
  return node.operands[0]->type == node.result()->type ? node.operands[0] : nullptr;
}
/// Whether every value of `from` is one of `to`.
inline bool holds_all_of(DType to, DType from) {
  if (from == to || from == DType::boolean) return true;
  if (!is_float(from) || !is_float(to)) return false;
  return to == DType::f64 || (to == DType::f32 && from != DType::f64);
}
inline Value* cast_of_widening(Node& node, Builder& b) {
  if (!is_made_by(node.operands[0], kCast)) return nullptr;
  Value* source = producer_of(node).operands[0];
  if (!holds_all_of(node.operands[0]->type.dtype, source->type.dtype)) return nullptr;
  return b.cast(b.wrap(source), node.result()->type.dtype).value;
}
inline constexpr SimplifyRule kCastRules[] = {
    {"cast_to_same", "cast x to its own dtype -> x", cast_to_same},
    {"cast_of_widening", "cast(cast x), where the inner one loses nothing -> cast x", cast_of_widening}};

// Views.

inline Value* reshape_chain(Node& node, Builder& b) {
  if (node.operands[0]->type == node.result()->type) return node.operands[0];
  return is_made_by(node.operands[0], kReshape) ? b.reshape(b.wrap(producer_of(node).operands[0]), node.result()->type.shape).value
                                                : nullptr;
}
inline constexpr SimplifyRule kReshapeRules[] = {
    {"reshape_chain", "reshape(reshape x) -> reshape x; reshape to the same shape -> x", reshape_chain}};

inline Value* transpose_chain(Node& node, Builder& b) {
  if (!is_made_by(node.operands[0], kTranspose)) return nullptr;
  std::vector<std::int64_t> composed;
  for (std::int64_t i : integers_of(node, "permutation"))
    composed.push_back(integers_of(producer_of(node), "permutation")[static_cast<std::size_t>(i)]);
  return b.transpose(b.wrap(producer_of(node).operands[0]), composed).value;
}
inline Value* transpose_of_ones(Node& node, Builder& b) {
  std::int64_t last = -1;
  for (std::int64_t i : integers_of(node, "permutation")) {
    if (node.operands[0]->type.shape[static_cast<std::size_t>(i)] == 1) continue;
    if (i < last) return nullptr;
    last = i;
  }
  return b.reshape(b.wrap(node.operands[0]), node.result()->type.shape).value;
}
inline constexpr SimplifyRule kTransposeRules[] = {
    {"transpose_chain", "transpose(transpose x) -> transpose x", transpose_chain},
    {"transpose_of_ones", "a transpose that moves only axes of size 1 -> reshape", transpose_of_ones}};

inline Value* broadcast_chain(Node& node, Builder& b) {
  if (node.operands[0]->type == node.result()->type) return node.operands[0];
  if (!is_made_by(node.operands[0], kBroadcast)) return nullptr;
  std::vector<std::int64_t> axes;
  for (std::int64_t i : integers_of(producer_of(node), "axes"))
    axes.push_back(integers_of(node, "axes")[static_cast<std::size_t>(i)]);
  return b.broadcast(b.wrap(producer_of(node).operands[0]), node.result()->type.shape, axes).value;
}
inline constexpr SimplifyRule kBroadcastRules[] = {{"broadcast_chain", "broadcast(broadcast x) -> broadcast x", broadcast_chain}};

inline Value* full_slice(Node& node, Builder&) {
  if (node.operands[0]->type != node.result()->type) return nullptr;
  return std::ranges::all_of(integers_of(node, "steps"), [](std::int64_t s) { return s == 1; }) ? node.operands[0] : nullptr;
}
inline constexpr SimplifyRule kSliceRules[] = {{"full_slice", "a slice of everything -> x", full_slice}};

inline Value* concat_of_one(Node& node, Builder&) { return node.operands.size() == 1 ? node.operands[0] : nullptr; }
inline constexpr SimplifyRule kConcatRules[] = {{"concat_of_one", "concat(x) -> x", concat_of_one}};

/// One part of a sum that is zero outside a range of one axis.
struct PlacedSlice {
  Value* part;
  std::int64_t start, size;
};

/// The parts of a tree of sums of unslices along one axis, or nothing.
inline bool collect_placed(Value* value, std::int64_t& axis, std::vector<PlacedSlice>& parts, int depth) {
  constexpr std::size_t kMostParts = 1024;  // a value added to itself again and again has any number
  if (depth > 64 || parts.size() > kMostParts) return false;
  if (is_made_by(value, kAdd))
    return collect_placed(value->producer->operands[0], axis, parts, depth + 1) &&
           collect_placed(value->producer->operands[1], axis, parts, depth + 1);
  if (!is_made_by(value, kUnslice)) return false;
  const Node& node = *value->producer;
  const Shape &from = node.operands[0]->type.shape, &to = value->type.shape;
  for (std::size_t d = 0; d < to.size(); ++d) {
    if (integers_of(node, "steps")[d] != 1) return false;
    if (from[d] == to[d]) continue;
    if (axis >= 0 && axis != static_cast<std::int64_t>(d)) return false;
    axis = static_cast<std::int64_t>(d);
  }
  if (axis < 0) return false;
  parts.push_back(
      {node.operands[0], integers_of(node, "starts")[static_cast<std::size_t>(axis)], from[static_cast<std::size_t>(axis)]});
  return true;
}
inline Value* sum_of_placed(Node& node, Builder& b) {
  std::int64_t axis = -1;
  std::vector<PlacedSlice> parts;
  if (!collect_placed(node.operands[0], axis, parts, 0) || !collect_placed(node.operands[1], axis, parts, 0)) return nullptr;
  std::ranges::sort(parts, {}, &PlacedSlice::start);
  std::int64_t end = 0;
  std::vector<Var> pieces;
  for (const PlacedSlice& p : parts) {
    if (p.start != end) return nullptr;  // a gap or an overlap
    end += p.size;
    pieces.push_back(b.wrap(p.part));
  }
  if (end != node.result()->type.shape[static_cast<std::size_t>(axis)]) return nullptr;
  return b.concat(pieces, axis).value;
}
inline constexpr SimplifyRule kAddRules[] = {
    {"sum_of_placed", "unslice(a) + unslice(b), side by side -> concat(a, b)", sum_of_placed}};

// Matrix products.

inline Value* matmul_of_transpose(Node& node, Builder& b) {
  if (has_views(node.attributes) || (!swaps_last(node.operands[0]) && !swaps_last(node.operands[1]))) return nullptr;
  const Attributes all = with_defaults(*node.op, node.attributes);
  Var operands[2];
  bool flags[2] = {all.flag("transpose_a"), all.flag("transpose_b")};
  for (std::size_t i = 0; i < 2; ++i) {
    const bool swapped = swaps_last(node.operands[i]);
    operands[i] = b.wrap(swapped ? producer_of(node, i).operands[0] : node.operands[i]);
    flags[i] = flags[i] != swapped;
  }
  return b.matmul(operands[0], operands[1], flags[0], flags[1]).value;
}
inline constexpr SimplifyRule kMatmulRules[] = {
    {"matmul_of_transpose", "matmul(transpose a, b) -> matmul(a, b) {transpose_a}", matmul_of_transpose}};

}  // namespace gcomp::ir::ops
