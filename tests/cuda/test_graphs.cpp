// Capture and replay of graphs on the emulated driver.
#include <functional>
#include <map>

#include "tests/cuda/emulated_libraries.h"

namespace gcomp::tests {
namespace {

using namespace cuda;

constexpr char kKernels[] = R"(
extern "C" __global__ void add(const float* p0, float* p1) { p1[0] += p0[0]; }
)";
constexpr auto kUnjoined = static_cast<CUresult>(904);

class CudaGraphs : public EmulatedDriver {
 protected:
  void prepare(const std::map<std::string, std::string>& settings) {
    restart(settings);
    add_ = kernel(kKernels, "add");
    compute_ = stream();
    side_ = stream();
    fork_ = event();
    join_ = event();
    x_ = allocate(4);
    y_ = allocate(4);
    void* memory = nullptr;
    ASSERT_EQ(f.cuMemHostAlloc(&memory, 8, 0), CUDA_SUCCESS);
    host_ = static_cast<float*>(memory);
    host_[0] = host_[1] = 0;
    ASSERT_EQ(f.cuMemsetD8Async(x_, 0, 4, compute_), CUDA_SUCCESS);
    ASSERT_EQ(f.cuMemsetD8Async(y_, 0, 4, compute_), CUDA_SUCCESS);
    ASSERT_EQ(f.cuStreamSynchronize(compute_), CUDA_SUCCESS);
  }

