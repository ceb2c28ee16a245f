// NVIDIA's GPUs: CUDA text, cuBLASLt beside generated products, attention as kernels of its own.
#pragma once

#include "codegen/target.h"

namespace gcomp::codegen::cuda {

extern const Target kTarget;

/// 90 for cuda:sm_90.
int architecture_of(const runtime::Target& target);
/// Whether cuBLASLt computes GELU in the product's own kernel: from sm_90 on. On the consumer GPUs before, it was measured (llm.c,
/// pull requests 338 and 653) to take longer than a product and a kernel after it.
bool library_has_gelu(const runtime::Target& target);

}  // namespace gcomp::codegen::cuda
