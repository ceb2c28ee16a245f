#include "codegen/collectives.h"

#include <utility>

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

constexpr std::pair<const OpDef*, runtime::CollectiveKind> kCollectiveKinds[] = {
    {&ops::kAllToAll, runtime::CollectiveKind::all_to_all},
    {&ops::kAllGather, runtime::CollectiveKind::all_gather},
    {&ops::kBroadcastFrom, runtime::CollectiveKind::broadcast},
};

runtime::CollectiveKind collective_kind(const OpDef& op) {
  for (const auto& [known, kind] : kCollectiveKinds)
    if (known == &op) return kind;
  throw InternalError(concat("collective ", op.name, " is no kind of step"));
}

}  // namespace

void add_collective(ProgramBuilder& program, const Node& node) {
  const Attributes attributes = with_defaults(*node.op, node.attributes);
  runtime::CollectiveCall call{.kind = collective_kind(*node.op),
                               .group = attributes.text("group"),
                               .ranks = attributes.integer("ranks"),
                               .operand = program.buffer_of(node.operands[0]),
                               .result = program.buffer_of(node.result()),
                               .bytes = node.operands[0]->type.bytes(),
                               .origin = origin_of(node)};
  if (call.kind == runtime::CollectiveKind::all_to_all) call.bytes /= call.ranks;
  if (call.kind == runtime::CollectiveKind::broadcast) call.root = attributes.integer("root");
  program.add_step(std::move(call));
}

}  // namespace gcomp::codegen
