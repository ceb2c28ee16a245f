#include "runtime/cpu/onednn_calls.h"

// Defined in onednn.cpp; a weak reference is null where that file is not linked.
extern "C" __attribute__((weak)) const gcomp::runtime::cpu::OneDnnCalls gcomp_onednn_calls;

namespace gcomp::runtime::cpu {

const OneDnnCalls* onednn_calls() { return &gcomp_onednn_calls; }

}  // namespace gcomp::runtime::cpu
