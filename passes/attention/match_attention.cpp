#include "passes/attention/match_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "ir/ops/table.h"
#include "ir/packed_bits.h"
#include "ir/rewrite.h"
#include "passes/attention/attention_mask.h"

namespace gcomp::passes {
namespace {

using namespace ir;

Value* operand(const Value* value, std::size_t i) { return value->producer->operands[i]; }

/// The number that every element is; none where they differ or are not known.
std::optional<double> number_of(const Value* value) {
  while (is_made_by(value, ops::kBroadcast) || is_made_by(value, ops::kReshape) || is_made_by(value, ops::kCast))
    value = operand(value, 0);
  if (is_made_by(value, ops::kFull)) return value->producer->attributes.real("value");
  if (!is_made_by(value, ops::kConstant) || value->type.elements() != 1) return std::nullopt;
  return value->producer->attributes.get<std::shared_ptr<const Tensor>>("value")->at(0);
}

bool is_scale(const Value* value) { return is_made_by(value, ops::kMul) || is_made_by(value, ops::kDiv); }

/// A value times a number.
struct Scaled {
  Value* value = nullptr;
  double factor = 1;
};
/// What a product with one number, or a quotient by one, scales; nothing for any other value.
std::optional<Scaled> scaled(const Value* value) {
  if (!is_scale(value)) return std::nullopt;
  const bool divides = is_made_by(value, ops::kDiv);
  for (std::size_t side : {std::size_t{1}, std::size_t{0}}) {
    const std::optional<double> number = number_of(operand(value, side));
    if (!number || (divides && (side == 0 || *number == 0))) continue;
    return Scaled{operand(value, 1 - side), divides ? 1 / *number : *number};
  }
  return std::nullopt;
}

/// What stands between the product of q and k and the softmax, found from the softmax downwards.
struct Scores {
  Node* product = nullptr;
  double scale = 1, hidden = -std::numeric_limits<double>::infinity();
  Value* mask = nullptr;  ///< narrowed, bool or added
  bool causal = false;
  const Value *condition = nullptr, *bias = nullptr;  ///< as they stand in the graph: what selects scores, and what is added
  bool selects_open = true;                           ///< the condition holds where a score is seen, and -inf stands elsewhere
};

/// What the softmax's probabilities pass through on their way to v.
struct Probabilities {
  Node* softmax = nullptr;
  Value* kept = nullptr;  ///< bool: what dropout keeps
  double dropout = 0;
  bool closed_rows_are_zero = false;
  const Value* closed = nullptr;  ///< the guard's rows without any key, where the graph computes them
};

class Matcher {
 public:
  Matcher(Graph& graph, const std::function<bool(const Node&)>& legal)
      : graph_(graph), legal_(legal), uses_(uses_of(graph)), masks_(graph) {
    for (const Value* output : graph.outputs()) outputs_.insert(output);
  }

  std::optional<std::vector<Value*>> match(Node& node, Builder& b) {
    if (node.op != &ops::kMatmul || with_defaults(*node.op, node.attributes).flag("transpose_a")) return std::nullopt;
    builder_ = &b;
    const Probabilities p = probabilities_of(node.operands[0]);
    if (!p.softmax || p.softmax->attributes.integer("axis") != p.softmax->result()->type.rank() - 1) return std::nullopt;
    Scores s;
    Value* scores = p.softmax->operands[0];
    if (p.closed && !(scores = unguarded(scores, p.closed))) return std::nullopt;
    if (!find_product(scores, p.softmax->result()->type.shape, s)) return std::nullopt;
    if (p.closed && !closes_by(p.closed, s)) return std::nullopt;
    return attention(node, p, s);
  }

 private:
  /// Read by one node alone, once or, of a guard, `times`.
  bool is_inner(const Value* value, std::size_t times = 1) const {
    auto it = uses_.find(value);
    return it != uses_.end() && it->second.size() == times && !outputs_.count(value);
  }