  /// x from pinned memory on the side stream, then y += x, then y to pinned memory; `ordered` is whether the sum waits for the
  /// copy.
  CUresult capture(bool ordered, CUgraph* graph) {
    EXPECT_EQ(f.cuStreamBeginCapture_v2(compute_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    EXPECT_EQ(f.cuEventRecord(fork_, compute_), CUDA_SUCCESS);
    EXPECT_EQ(f.cuStreamWaitEvent(side_, fork_, 0), CUDA_SUCCESS);
    EXPECT_EQ(f.cuMemcpyHtoDAsync_v2(x_, host_, 4, side_), CUDA_SUCCESS);
    EXPECT_EQ(f.cuEventRecord(join_, side_), CUDA_SUCCESS);
    if (ordered) { EXPECT_EQ(f.cuStreamWaitEvent(compute_, join_, 0), CUDA_SUCCESS); }
    EXPECT_EQ(launch(add_, 1, 1, compute_, x_, y_), CUDA_SUCCESS);
    EXPECT_EQ(f.cuMemcpyDtoHAsync_v2(host_ + 1, y_, 4, compute_), CUDA_SUCCESS);
    if (!ordered) { EXPECT_EQ(f.cuStreamWaitEvent(compute_, join_, 0), CUDA_SUCCESS); }
    return f.cuStreamEndCapture(compute_, graph);
  }
  CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec executable = nullptr;
    EXPECT_EQ(f.cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(f.cuGraphDestroy(graph), CUDA_SUCCESS);
    return executable;
  }

  CUfunction add_ = nullptr;
  CUstream compute_ = nullptr, side_ = nullptr;
  CUevent fork_ = nullptr, join_ = nullptr;
  CUdeviceptr x_ = 0, y_ = 0;
  float* host_ = nullptr;
};

TEST_F(CudaGraphs, ACapturedStepRunsWithEachLaunch) {
  for (const char* order : {"eager", "delayed"}) {
    prepare({{"ORDER", order}});
    CUgraph graph = nullptr;
    ASSERT_EQ(capture(true, &graph), CUDA_SUCCESS);
    EXPECT_EQ(count("kernel"), 0) << "a captured kernel does not run";
    const CUgraphExec executable = instantiate(graph);
    host_[0] = 1;
    const long long synchronising = count("synchronising");
    ASSERT_EQ(f.cuGraphLaunch(executable, compute_), CUDA_SUCCESS);
    EXPECT_EQ(count("synchronising"), synchronising);
    ASSERT_EQ(f.cuStreamSynchronize(compute_), CUDA_SUCCESS);
    EXPECT_EQ(count("synchronising"), synchronising + 1);
    EXPECT_EQ(host_[1], 1.0f);
    host_[0] = 3;
    ASSERT_EQ(f.cuGraphLaunch(executable, compute_), CUDA_SUCCESS);
    ASSERT_EQ(f.cuStreamSynchronize(compute_), CUDA_SUCCESS);
    EXPECT_EQ(host_[1], 4.0f);
    EXPECT_EQ(count("kernel"), 2);
    EXPECT_EQ(count("cuLaunchKernel"), 1);
    EXPECT_EQ(f.cuGraphExecDestroy(executable), CUDA_SUCCESS);
    EXPECT_EQ(figure("graphs") + figure("executables"), 0);
  }
}

TEST_F(CudaGraphs, DelayedOrderShowsAMissingEdge) {
  for (const bool ordered : {true, false}) {
    prepare({{"ORDER", "delayed"}});
    CUgraph graph = nullptr;
    ASSERT_EQ(capture(ordered, &graph), CUDA_SUCCESS);
    const CUgraphExec executable = instantiate(graph);
    host_[0] = 5;
    ASSERT_EQ(f.cuGraphLaunch(executable, compute_), CUDA_SUCCESS);
    ASSERT_EQ(f.cuStreamSynchronize(compute_), CUDA_SUCCESS);
    EXPECT_EQ(host_[1], ordered ? 5.0f : 0.0f);
  }
}

TEST_F(CudaGraphs, ACaptureMustBeJoined) {
  prepare({});
  CUgraph graph = nullptr;
  ASSERT_EQ(f.cuStreamBeginCapture_v2(compute_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(f.cuEventRecord(fork_, compute_), CUDA_SUCCESS);
  ASSERT_EQ(f.cuStreamWaitEvent(side_, fork_, 0), CUDA_SUCCESS);
  ASSERT_EQ(launch(add_, 1, 1, side_, x_, y_), CUDA_SUCCESS);
  EXPECT_EQ(f.cuStreamEndCapture(compute_, &graph), kUnjoined);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(launch(add_, 1, 1, side_, x_, y_), CUDA_SUCCESS);
  EXPECT_EQ(count("kernel"), 1) << "the side stream is free again";
}

TEST_F(CudaGraphs, CallsThatACaptureForbidsMakeItInvalid) {
  const auto forbidden = std::vector<std::pair<const char*, std::function<CUresult()>>>{
      {"allocate",
       [&] {
         CUdeviceptr made;
         return f.cuMemAlloc_v2(&made, 4);
       }},
      {"free", [&] { return f.cuMemFree_v2(x_); }},
      {"synchronize", [&] { return f.cuStreamSynchronize(compute_); }},
      {"another stream", [&] { return f.cuStreamSynchronize(side_); }},
      {"query", [&] { return f.cuEventQuery(fork_); }},
      {"pageable copy",
       [&] {
         float ordinary = 0;
         return f.cuMemcpyHtoDAsync_v2(x_, &ordinary, 4, compute_);
       }},
  };
  for (const auto& [name, call] : forbidden) {
    prepare({});
    CUgraph graph = nullptr;
    ASSERT_EQ(f.cuStreamBeginCapture_v2(compute_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) << name;
    EXPECT_EQ(f.cuStreamEndCapture(compute_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) << name;
  }
}

TEST_F(CudaGraphs, ACaptureCannotWaitForWorkOutsideOfIt) {
  prepare({});
  CUgraph graph = nullptr;
  ASSERT_EQ(f.cuEventRecord(fork_, side_), CUDA_SUCCESS);
  ASSERT_EQ(f.cuStreamBeginCapture_v2(compute_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(f.cuStreamWaitEvent(compute_, fork_, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(f.cuStreamEndCapture(compute_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CudaGraphs, AFailureWithinAGraphStays) {
  prepare({{"FAIL", "kernel:2:719"}});
  CUgraph graph = nullptr;
  ASSERT_EQ(capture(true, &graph), CUDA_SUCCESS);
  const CUgraphExec executable = instantiate(graph);
  ASSERT_EQ(f.cuGraphLaunch(executable, compute_), CUDA_SUCCESS);
  ASSERT_EQ(f.cuStreamSynchronize(compute_), CUDA_SUCCESS);
  ASSERT_EQ(f.cuGraphLaunch(executable, compute_), CUDA_SUCCESS);
  EXPECT_EQ(f.cuStreamSynchronize(compute_), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(f.cuGraphLaunch(executable, compute_), CUDA_ERROR_LAUNCH_FAILED);
}

}  // namespace
}  // namespace gcomp::tests
