// The runtime's descriptions of convolutions and attention before NVIDIA's own cuDNN, where it is installed, on a machine without a
// GPU: the library sees the properties of a GPU and chooses engines as it does there (cudnn/offline). Nothing runs.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "runtime/cuda/cudnn_attention.h"
#include "runtime/cuda/cudnn_convolution.h"
#include "runtime/cuda/session.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/convolution_case.h"
#include "tests/cuda/emulated_libraries.h"

namespace gcomp::tests {
namespace {

using namespace gcomp::runtime;
using namespace gcomp::runtime::cuda;

constexpr std::size_t kOldest = 91900;

class CudnnOffline : public testing::Test {
 protected:
  void SetUp() override {
    const LibraryResult installed = find_installed();
    if (!installed.library) GTEST_SKIP() << "no cuDNN from " << kOldest << " on is installed";
    setenv("GCOMP_OFFLINE_CUDNN", installed.library->path().c_str(), 1);
    open(900);
  }

  /// The library as it is on a GPU of this compute capability, 900 for sm_90.
  void open(int compute) {
    library_.reset();
    setenv("GCOMP_OFFLINE_COMPUTE", std::to_string(compute).c_str(), 1);
    LibrarySearch search = emulated_libraries();
    search.explicit_of(LibraryKind::driver) = driver_file_;
    search.explicit_of(LibraryKind::cudnn) = GCOMP_EMULATED_LIBRARIES "/offline/libcudnn.so.9";
    const auto driver = Driver::open(search);
    std::string reason;
    library_ = Cudnn::open(std::make_shared<Context>(driver, choose_gpu(*driver, 0)), search, reason);
    ASSERT_NE(library_, nullptr) << reason;
  }

  /// NVIDIA's, and one that takes a device's properties as text.
  static LibraryResult find_installed() {
    const LibrarySearch search = search_by_variables([](const char* name) -> const char* { return std::getenv(name); });
    return find_library(LibraryKind::cudnn, search, [](const Library& library) -> std::string {
      if (library.path().starts_with(GCOMP_EMULATED_LIBRARIES)) return "it is the emulated one";
      const auto version = reinterpret_cast<std::size_t (*)()>(library.symbol("cudnnGetVersion"));
      return version && version() >= kOldest && version() < 100000 ? "" : "its version is another";
    });
  }

  /// How many plans are fit.
  int plans(const WindowCase& c, MatmulPrecision precision = MatmulPrecision::strict) const {
    const auto convolution = CudnnConvolution::plan(library_, convolution_call(c), {}, precision);
    int count = convolution ? 1 : 0;
    while (convolution && convolution->plans().next()) ++count;
    return count;
  }

  std::string driver_file_ = GCOMP_EMULATED_LIBRARIES "/libcuda.so.1";
  std::shared_ptr<const Cudnn> library_;
};

/// Beside engines that are compiled already the library offers those that it compiles at run time, which this driver cannot do.
class CudnnOfflineUncompiled : public CudnnOffline {
 protected:
  void SetUp() override {
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD))
      GTEST_SKIP() << "another driver is loaded: this test wants a process of its own";
    driver_file_ = GCOMP_EMULATED_LIBRARIES "/offline/libcuda.so.1";
    setenv("GCOMP_OFFLINE_UNCOMPILED", "1", 1);
    CudnnOffline::SetUp();
  }
  void TearDown() override { unsetenv("GCOMP_OFFLINE_UNCOMPILED"); }
};

const WindowCase kWindow = {.batch = 8,
                            .inputs = 64,
                            .outputs = 128,
                            .input = {28, 30},
                            .kernel = {3, 3},
                            .strides = {2, 2},
                            .begin = {1, 1},
                            .end = {1, 1},
                            .dilations = {1, 1}};

TEST_F(CudnnOffline, ItHasPlansForEveryKindTypeAndLayout) {
  for (const ConvolutionKind kind : kConvolutionKinds)
    for (const bool channels_last : {true, false})
      for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
        WindowCase c = kWindow;
        c.kind = kind;
        c.dtype = dtype;
        c.channels_last = c.packed = channels_last;
        EXPECT_GT(plans(c), 0) << name_of(dtype) << ", kind " << static_cast<int>(kind) << ", " << channels_last;
      }
}

TEST_F(CudnnOffline, ItHasPlansForEveryArchitecture) {
  for (const int compute : {750, 800, 860, 890, 1000, 1200}) {
    ASSERT_NO_FATAL_FAILURE(open(compute));
    for (const ConvolutionKind kind : kConvolutionKinds)
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        WindowCase c = kWindow;
        c.kind = kind;
        c.dtype = dtype;
        // Turing has no bf16: there the library refuses, and generated kernels compute.
        EXPECT_EQ(plans(c) > 0, compute > 750 || dtype != DType::bf16) << name_of(dtype) << " on " << compute;
      }
  }
}

TEST_F(CudnnOffline, ItHasMorePlansWhereF32MayBeRounded) {
  for (const ConvolutionKind kind : kConvolutionKinds) {
    WindowCase c = kWindow;
    c.kind = kind;
    EXPECT_GT(plans(c, MatmulPrecision::tf32), plans(c)) << static_cast<int>(kind);
  }
}

TEST_F(CudnnOffline, ItHasPlansForOtherWindows) {
  for (const ConvolutionKind kind : kConvolutionKinds) {
    WindowCase line = kWindow;
    line.kind = kind;
    for (auto* list : {&line.input, &line.kernel, &line.strides, &line.begin, &line.end, &line.dilations}) list->resize(1);
    EXPECT_GT(plans(line), 0) << "one dimension";
    WindowCase box = kWindow;
    box.kind = kind;
    for (auto* list : {&box.input, &box.kernel, &box.strides, &box.begin, &box.end, &box.dilations}) list->push_back(list->back());
    EXPECT_GT(plans(box), 0) << "three dimensions";
    WindowCase groups = kWindow;
    groups.kind = kind;
    groups.groups = 4;
    EXPECT_GT(plans(groups), 0) << "groups";
    WindowCase image = kWindow;
    image.kind = kind;
    image.inputs = 3;
    EXPECT_GT(plans(image), 0) << "three channels";
  }
}

// An engine knows attention by the pattern of its operations alone.
TEST_F(CudnnOfflineUncompiled, ItKnowsAttentionAndItsGradient) {
  const AttentionCase shapes[] = {
      {.batch = 32, .heads = 12, .queries = 1024, .keys = 1024, .width = 64, .value_width = 64, .causal = true},
      {.batch = 128, .heads = 12, .queries = 197, .keys = 197, .width = 64, .value_width = 64},
      {.batch = 4, .heads = 8, .queries = 256, .keys = 256, .width = 128, .value_width = 128, .causal = true},
      {.batch = 2, .heads = 3, .queries = 5, .keys = 7, .width = 40, .value_width = 16}};
  for (AttentionCase c : shapes)
    for (const AttentionKind kind : {AttentionKind::forward, AttentionKind::gradient})
      for (const DType dtype : {DType::f16, DType::bf16}) {
        c.kind = kind;
        c.dtype = dtype;
        EXPECT_NE(CudnnAttention::plan(library_, attention_call(c), {}), nullptr)
            << name_of(dtype) << ", " << name_of(kind) << " of " << c.queries << " x " << c.keys;
      }
}

}  // namespace
}  // namespace gcomp::tests