  /// Whether a value is another one with the batch in other dimensions, or in a float dtype that attention computes in.
  static bool is_passage(const Value* value) {
    if (is_made_by(value, ops::kCast)) return is_float(value->type.dtype) && is_float(operand(value, 0)->type.dtype);
    if (!is_made_by(value, ops::kReshape)) return false;
    const Shape &to = value->type.shape, &from = operand(value, 0)->type.shape;
    return to.size() >= 2 && from.size() >= 2 && std::equal(to.end() - 2, to.end(), from.end() - 2);
  }
  /// Goes down through such values while nothing else reads them; null where something does.
  Value* passed(Value* value) const {
    while (is_passage(value)) {
      if (!is_inner(value)) return nullptr;
      value = operand(value, 0);
    }
    return value;
  }

  /// Goes below the dropout of a value, select(ratio <= random_uniform, value / (1 - ratio), 0), and notes it; null for another use
  /// of such a select.
  Value* undropped(Value* value, Probabilities& p) const {
    if (!is_made_by(value, ops::kSelect) || !is_made_by(operand(value, 0), ops::kLessEqual)) return value;
    Value* condition = operand(value, 0);
    const std::optional<double> ratio = number_of(operand(condition, 0));
    if (!ratio || !is_made_by(operand(condition, 1), ops::kRandomUniform)) return value;
    const std::optional<Scaled> kept = scaled(operand(value, 1));
    constexpr double kRounded = 1e-2;  // of the factor, to 16 bits
    if (!(*ratio > 0 && *ratio < 1) || !kept || std::abs(kept->factor * (1 - *ratio) - 1) > kRounded ||
        number_of(operand(value, 2)) != 0.0 || !is_inner(value) || !is_inner(operand(value, 1)))
      return nullptr;
    p.kept = condition;
    p.dropout = *ratio;
    return passed(kept->value);
  }

  /// From the left operand of the product with v down to the softmax.
  Probabilities probabilities_of(Value* value) const {
    Probabilities p;
    if (!(value = passed(value)) || !(value = undropped(value, p))) return p;
    std::size_t readers = 1;
    if (is_made_by(value, ops::kSelect) && number_of(operand(value, 1)) == 0.0) {
      const Value* condition = operand(value, 0);
      if (!is_inner(value)) return p;
      p.closed_rows_are_zero = true;
      if (is_made_by(condition, ops::kIsNan)) {
        if (operand(condition, 0) != operand(value, 2) || !is_inner(condition)) return p;
        readers = 2;
      } else {
        p.closed = condition;
      }
      value = operand(value, 2);
      if (readers == 1 && !(value = passed(value))) return p;
    }
    if (is_made_by(value, ops::kSoftmax) && is_inner(value, readers)) p.softmax = value->producer;
    return p;
  }

  /// select(closed, 0, scores) -> scores.
  Value* unguarded(Value* value, const Value* closed) const {
    const bool guards =
        is_made_by(value, ops::kSelect) && operand(value, 0) == closed && number_of(operand(value, 1)) == 0.0 && is_inner(value);
    return guards ? operand(value, 2) : nullptr;
  }
  /// Whether `closed` is what the ONNX operator's lowering makes: rows in which select(open, 1, 0) has no 1, where `open` is what
  /// the masks found leave open.
  bool closes_by(const Value* closed, const Scores& s) const {
    if (!is_made_by(closed, ops::kBroadcast) || !is_made_by(operand(closed, 0), ops::kEqual)) return false;
    const Value* equal = operand(closed, 0);
    if (number_of(operand(equal, 1)) != 0.0 || !is_made_by(operand(equal, 0), ops::kReduceMax)) return false;
    const Value *best = operand(equal, 0), *counted = operand(best, 0);
    const std::int64_t last = counted->type.rank() - 1;
    const std::vector<std::int64_t>&axes = best->producer->attributes.integers("axes"),
          &kept = closed->producer->attributes.integers("axes");
    if (axes != std::vector<std::int64_t>{last} || static_cast<std::int64_t>(kept.size()) != last || kept.back() != last - 1 ||
        !is_made_by(counted, ops::kSelect) || number_of(operand(counted, 1)) != 1.0 || number_of(operand(counted, 2)) != 0.0)
      return false;
    return s.selects_open && opens_by(operand(counted, 0), s);
  }
  /// The condition of the select, not(bias == -inf) of what is added, or both.
  static bool opens_by(const Value* open, const Scores& s) {
    const auto by_bias = [&](const Value* value) {
      return s.bias && is_made_by(value, ops::kNot) && is_made_by(operand(value, 0), ops::kEqual) &&
             operand(operand(value, 0), 0) == s.bias &&
             number_of(operand(operand(value, 0), 1)) == -std::numeric_limits<double>::infinity();
    };
    if (!s.bias) return open == s.condition;
    if (!s.condition) return by_bias(open);
    return is_made_by(open, ops::kAnd) && operand(open, 0) == s.condition && by_bias(operand(open, 1));
  }

