// The targets there are.
#include "codegen/cpu/target.h"
#include "codegen/cuda/target.h"
#include "codegen/target.h"

namespace gcomp::codegen {

const Target& target_of(const runtime::Target& target) {
  switch (target.kind) {
    case runtime::TargetKind::cpu: return cpu::kTarget;
    case runtime::TargetKind::cuda: return cuda::kTarget;
  }
  throw InternalError("target_of: a kind outside its enumeration");
}

ir::TargetInfo target_info(const runtime::Target& target) { return target_of(target).info(target); }

}  // namespace gcomp::codegen
