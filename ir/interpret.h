// The reference interpreter: runs any graph in double, by the definition of each op, rounding to each value's dtype.
#pragma once

#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace gcomp::ir {

/// Values of inputs and states by name in; outputs in order, and the new values of updated states by name, out.
struct InterpretResult {
  std::vector<Tensor> outputs;
  std::map<std::string, Tensor> states;
};

/// Throws UserError for a missing or wrongly typed tensor and for an index out of range.
InterpretResult interpret(const Graph& graph, const std::map<std::string, Tensor>& values);

/// The same of several ranks in lock step, one graph and one set of values each: what a collective gives depends on the operands of
/// all. Throws UserError also where the ranks do not come to the same collectives in the same order.
std::vector<InterpretResult> interpret_ranks(std::span<const Graph* const> graphs,
                                             std::span<const std::map<std::string, Tensor>> values);

/// Results of one node from its operands (null where absent).
std::vector<Tensor> evaluate(const Node& node, const std::vector<const Tensor*>& operands);

/// Whether a double tells every element from all others of the dtype: 64-bit integers beyond 2^53 may share theirs with neighbours.
/// The two largest and the two smallest stand for no bound at all, and come back from a double as such.
bool doubles_hold(const Tensor& tensor);

}  // namespace gcomp::ir
