#include "passes/simplify.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ir/base/hash.h"
#include "ir/interpret.h"
#include "ir/matrices.h"
#include "ir/ops/table.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;
using Integers = std::vector<std::int64_t>;
using Rewritten = Value*;  // null: the rule does not apply

Node& maker(const Node& node, std::size_t operand = 0) { return *node.operands[operand]->producer; }
bool is_full(const Value* value) { return is_made_by(value, ops::kFull); }
double value_of_full(const Value* value) { return value->producer->attributes.real("value"); }
bool is_full(const Value* value, double number) {
  return is_full(value) && std::bit_cast<std::uint64_t>(value_of_full(value)) == std::bit_cast<std::uint64_t>(number);
}
const Integers& list(const Node& node, std::string_view name) { return node.attributes.integers(name); }

Rewritten pointwise_of_numbers(Node& node, Builder& b) {
  const TensorType& type = node.result()->type;
  if (node.op->kind != Kind::pointwise || !(is_float(type.dtype) || type.dtype == DType::boolean)) return nullptr;
  std::vector<double> arguments;
  for (const Value* operand : node.operands) {
    if (!is_full(operand)) return nullptr;
    arguments.push_back(value_of_full(operand));
  }
  return b.full(type, node.op->scalar.reference(arguments)).value;
}

Rewritten view_of_number(Node& node, Builder& b) {
  const bool moves =
      node.op == &ops::kBroadcast || node.op == &ops::kReshape || node.op == &ops::kTranspose || node.op == &ops::kSlice;
  return moves && is_full(node.operands[0]) ? b.full(node.result()->type, value_of_full(node.operands[0])).value : nullptr;
}

Rewritten multiply_by_one(Node& node, Builder&) {
  if (node.op == &ops::kMul && is_full(node.operands[1], 1)) return node.operands[0];
  if (node.op == &ops::kMul && is_full(node.operands[0], 1)) return node.operands[1];
  return node.op == &ops::kDiv && is_full(node.operands[1], 1) ? node.operands[0] : nullptr;
}

Rewritten divide_by_power_of_two(Node& node, Builder& b) {
  if (node.op != &ops::kDiv || !is_full(node.operands[1]) || !is_float(node.result()->type.dtype)) return nullptr;
  const double divisor = value_of_full(node.operands[1]);
  int exponent = 0;
  if (!std::isfinite(divisor) || divisor == 0 || std::fabs(std::frexp(divisor, &exponent)) != 0.5 || std::abs(exponent) > 12)
    return nullptr;
  return (b.wrap(node.operands[0]) * (1 / divisor)).value;
}

Rewritten subtract_nothing(Node& node, Builder&) {
  return node.op == &ops::kSub && is_full(node.operands[1], 0) ? node.operands[0] : nullptr;
}

Rewritten double_negation(Node& node, Builder&) {
  const bool twice = (node.op == &ops::kNeg || node.op == &ops::kNot) && is_made_by(node.operands[0], *node.op);
  return twice ? maker(node).operands[0] : nullptr;
}

Rewritten select_known(Node& node, Builder&) {
  if (node.op != &ops::kSelect) return nullptr;
  if (node.operands[1] == node.operands[2]) return node.operands[1];
  return is_full(node.operands[0]) ? node.operands[value_of_full(node.operands[0]) != 0 ? 1 : 2] : nullptr;
}

Rewritten cast_to_same(Node& node, Builder&) {
  return node.op == &ops::kCast && node.operands[0]->type == node.result()->type ? node.operands[0] : nullptr;
}

/// Whether every value of `from` is one of `to`.
bool holds(DType to, DType from) {
  if (from == to || from == DType::boolean) return true;
  if (!is_float(from) || !is_float(to)) return false;
  return to == DType::f64 || (to == DType::f32 && from != DType::f64);
}

Rewritten cast_of_widening(Node& node, Builder& b) {
  if (node.op != &ops::kCast || !is_made_by(node.operands[0], ops::kCast)) return nullptr;
  Value* source = maker(node).operands[0];
  if (!holds(node.operands[0]->type.dtype, source->type.dtype)) return nullptr;
  return b.cast(b.wrap(source), node.result()->type.dtype).value;
}

Rewritten reshape_chain(Node& node, Builder& b) {
  if (node.op != &ops::kReshape) return nullptr;
  if (node.operands[0]->type == node.result()->type) return node.operands[0];
  return is_made_by(node.operands[0], ops::kReshape) ? b.reshape(b.wrap(maker(node).operands[0]), node.result()->type.shape).value
                                                     : nullptr;
}

Rewritten transpose_chain(Node& node, Builder& b) {
  if (node.op != &ops::kTranspose || !is_made_by(node.operands[0], ops::kTranspose)) return nullptr;
  const Integers &outer = list(node, "permutation"), &inner = list(maker(node), "permutation");
  Integers composed;
  for (std::int64_t i : outer) composed.push_back(inner[static_cast<std::size_t>(i)]);
  return b.transpose(b.wrap(maker(node).operands[0]), composed).value;
}

