#include "codegen/whole.h"

#include "codegen/cuda/attention/attention.h"

namespace gcomp::codegen {

bool takes_whole(const ir::Node& node, const runtime::Target& target) {
  return target.kind == runtime::TargetKind::cuda && cuda::takes_attention(node);
}

}  // namespace gcomp::codegen
