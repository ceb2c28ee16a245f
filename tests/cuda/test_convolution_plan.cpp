// The runtime's way from a ConvolutionCall to cuDNN's graphs: what the library is asked for is the call's convolution, by an engine
// that is as exact as the call wants and repeats its bits, or the plan is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ir/base/tensor.h"
#include "runtime/cuda/cudnn_convolution.h"
#include "runtime/cuda/cudnn_proof.h"
#include "runtime/cuda/session.h"
#include "tests/cuda/convolution_case.h"
#include "tests/cuda/cudnn_plan_test.h"

namespace gcomp::tests {
namespace {

using namespace gcomp::runtime;
using namespace gcomp::runtime::cuda;

/// The place of an element of [first, second, spatial...] in memory.
std::int64_t place(const std::vector<std::int64_t>& at, std::int64_t second, const std::vector<std::int64_t>& spatial, bool last) {
  std::int64_t offset = at[0];
  if (!last) offset = offset * second + at[1];
  for (std::size_t d = 0; d < spatial.size(); ++d) offset = offset * spatial[d] + at[d + 2];
  return last ? offset * second + at[1] : offset;
}

template <class F>
void for_each_point(const std::vector<std::int64_t>& extents, const F& visit) {
  std::vector<std::int64_t> at(extents.size());
  for (std::int64_t p = 0; p < product_of(extents); ++p) {
    std::int64_t rest = p;
    for (std::size_t d = extents.size(); d-- > 0; rest /= extents[d]) at[d] = rest % extents[d];
    visit(at);
  }
}

/// Input, weight and output, of which the one that the call writes is computed from the others.
void convolve(const ConvolutionCall& call, Tensor (&tensors)[3]) {
  const std::int64_t inputs = call.input_channels / call.groups, outputs = call.output_channels / call.groups;
  const std::size_t rank = call.kernel.size();
  const int written = call.kind == ConvolutionKind::forward ? 2 : call.kind == ConvolutionKind::input_gradient ? 0 : 1;
  for (std::int64_t e = 0; e < tensors[written].elements(); ++e) tensors[written].set(e, 0);
  std::vector<std::int64_t> box{call.batch, call.groups, outputs, inputs};
  box.insert(box.end(), call.output_spatial.begin(), call.output_spatial.end());
  box.insert(box.end(), call.kernel.begin(), call.kernel.end());
  for_each_point(box, [&](const std::vector<std::int64_t>& p) {
    std::vector<std::int64_t> in{p[0], p[1] * inputs + p[3]}, weight{p[1] * outputs + p[2], p[3]}, out{p[0], weight[0]};
    for (std::size_t d = 0; d < rank; ++d) {
      out.push_back(p[4 + d]);
      weight.push_back(p[4 + rank + d]);
      in.push_back(out.back() * call.strides[d] + weight.back() * call.dilations[d] - call.pads_begin[d]);
      if (in.back() < 0 || in.back() >= call.input_spatial[d]) return;
    }
    const std::int64_t at[] = {place(in, call.input_channels, call.input_spatial, call.channels_last),
                               place(weight, inputs, call.kernel, !call.packing.launches.empty()),
                               place(out, call.output_channels, call.output_spatial, call.channels_last)};
    const int first = written == 0 ? 1 : 0, second = written == 2 ? 1 : 2;
    tensors[written].set(at[written],
                         tensors[written].at(at[written]) + tensors[first].at(at[first]) * tensors[second].at(at[second]));
  });
}

class ConvolutionPlan : public CudnnPlanTest {
 protected:
  using CudnnPlanTest::CudnnPlanTest;

  static long long copies_back() { return emulated<long long(const char*)>("gcompEmulatedCount")("cuMemcpyDtoHAsync_v2"); }

  std::unique_ptr<CudnnConvolution> plan(const ConvolutionCall& call, MatmulPrecision precision = MatmulPrecision::strict) const {
    return CudnnConvolution::plan(session_.cudnn, call, {}, precision);
  }
  /// The number of the engine that is taken, -1 where none is.
  std::int64_t engine(const WindowCase& c, MatmulPrecision precision = MatmulPrecision::strict) const {
    const auto made = plan(convolution_call(c), precision);
    return made ? made->plans().engine() : -1;
  }