  /// From `value` down to the product of q and k, along values that nothing else reads. Of a sum, either side may be the mask.
  bool find_product(Value* value, const Shape& shape, Scores& s) {
    value = passed(value);
    if (!value || !is_inner(value)) return false;
    if (is_made_by(value, ops::kMatmul)) {
      s.product = value->producer;
      return true;
    }
    if (is_scale(value)) {
      const std::optional<Scaled> found = scaled(value);
      // What is masked below would be scaled after: there may only be more scales.
      Value* below = found ? passed(found->value) : nullptr;
      if (!below || !(is_scale(below) || is_made_by(below, ops::kMatmul)) || !find_product(below, shape, s)) return false;
      s.scale *= found->factor;
      return true;
    }
    if (is_made_by(value, ops::kAdd)) {
      for (std::size_t side : {std::size_t{1}, std::size_t{0}}) {
        Scores with = s;
        if (value->type.shape != shape || !add_mask(operand(value, side), with) ||
            !find_product(operand(value, 1 - side), shape, with))
          continue;
        s = with;
        return true;
      }
      return false;
    }
    if (is_made_by(value, ops::kSelect)) {
      for (std::size_t side : {std::size_t{2}, std::size_t{1}}) {
        const std::optional<double> number = number_of(operand(value, side));
        if (!number || *number > kHidden) continue;
        Scores with = s;
        if (value->type.shape != shape || !select_mask(operand(value, 0), side == 1, *number, with) ||
            !find_product(operand(value, 3 - side), shape, with))
          continue;
        s = with;
        return true;
      }
    }
    return false;
  }
  /// Takes one more mask, narrowed; false where the two together cannot be said: hidden by both must be hidden by either.
  static bool join(Value* mask, bool causal, Scores& s) {
    if ((s.mask || s.causal) && (s.hidden != -std::numeric_limits<double>::infinity() || (mask && s.mask) || (causal && s.causal)))
      return false;
    s.causal = s.causal || causal;
    if (mask) s.mask = mask;
    return true;
  }

  MaskAnalysis::Content content_of(const Value* narrow, const Value* mask) {
    const Shape& shape = mask->type.shape;
    return masks_.content_of(narrow, shape[shape.size() - 2], shape.back());
  }

  bool add_mask(Value* mask, Scores& s) {
    if (!is_float(mask->type.dtype) || s.bias || masks_.is_trained(mask)) return false;
    s.bias = mask;
    Value* narrow = masks_.narrowed(*builder_, mask).value;
    const bool second = s.mask || s.causal;
    switch (content_of(narrow, mask)) {
      case MaskAnalysis::Content::open: return true;
      case MaskAnalysis::Content::causal:
        s.hidden = kHidden;  // it may hide with less than -inf: alone then
        return !second && (s.causal = true);
      case MaskAnalysis::Content::unknown: return join(narrow, false, s);
    }
    return false;
  }