Rewritten transpose_of_ones(Node& node, Builder& b) {
  if (node.op != &ops::kTranspose) return nullptr;
  std::int64_t last = -1;
  for (std::int64_t i : list(node, "permutation")) {
    if (node.operands[0]->type.shape[static_cast<std::size_t>(i)] == 1) continue;
    if (i < last) return nullptr;
    last = i;
  }
  return b.reshape(b.wrap(node.operands[0]), node.result()->type.shape).value;
}

Rewritten broadcast_chain(Node& node, Builder& b) {
  if (node.op != &ops::kBroadcast) return nullptr;
  if (node.operands[0]->type == node.result()->type) return node.operands[0];
  if (!is_made_by(node.operands[0], ops::kBroadcast)) return nullptr;
  Integers axes;
  for (std::int64_t i : list(maker(node), "axes")) axes.push_back(list(node, "axes")[static_cast<std::size_t>(i)]);
  return b.broadcast(b.wrap(maker(node).operands[0]), node.result()->type.shape, axes).value;
}

Rewritten whole_slice(Node& node, Builder&) {
  if (node.op != &ops::kSlice || node.operands[0]->type != node.result()->type) return nullptr;
  const Integers& steps = list(node, "steps");
  return std::all_of(steps.begin(), steps.end(), [](std::int64_t s) { return s == 1; }) ? node.operands[0] : nullptr;
}

Rewritten concat_of_one(Node& node, Builder&) {
  return node.op == &ops::kConcat && node.operands.size() == 1 ? node.operands[0] : nullptr;
}

Rewritten reduce_of_ones(Node& node, Builder& b) {
  if (node.op->kind != Kind::reduce || node.op->reduction.of >= Reduction::Of::first_maximum) return nullptr;
  for (std::int64_t a : list(node, "axes"))
    if (node.operands[0]->type.shape[static_cast<std::size_t>(a)] != 1) return nullptr;
  return b.reshape(b.wrap(node.operands[0]), node.result()->type.shape).value;
}

/// Whether the node is a transpose that swaps the last two axes and nothing else.
bool swaps_last(const Value* value) {
  if (!is_made_by(value, ops::kTranspose)) return false;
  Integers wanted = list(*value->producer, "permutation");
  const std::size_t r = wanted.size();
  if (r < 2) return false;
  std::swap(wanted[r - 1], wanted[r - 2]);
  for (std::size_t i = 0; i < r; ++i)
    if (wanted[i] != static_cast<std::int64_t>(i)) return false;
  return true;
}

Rewritten matmul_of_transpose(Node& node, Builder& b) {
  if (node.op != &ops::kMatmul || has_views(node.attributes) || !(swaps_last(node.operands[0]) || swaps_last(node.operands[1])))
    return nullptr;
  const Attributes all = with_defaults(*node.op, node.attributes);
  Var operands[2];
  bool flags[2] = {all.flag("transpose_a"), all.flag("transpose_b")};
  for (std::size_t i = 0; i < 2; ++i) {
    const bool swapped = swaps_last(node.operands[i]);
    operands[i] = b.wrap(swapped ? maker(node, i).operands[0] : node.operands[i]);
    flags[i] = flags[i] != swapped;
  }
  return b.matmul(operands[0], operands[1], flags[0], flags[1]).value;
}

/// One part of a sum that is zero outside a range of one axis.
struct PlacedSlice {
  Value* part;
  std::int64_t start, size;
};

/// The parts of a tree of sums of unslices along one axis, or nothing.
bool collect_placed(Value* value, std::int64_t& axis, std::vector<PlacedSlice>& parts, int depth) {
  constexpr std::size_t kMostParts = 1024;  // a value added to itself again and again has any number
  if (depth > 64 || parts.size() > kMostParts) return false;
  if (is_made_by(value, ops::kAdd))
    return collect_placed(value->producer->operands[0], axis, parts, depth + 1) &&
           collect_placed(value->producer->operands[1], axis, parts, depth + 1);
  if (!is_made_by(value, ops::kUnslice)) return false;
  const Node& node = *value->producer;
  const Shape &from = node.operands[0]->type.shape, &to = value->type.shape;
  for (std::size_t d = 0; d < to.size(); ++d) {
    if (list(node, "steps")[d] != 1) return false;
    if (from[d] == to[d]) continue;
    if (axis >= 0 && axis != static_cast<std::int64_t>(d)) return false;
    axis = static_cast<std::int64_t>(d);
  }
  if (axis < 0) return false;
  parts.push_back({node.operands[0], list(node, "starts")[static_cast<std::size_t>(axis)], from[static_cast<std::size_t>(axis)]});
  return true;
}

