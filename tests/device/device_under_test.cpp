#include "tests/device/device_under_test.h"

#include <cstdlib>

namespace gcomp::tests {

bool on_real_gpu() {
  const char* value = std::getenv("GCOMP_CUDA_TESTS");
  return value && std::string_view(value) == "device";
}

std::unique_ptr<runtime::Device> open_device_under_test(bool use_libraries, runtime::MatmulPrecision precision, bool prefer_cudnn) {
  runtime::DeviceOptions options;
  if (on_real_gpu()) {
    options.libraries = runtime::search_by_variables([](const char* name) -> const char* { return std::getenv(name); });
  } else {
    options.libraries.usual_places = false;
    for (const runtime::LibraryKind kind : runtime::kAllLibraries) options.libraries.explicit_of(kind) = GCOMP_EMULATED_LIBRARIES;
  }
  options.use_cublaslt = options.use_cudnn = use_libraries;
  options.prefer_cudnn = prefer_cudnn;
  options.precision = precision;
  return runtime::open_device(runtime::TargetKind::cuda, options);
}

runtime::Device& device_under_test() {
  static const std::unique_ptr<runtime::Device> device = open_device_under_test(false);
  return *device;
}

}  // namespace gcomp::tests
