#include "passes/products/widen_contractions.h"

#include "ir/rewrite.h"

namespace gcomp::passes {

using namespace ir;

bool widen_contractions(Graph& graph, const std::function<bool(const Node&)>& widens) {
  return rewrite(graph, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
           const DType narrow = node.op->kind == Kind::contract ? node.result()->type.dtype : DType::f32;
           if ((narrow != DType::f16 && narrow != DType::bf16) || !widens(node)) return std::nullopt;
           std::vector<Var> operands;
           for (Value* operand : node.operands) operands.push_back(b.cast(b.wrap(operand), DType::f32));
           return std::vector{b.cast(b.apply(*node.op, std::move(operands), node.attributes), narrow).value};
         }) > 0;
}

}  // namespace gcomp::passes
