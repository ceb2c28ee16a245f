#include "passes/training/losses/shard_loss.h"

#include <algorithm>

#include "passes/training/losses/call_graph.h"
#include "passes/training/sources.h"

namespace gcomp::passes {
namespace {

using namespace ir;
using FormulaKind = Formula::Kind;

bool has_no_terms(const Formula& e) {
  if (e.kind == FormulaKind::name || e.kind == FormulaKind::call) return false;
  return std::ranges::all_of(e.operands, has_no_terms);
}

/// A sum of terms, each times a number, and of numbers.
bool is_linear_in_terms(const Formula& e) {
  switch (e.kind) {
    case FormulaKind::multiply:
      return (has_no_terms(e.operands[0]) && is_linear_in_terms(e.operands[1])) ||
             (is_linear_in_terms(e.operands[0]) && has_no_terms(e.operands[1]));
    case FormulaKind::divide: return is_linear_in_terms(e.operands[0]) && has_no_terms(e.operands[1]);
    case FormulaKind::number:
    case FormulaKind::name:
    case FormulaKind::call: return true;
    default: return std::ranges::all_of(e.operands, is_linear_in_terms);
  }
}

/// Whether the value is made of inputs and constants alone.
bool is_of_data(const Graph& graph, const Value* value) {
  return std::ranges::none_of(sources_of(graph, value, [](const Value*) { return false; }),
                              [&](const Value* source) { return graph.find_state(source); });
}

class ShardLossBuilder {
 public:
  ShardLossBuilder(CallGraph& calls, const LossSpec& loss, LossGraph& terms, std::int64_t shards)
      : calls_(calls), loss_(loss), terms_(terms), shards_(static_cast<double>(shards)) {}

  ShardLoss build() {
    const Var share =
        is_linear_in_terms(loss_.expression) ? share_of(loss_.expression).var : averaged(loss_.expression, terms_.value());
    made_.share = share.value;
    return std::move(made_);
  }

 private:
  std::string text_of(const Formula& e) const { return loss_.text.substr(e.begin, e.end - e.begin); }

  Var averaged(const Formula& e, Var value) {
    made_.averaged.push_back(text_of(e));
    return value / shards_;
  }

  Part share_of(const Formula& e) {
    if (has_no_terms(e)) return {{}, number(e) / shards_};
    if (e.kind == FormulaKind::name || e.kind == FormulaKind::call) return {share_of_term(e, next_++)};
    if (e.kind == FormulaKind::negate) return {-share_of(e.operands[0]).var};
    const bool scales = e.kind == FormulaKind::multiply || e.kind == FormulaKind::divide;
    const auto operand = [&](const Formula& o) { return scales && has_no_terms(o) ? Part{{}, number(o)} : share_of(o); };
    const Part a = operand(e.operands[0]);
    return calls_.joined(e.kind, a, operand(e.operands[1]));
  }

  double number(const Formula& e) {
    return calls_.arithmetic(e, [](const Formula&) -> Part { throw InternalError("a term in a number"); }).number;
  }

  Var share_of_term(const Formula& e, std::size_t i) {
    if (terms_.is_sum(i)) return terms_.value_of(i);
    const std::optional<LossSum> mean = terms_.mean_of(i);
    if (!mean) return averaged(e, terms_.value_of(i));
    Var sum = sum_of_all(mean->values);
    if (!mean->weights) return sum / (shards_ * static_cast<double>(std::max<std::int64_t>(mean->values.type().elements(), 1)));
    Var count = sum_of_all(mean->weights);
    Graph& graph = calls_.builder().graph();
    if (!is_of_data(graph, count.value)) return averaged(e, sum / count);
    Value* total = graph.add_state(count.type(), "loss_count", StateRole::scratch, 0.0);
    made_.counts.push_back({count.value, total});
    return sum / calls_.builder().cast(calls_.builder().wrap(total), sum.dtype());
  }

  CallGraph& calls_;
  const LossSpec& loss_;
  LossGraph& terms_;
  double shards_;
  std::size_t next_ = 0;
  ShardLoss made_;
};

}  // namespace

ShardLoss attach_shard_loss(Graph& graph, const LossSpec& loss, std::int64_t shards,
                            const std::map<std::string, TensorType>& arrays) {
  CallGraph calls(graph, arrays);
  LossGraph terms(calls, loss);
  calls.add_inputs();
  ShardLoss made = ShardLossBuilder(calls, loss, terms, shards).build();
  graph.rename(made.share, "loss");
  graph.add_output(made.share, Role::loss);
  return made;
}

}  // namespace gcomp::passes
