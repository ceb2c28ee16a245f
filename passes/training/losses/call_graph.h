// Builds the calls of a loss, and of metrics beside it, into a graph that has the model's outputs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "passes/training/losses/binder.h"

namespace gcomp::passes {

/// A value, or a number that takes the type of what it meets.
struct Part {
  ir::Var var = {};
  double number = 0;
};

class CallGraph {
 public:
  /// What names stand for is what the graph has now. Keeps the graph.
  CallGraph(ir::Graph& graph, const std::map<std::string, TensorType>& arrays);

  ir::Builder& builder() { return b_; }
  CallBinder& binder() { return binder_; }
  /// Adds an input of Role::label for each array that was bound. Before the first call is built.
  void add_inputs();
  LossCall build(const Call& call, const std::vector<BoundOperand>& bound);
  ir::Var output(const std::string& name) const { return outputs_.at(name); }
  /// The output of a loss's graph, whose nodes become the graph's own.
  ir::Var inlined(const BoundGraph& loss);
  /// By an operator of two operands, which get one type.
  Part joined(Formula::Kind kind, Part a, Part b);

  /// The value of an expression; `leaf` gives that of a name or call, which come in the order of the text.
  template <class Leaf>
  Part arithmetic(const Formula& e, const Leaf& leaf) {
    using FormulaKind = Formula::Kind;
    if (e.kind == FormulaKind::number) return {{}, e.value};
    if (e.kind == FormulaKind::name || e.kind == FormulaKind::call) return leaf(e);
    const Part a = arithmetic(e.operands[0], leaf);
    if (e.kind == FormulaKind::negate) return a.var ? Part{-a.var} : Part{{}, -a.number};
    return joined(e.kind, a, arithmetic(e.operands[1], leaf));
  }

 private:
  ir::Var add_input(const LossArray& array);
  ir::Var operand_of(const CallOperand& operand, const BoundOperand& bound);

  ir::Builder b_;
  LossScope scope_;
  CallBinder binder_;
  std::map<std::string, ir::Var> outputs_, inputs_;  ///< inputs: the arrays too
};

/// The terms of a loss in such a graph.
class LossGraph {
 public:
  /// Binds them. Keeps both.
  LossGraph(CallGraph& calls, const LossSpec& loss);

  std::size_t size() const { return terms_.size(); }
  /// A scalar.
  ir::Var value_of(std::size_t i);
  /// Whether the term is a sum over all that counts.
  bool is_sum(std::size_t i);
  /// Before the mean is taken; nothing where the term is no mean, or a sum.
  std::optional<LossSum> mean_of(std::size_t i);
  /// Of the whole expression, a scalar.
  ir::Var value();

 private:
  LossCall call_of(std::size_t i) { return calls_.build(terms_[i].call, bound_[i]); }
  template <class Work>
  auto in_term(std::size_t i, const Work& work);

  CallGraph& calls_;
  const LossSpec& loss_;
  std::vector<LossTerm> terms_;
  std::vector<std::vector<BoundOperand>> bound_;
  std::optional<BoundGraph> graph_;  ///< the only term
};

}  // namespace gcomp::passes
