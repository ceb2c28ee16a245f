// Settles what the names of a loss stand for, and the types of the arrays that it reads.
#pragma once

#include <string>
#include <vector>

#include "passes/training/losses/calls.h"

namespace gcomp::passes {

/// What an operand is and the type that its call computes with.
struct BoundOperand {
  enum class Source : std::uint8_t { output, input, array, number, computed };
  Source source = Source::array;
  std::string name;  ///< of an output, input or array
  TensorType type;
};

/// A loss that is a graph, and what its inputs stand for.
struct BoundGraph {
  ir::Graph graph;
  std::vector<BoundOperand> inputs;
};

/// One for all that shares arrays: a loss, and the metrics beside it.
class CallBinder {
 public:
  /// Keeps the scope.
  explicit CallBinder(const LossScope& scope) : scope_(scope) {}

  /// The operands of a call. Throws as bind_loss().
  std::vector<BoundOperand> bind(const FormulaSpec& spec, const Call& call);
  /// The inputs of a loss's graph, and the graph for their types. Throws as bind_loss().
  BoundGraph bind_graph(const LossSpec& loss);
  /// The scalar output of floats that a name stands for.
  BoundOperand bind_scalar(const FormulaSpec& spec, const Formula& name);
  const BoundLoss& bound() const { return bound_; }

 private:
  friend class BoundTypes;

  BoundOperand find(const FormulaSpec& spec, const CallOperand& operand);
  BoundOperand find_default(const FormulaSpec& spec);
  BoundOperand find_name(const FormulaSpec& spec, const Formula& name);
  TensorType type_of(const FormulaSpec& spec, const Formula& e);
  void declare_input(BoundOperand& operand, TensorType type);
  LossArray* find_array(const std::string& name);
  [[noreturn]] void unknown(const FormulaSpec& spec, const Formula& name) const;

  const LossScope& scope_;
  BoundLoss bound_;
};

}  // namespace gcomp::passes
