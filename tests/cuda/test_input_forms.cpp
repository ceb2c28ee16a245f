// Bytes that the program makes floats of, on CUDA: the same bits as floats made by the host.
#include <gtest/gtest.h>

#include "tests/cuda/cuda_run.h"
#include "tests/drive/fed_bytes.h"

namespace gcomp::test {
namespace {

TEST(CudaInputForms, FloatsOfTheProgramAreTheHosts) {
  if (on_real_device()) GTEST_SKIP() << "the libraries of the build tree are meant";
  TrainOptions options;
  options.batch = 8;
  options.device = DeviceRequest::cuda;
  options.device_options.libraries.usual_places = false;
  for (const LibraryKind kind : kAllLibraries) options.device_options.libraries.explicit_of(kind) = GCOMP_EMULATED_LIBRARIES;
  const Tensor label = Tensor::of(DType::i64, {8}, {0, 1, 2, 3, 3, 2, 1, 0});
  const InputForm form{.input = "image", .mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}, .axis = 3};
  EXPECT_EQ(difference_from_host(channels_last_model(), options, form, some_bytes({8, 6, 5, 3}), label), "");
}

}  // namespace
}  // namespace gcomp::test
