#include "passes/training/optimizers/parameter_use.h"

#include "ir/ops/table.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// A value that holds a parameter's elements in another type or order.
struct View {
  const Value* parameter = nullptr;
  bool swapped = false;  ///< columns first
};

}  // namespace

ParameterUses::ParameterUses(const Graph& graph, const std::vector<Value*>& parameters, const std::set<std::string>& tables) {
  std::unordered_map<const Value*, View> views;
  for (const Value* parameter : parameters) {
    uses_[parameter].is_gathered = tables.contains(parameter->name);
    views[parameter] = {parameter, false};
  }
  const auto view_of = [&](const Value* value) {
    const auto found = views.find(value);
    return found == views.end() ? View() : found->second;
  };
  // The forward pass comes first, so that the first product of a parameter is the model's own and not a gradient's.
  for (const auto& node : graph.nodes()) {
    if (node->operands.empty()) continue;
    const View first = view_of(node->operands[0]);
    if (first.parameter) {
      if (node->op->looks_up) uses_[first.parameter].is_gathered = true;
      if (is_cast(*node->op) || node->op == &ops::kBroadcast) views[node->result()] = first;
      if (!node->results.empty() && swaps_last(node->result())) views[node->result()] = {first.parameter, !first.swapped};
    }
    if (node->op != &ops::kMatmul) continue;
    const Attributes all = with_defaults(*node->op, node->attributes);
    // a [m, k] makes m outputs of k inputs, b [k, n] n of k.
    const auto note = [&](const View& view, bool inputs_first) {
      if (!view.parameter) return;
      Use& use = uses_[view.parameter];
      if (!use.inputs_first) use.inputs_first = inputs_first != view.swapped;
    };
    note(first, all.flag("transpose_a"));
    note(view_of(node->operands[1]), !all.flag("transpose_b"));
  }
}

std::optional<MatrixSize> ParameterUses::matrix_size(const Value* parameter) const {
  const Use& use = uses_.at(parameter);
  if (parameter->type.rank() != 2 || use.is_gathered) return std::nullopt;
  const std::int64_t rows = parameter->type.shape[0], columns = parameter->type.shape[1];
  return use.inputs_first.value_or(false) ? MatrixSize{columns, rows} : MatrixSize{rows, columns};
}

}  // namespace gcomp::passes