Rewritten sum_of_placed(Node& node, Builder& b) {
  if (node.op != &ops::kAdd) return nullptr;
  std::int64_t axis = -1;
  std::vector<PlacedSlice> parts;
  if (!collect_placed(node.operands[0], axis, parts, 0) || !collect_placed(node.operands[1], axis, parts, 0)) return nullptr;
  std::sort(parts.begin(), parts.end(), [](const PlacedSlice& x, const PlacedSlice& y) { return x.start < y.start; });
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

struct Rule {
  SimplifyRule info;
  Rewritten (*apply)(Node&, Builder&);
};

constexpr Rule kRules[] = {
    {{"pointwise_of_numbers", "f(full a, full b) -> full f(a, b)"}, pointwise_of_numbers},
    {{"view_of_number", "view(full a) -> full a"}, view_of_number},
    {{"multiply_by_one", "x * 1, x / 1 -> x"}, multiply_by_one},
    {{"divide_by_power_of_two", "x / 2^k -> x * 2^-k"}, divide_by_power_of_two},
    {{"subtract_nothing", "x - 0 -> x"}, subtract_nothing},
    {{"double_negation", "neg(neg x), not(not x) -> x"}, double_negation},
    {{"select_known", "select(true, x, y) -> x; select(c, x, x) -> x"}, select_known},
    {{"cast_to_same", "cast x to its own dtype -> x"}, cast_to_same},
    {{"cast_of_widening", "cast(cast x), where the inner one loses nothing -> cast x"}, cast_of_widening},
    {{"reshape_chain", "reshape(reshape x) -> reshape x; reshape to the same shape -> x"}, reshape_chain},
    {{"transpose_chain", "transpose(transpose x) -> transpose x"}, transpose_chain},
    {{"transpose_of_ones", "a transpose that moves only axes of size 1 -> reshape"}, transpose_of_ones},
    {{"broadcast_chain", "broadcast(broadcast x) -> broadcast x"}, broadcast_chain},
    {{"whole_slice", "a slice of everything -> x"}, whole_slice},
    {{"concat_of_one", "concat(x) -> x"}, concat_of_one},
    {{"reduce_of_ones", "a reduction over axes of size 1 -> reshape"}, reduce_of_ones},
    {{"matmul_of_transpose", "matmul(transpose a, b) -> matmul(a, b) {transpose_a}"}, matmul_of_transpose},
    {{"sum_of_placed", "unslice(a) + unslice(b), side by side -> concat(a, b)"}, sum_of_placed},
};

/// By the first rule that applies; null where none does.
Rewritten by_rule(Node& node, Builder& b, const SimplifyOptions& options) {
  if (node.results.size() != 1) return nullptr;
  for (const Rule& rule : kRules) {
    Value* made = rule.apply(node, b);
    if (!made) continue;
    if (options.observer) options.observer(rule.info);
    return made;
  }
  return nullptr;
}

/// Nodes on dense constants and numbers alone become constants.
std::optional<std::vector<Value*>> fold(Node& node, Builder& b, const SimplifyOptions& options) {
  bool dense = false;
  for (const Value* operand : node.operands) {
    if (!operand || !operand->producer || operand->producer->op->kind != Kind::constant) return std::nullopt;
    dense = dense || is_made_by(operand, ops::kConstant);
  }
  if (!dense || node.op->kind == Kind::update || node.results.empty()) return std::nullopt;
  for (const Value* result : node.results)
    if (result->type.bytes() > options.fold_bytes) return std::nullopt;
  std::vector<Tensor> values;
  std::vector<const Tensor*> pointers;
  for (const Value* operand : node.operands) values.push_back(evaluate(*operand->producer, {})[0]);
  for (const Tensor& value : values) pointers.push_back(&value);
  std::vector<Value*> results;
  for (Tensor& made : evaluate(node, pointers)) results.push_back(b.constant(std::move(made)).value);
  return results;
}

bool equal_nodes(const Node& a, const Node& b) {
  return a.op == b.op && a.operands == b.operands && a.attributes == b.attributes && !a.nest && !b.nest;
}

}  // namespace

std::span<const SimplifyRule> simplify_rules() {
  static const auto kInfos = [] {
    std::vector<SimplifyRule> infos;
    for (const Rule& rule : kRules) infos.push_back(rule.info);
    return infos;
  }();
  return kInfos;
}

bool eliminate_common_subexpressions(Graph& graph) {
  std::unordered_multimap<std::size_t, const Node*> seen;
  return rewrite(graph, [&](Node& node, Builder&) -> std::optional<std::vector<Value*>> {
           if (node.op->kind == Kind::update || node.op->kind == Kind::random || node.op->kind == Kind::collective || node.nest)
             return std::nullopt;
           std::size_t key = hash_combine(std::hash<const OpDef*>{}(node.op), node.attributes.hash());
           for (const Value* operand : node.operands) key = hash_combine(key, std::hash<const Value*>{}(operand));
           for (auto [it, end] = seen.equal_range(key); it != end; ++it)
             if (equal_nodes(*it->second, node)) return it->second->results;
           seen.emplace(key, &node);
           return std::nullopt;
         }) > 0;
}

bool simplify(Graph& graph, const SimplifyOptions& options) {
  bool any = false;
  for (bool changed = true; changed;) {
    changed = rewrite(graph, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
                if (Value* made = by_rule(node, b, options)) return std::vector{made};
                return fold(node, b, options);
              }) > 0;
    changed = eliminate_common_subexpressions(graph) || changed;
    changed = graph.remove_dead() > 0 || changed;
    any = any || changed;
  }
  return any;
}

}  // namespace gcomp::passes