  /// False where the plan is refused. Else runs it and compares every element.
  bool check(const WindowCase& c) {
    const ConvolutionCall call = convolution_call(c);
    const auto made = plan(call);
    if (!made) return false;
    const std::int64_t sizes[] = {call.batch * call.input_channels * product_of(call.input_spatial),
                                  call.output_channels * (call.input_channels / call.groups) * product_of(call.kernel),
                                  call.batch * call.output_channels * product_of(call.output_spatial)};
    Tensor host[3];
    DeviceMemory memory[3];
    for (int i = 0; i < 3; ++i) {
      host[i] = Tensor(call.dtype, {sizes[i]});
      for (std::int64_t e = 0; e < sizes[i]; ++e) host[i].set(e, static_cast<double>((e * (7 + i) + 3) % 5 - 2));
      memory[i] = DeviceMemory(session_.context, host[i].type().bytes(), "an operand");
      GCOMP_CUDA(session_.driver(), "test", cuMemcpyHtoDAsync_v2, memory[i].address(), host[i].data(), host[i].bytes().size(),
                 session_.compute.get());
    }
    const DeviceMemory workspace(session_.context, std::max<std::int64_t>(256, made->workspace_bytes()), "workspace");
    made->queue(call, {memory[0].address(), memory[1].address(), memory[2].address()}, workspace.address(), session_.compute.get());
    convolve(call, host);
    for (int i = 0; i < 3; ++i) {
      Tensor found(call.dtype, {sizes[i]});
      GCOMP_CUDA(session_.driver(), "test", cuMemcpyDtoHAsync_v2, found.data(), memory[i].address(), found.bytes().size(),
                 session_.compute.get());
      GCOMP_CUDA(session_.driver(), "test", cuStreamSynchronize, session_.compute.get());
      for (std::int64_t e = 0; e < sizes[i]; ++e) EXPECT_EQ(found.at(e), host[i].at(e)) << "operand " << i << ", element " << e;
    }
    return true;
  }
};

TEST_F(ConvolutionPlan, EveryKindTypeAndLayout) {
  for (const ConvolutionKind kind : kConvolutionKinds)
    for (const bool channels_last : {false, true})
      for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
        EXPECT_TRUE(check({.kind = kind, .dtype = dtype, .channels_last = channels_last})) << name_of(dtype);
  EXPECT_FALSE(check({.dtype = DType::i32}));
}

TEST_F(ConvolutionPlan, GroupsAndOneOrThreeDimensions) {
  for (const ConvolutionKind kind : kConvolutionKinds)
    for (const bool channels_last : {false, true}) {
      EXPECT_TRUE(check({.kind = kind, .channels_last = channels_last, .groups = 2}));
      EXPECT_TRUE(check({.kind = kind, .channels_last = channels_last, .outputs = 8, .groups = 4}));
      EXPECT_TRUE(check({.kind = kind,
                         .channels_last = channels_last,
                         .input = {9},
                         .kernel = {3},
                         .strides = {2},
                         .begin = {1},
                         .end = {0},
                         .dilations = {2}}));
      EXPECT_TRUE(check({.kind = kind,
                         .channels_last = channels_last,
                         .input = {3, 4, 5},
                         .kernel = {2, 1, 3},
                         .strides = {1, 2, 1},
                         .begin = {0, 0, 1},
                         .end = {1, 0, 1},
                         .dilations = {1, 1, 1}}));
    }
}

// The weight is described as it lies; the emulated library has no engine for one whose channels come first beside an image's last.
TEST_F(ConvolutionPlan, AWeightThatIsNotPackedIsNotTakenForAPackedOne) {
  for (const ConvolutionKind kind : kConvolutionKinds) {
    EXPECT_FALSE(check({.kind = kind, .packed = false}));
    EXPECT_TRUE(check({.kind = kind, .kernel = {1, 1}, .packed = false}));
    EXPECT_TRUE(check({.kind = kind, .outputs = 8, .groups = 4, .packed = false}));
  }
}

TEST_F(ConvolutionPlan, NegativePadsAreRefused) { EXPECT_FALSE(check({.begin = {-1, 0}})); }

// The emulated library's favourites are one that is noted to vary, Winograd's, TF32, and one whose workspace is a tebibyte.
TEST_F(ConvolutionPlan, EnginesThatVaryRoundOrNeedTooMuchMemoryAreLeftOut) {
  EXPECT_EQ(engine({}), 3);
  EXPECT_EQ(engine({}, MatmulPrecision::tf32), 2);
  EXPECT_EQ(engine({.dtype = DType::f64}, MatmulPrecision::tf32), 3);
  EXPECT_EQ(engine({.dtype = DType::bf16}), 3);
  offer("015");
  EXPECT_EQ(engine({}, MatmulPrecision::tf32), -1);
  offer("2");
  EXPECT_EQ(engine({}), -1);
}

TEST_F(ConvolutionPlan, AnEngineThatVariesWithoutANoteIsFoundByReplay) {
  offer("43");
  const ConvolutionCall call =
      convolution_call({.inputs = 16, .outputs = 8, .input = {12, 12}, .kernel = {3, 3}, .strides = {1, 1}, .dilations = {1, 1}});
  const auto made = plan(call);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->plans().engine(), 4);
  std::string reason;
  CudnnProof proof(session_, options_);
  EXPECT_TRUE(proof.prove(made->plans(), made->trial(call), reason));
  EXPECT_EQ(made->plans().engine(), 3);
  EXPECT_FALSE(made->plans().next());
  EXPECT_EQ(made->plans().engine(), 3) << "no other is offered";
  EXPECT_NE(log_.find("cuDNN's engine 4 does not repeat its bits and is passed over"), std::string::npos) << log_;
  proof.save();

  // What was found is remembered: nothing runs.
  const auto known = plan(call);
  const long long copies = copies_back();
  EXPECT_GE(copies, 4);
  CudnnProof later(session_, options_);
  EXPECT_TRUE(later.prove(known->plans(), known->trial(call), reason));
  EXPECT_EQ(known->plans().engine(), 3);
  EXPECT_EQ(copies_back(), copies);

  offer("4");
  const auto varying = plan(call);
  CudnnProof again(session_, options_);
  EXPECT_FALSE(again.prove(varying->plans(), varying->trial(call), reason));
  EXPECT_EQ(reason, "none of its plans repeats its bits");
}

class ShortOfMemory : public ConvolutionPlan {
 protected:
  ShortOfMemory() : ConvolutionPlan("64KiB") {}

  bool prove(std::string& reason) {
    const ConvolutionCall call = convolution_call({});
    const auto made = plan(call);
    return made && CudnnProof(session_, options_).prove(made->plans(), made->trial(call), reason);
  }
};

TEST_F(ShortOfMemory, APlanIsTriedWithinTheArenaOfLoadedPrograms) {
  std::string reason;
  const auto arena = std::make_shared<DeviceMemory>(session_.context, 48 << 10, "the arena");
  EXPECT_FALSE(prove(reason));
  EXPECT_EQ(reason, "there is no memory to try its plans");
  session_.arena = arena;
  EXPECT_TRUE(prove(reason)) << reason;
}

}  // namespace
}  // namespace gcomp::tests
