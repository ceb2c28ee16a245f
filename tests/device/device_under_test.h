// The CUDA device that the tests of this folder run on: the emulated driver, or with GCOMP_CUDA_TESTS=device the machine's GPU.
#pragma once

#include <memory>

#include "runtime/device.h"

namespace gcomp::tests {

bool on_real_gpu();

/// One for the whole process, without cuBLASLt and cuDNN. Kernels are cached.
runtime::Device& device_under_test();
/// Another one.
std::unique_ptr<runtime::Device> open_device_under_test(bool use_libraries,
                                                        runtime::MatmulPrecision precision = runtime::MatmulPrecision::strict,
                                                        bool prefer_cudnn = false);

}  // namespace gcomp::tests
