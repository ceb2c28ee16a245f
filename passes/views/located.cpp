#include "passes/views/located.h"

#include "ir/nest/loops.h"

namespace gcomp::passes {

using namespace ir;

std::optional<StridedView> view_of(const Located& located, const Shape& matrix) {
  const Index position = linear_index(located.at, located.value->type.shape);
  StridedView view{matrix, std::vector<std::int64_t>(matrix.size()), position.constant()};
  for (const Index::Part& part : position.parts()) {
    if (part.atom.kind != IndexAtom::Kind::axis || part.coefficient < 0) return std::nullopt;
    view.strides[static_cast<std::size_t>(part.atom.axis)] = part.coefficient;
  }
  return view;
}

std::optional<Located> shown_by(const Node& node, const std::vector<Index>& at) {
  if (node.op->kind != Kind::view) return std::nullopt;
  const LoopNest nest = loops_of(*node.op, types_of(node.operands), types_of(node.results), node.attributes);
  const TermPtr& term = nest.statements[0].value;
  if (term->kind != Term::Kind::read) return std::nullopt;
  Located shown{node.operands[static_cast<std::size_t>(term->slot)], term->indices};
  for (Index& index : shown.at)
    index = index.substitute([&](int axis, std::int64_t) { return at[static_cast<std::size_t>(axis)]; },
                             [](const TermPtr& loaded) { return loaded; });
  return shown;
}

Located through_reshape(const Located& from, Value* to) {
  return {to, split_index(linear_index(from.at, from.value->type.shape), to->type.shape)};
}

Located through_transpose(const Located& from, const Node& transpose) {
  Located to{transpose.result(), {}};
  for (const std::int64_t axis : transpose.attributes.integers("permutation"))
    to.at.push_back(from.at[static_cast<std::size_t>(axis)]);
  return to;
}

}  // namespace gcomp::passes