  bool select_mask(Value* condition, bool inverted, double hidden, Scores& s) {
    if (s.condition || masks_.is_trained(condition)) return false;
    s.condition = condition;
    s.selects_open = !inverted && hidden == -std::numeric_limits<double>::infinity();
    Var narrow = masks_.narrowed(*builder_, condition);
    if (inverted) narrow = builder_->apply(ops::kNot, {narrow});
    const MaskAnalysis::Content content = content_of(narrow.value, condition);
    if (content == MaskAnalysis::Content::open) return true;
    if ((s.mask || s.causal) && hidden != -std::numeric_limits<double>::infinity()) return false;
    if (!s.mask && !s.causal) s.hidden = hidden;
    return content == MaskAnalysis::Content::causal ? join(nullptr, true, s) : join(narrow.value, false, s);
  }

  /// q or k below the scales that it was given before the product.
  static Value* unscaled(Value* value, double& scale) {
    while (const std::optional<Scaled> found = scaled(value)) {
      scale *= found->factor;
      value = found->value;
    }
    return value;
  }

  Var with_batch(Var x, const Shape& shape) {
    Shape wanted(shape.begin(), shape.end() - 2);
    wanted.insert(wanted.end(), x.shape().end() - 2, x.shape().end());
    return builder_->reshape(x, wanted);
  }

  std::optional<std::vector<Value*>> attention(Node& node, const Probabilities& p, const Scores& s) {
    Builder& b = *builder_;
    const Shape& shape = p.softmax->result()->type.shape;
    const Attributes product = with_defaults(ops::kMatmul, s.product->attributes),
                     last = with_defaults(ops::kMatmul, node.attributes);
    double scale = s.scale;
    Var q = b.wrap(unscaled(s.product->operands[0], scale)), k = b.wrap(unscaled(s.product->operands[1], scale)),
        v = b.wrap(node.operands[1]);
    const DType dtype = node.result()->type.dtype;
    if (q.dtype() != dtype) return std::nullopt;
    if (product.flag("transpose_a")) q = b.transpose_last(q);
    if (!product.flag("transpose_b")) k = b.transpose_last(k);
    if (last.flag("transpose_b")) v = b.transpose_last(v);
    std::vector<Var> operands{with_batch(q, shape), with_batch(k, shape), with_batch(v, shape)};
    if (s.mask || p.kept) operands.push_back(s.mask ? b.wrap(s.mask) : Var());
    if (p.kept) operands.push_back(pack_bits(b, b.reshape(b.wrap(p.kept), shape)));
    Attributes attributes{{"scale", scale}, {"causal", s.causal}, {"closed_rows_are_zero", p.closed_rows_are_zero}};
    if (s.mask && s.mask->type.dtype == DType::boolean) attributes.set("hidden", s.hidden);
    if (p.kept) attributes.set("dropout", p.dropout);
    Var y = b.apply_many(ops::kAttention, operands, attributes)[0];
    if (legal_ && !legal_(*y.value->producer)) return std::nullopt;
    return std::vector{b.reshape(y, node.result()->type.shape).value};
  }

  Graph& graph_;
  const std::function<bool(const Node&)>& legal_;
  const Uses uses_;
  std::unordered_set<const Value*> outputs_;
  MaskAnalysis masks_;
  Builder* builder_ = nullptr;
};

}  // namespace

int match_attention(Graph& graph, const std::function<bool(const Node&)>& legal) {
  const auto is_softmax = [](const auto& node) { return node->op == &ops::kSoftmax; };
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), is_softmax)) return 0;
  graph.remove_dead();  // nodes that nothing needs read nothing
  Matcher matcher(graph, legal);
  const int matched = rewrite(graph, [&](Node& node, Builder& b) { return matcher.match(node, b); });
  graph.remove_dead();
  return matched;
}

}  // namespace gcomp::passes
