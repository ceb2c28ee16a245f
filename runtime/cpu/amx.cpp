#include "runtime/cpu/amx.h"

#include "runtime/instruction_set.h"

namespace gcomp::runtime::cpu {

#if defined(__x86_64__)
extern const TileFunctions kAmxTiles;
#endif

const TileFunctions* tile_functions(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::amx) return &kAmxTiles;
#endif
  static_cast<void>(set);
  return nullptr;
}

}  // namespace gcomp::runtime::cpu
