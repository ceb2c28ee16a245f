#include "frontend/onnx/call_settings.h"

#include <algorithm>
#include <string>
#include <vector>

#include "frontend/onnx/notes.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

/// The tracer makes tensors of numbers where an overload wants them: "clamp.Tensor](args = (%x, None, %scalar_tensor_default))".
bool is_number(const std::string& argument) { return argument.starts_with("scalar_tensor"); }

bool clamps_by_numbers(const TracedCall& call) {
  return call.function.starts_with("torch.ops.aten.clamp") && !call.arguments.empty() &&
         std::all_of(call.arguments.begin() + 1, call.arguments.end(), is_number);
}

bool takes_one_of_an_axis(const TracedCall& call) {
  return call.function == "torch.ops.aten.max.dim" || call.function == "torch.ops.aten.min.dim";
}

}  // namespace

void plan_call_settings(const ::onnx::GraphProto& graph, const Signature& signature, ParameterPlan& plan) {
  std::vector<std::string> averages;
  for (int i = 0; i < graph.node_size(); ++i) {
    const std::string& op = graph.node(i).op_type();
    const TracedCall& call = signature.calls[static_cast<std::size_t>(i)];
    if ((op == "Max" || op == "Min") && clamps_by_numbers(call)) plan.kinks.emplace(i, Kink::bound);
    if (op == "ScatterElements" && call.averages) averages.push_back(describe(graph.node(i)));
    if (op == "SoftmaxCrossEntropyLoss" && call.label_smoothing > 0) plan.label_smoothing.emplace(i, call.label_smoothing);
    if ((op == "ReduceMax" || op == "ReduceMin") && takes_one_of_an_axis(call)) plan.kinks.emplace(i, Kink::first);
  }
  if (!averages.empty())
    plan.repairs.push_back(
        concat("scatter_reduce(reduce='mean') of the module's code is a scatter that keeps one value in the file, ",
               some_of(averages), ": the exporter has no other; a sum divided by counts is exported as it is"));
}

}  // namespace gcomp::frontend
