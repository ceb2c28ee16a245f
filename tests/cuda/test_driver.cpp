// The emulated driver itself: memory, streams, launches, and what it makes of mistakes.
#include <cstring>
#include <set>

#include "tests/cuda/emulated_libraries.h"

namespace gcomp::tests {
namespace {

using namespace cuda;

constexpr char kFill[] = R"(
extern "C" __global__ void fill(float* p0, float value, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) p0[i] = value;
}
)";
constexpr char kAdd[] = R"(
extern "C" __global__ void add(const float* p0, float* p1) { p1[threadIdx.x] += p0[threadIdx.x]; }
)";
constexpr char kFar[] = R"(
extern "C" __global__ void far_away(float* p0) { p0[1 << 28] = 1; }
)";
constexpr char kRace[] = R"(
extern "C" __global__ void shift(float* p0) {
  __shared__ float shared[64];
  shared[threadIdx.x] = p0[threadIdx.x];
  BARRIER
  p0[threadIdx.x] = shared[(threadIdx.x + 1) % 64];
}
)";
constexpr char kDynamic[] = R"(
extern "C" __global__ void __launch_bounds__(64) reverse(float* p0) {
  extern __shared__ __align__(16) float shared[];
  shared[threadIdx.x] = p0[threadIdx.x];
  __syncthreads();
  p0[threadIdx.x] = shared[63 - threadIdx.x];
}
)";
constexpr char kGrid[] = R"(
struct Words { long long at[64]; };
extern "C" __global__ void positions(long long* p0, const Words words) {
  const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  p0[block * blockDim.x * blockDim.y * blockDim.z + thread] = words.at[thread];
}
)";

std::string racy(bool with_barrier) {
  std::string text = kRace;
  text.replace(text.find("BARRIER"), 7, with_barrier ? "__syncthreads();" : "");
  return text;
}

class CudaDriver : public EmulatedDriver {
 protected:
  std::vector<float> read(CUdeviceptr from, std::size_t count, CUstream on = nullptr) {
    std::vector<float> values(count);
    EXPECT_EQ(f.cuMemcpyDtoHAsync_v2(values.data(), from, count * sizeof(float), on), CUDA_SUCCESS);
    return values;
  }
  float* pinned(std::size_t count) {
    void* memory = nullptr;
    EXPECT_EQ(f.cuMemHostAlloc(&memory, count * sizeof(float), CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
    return static_cast<float*>(memory);
  }
};

TEST_F(CudaDriver, SaysWhatItIs) {
  restart({{"DRIVER", "12.4"}, {"COMPUTE", "8.6"}, {"GPU_NAME", "Test GPU"}, {"GPUS", "2"}, {"MEMORY", "3GiB"}});
  int version = 0, count = 0, major = 0, minor = 0;
  std::size_t bytes = 0;
  char name[64];
  EXPECT_EQ(f.cuDriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(f.cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(f.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1), CUDA_SUCCESS);
  EXPECT_EQ(f.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 1), CUDA_SUCCESS);
  EXPECT_EQ(f.cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
  EXPECT_EQ(f.cuDeviceTotalMem_v2(&bytes, 0), CUDA_SUCCESS);
  EXPECT_EQ(version, 12040);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(10 * major + minor, 86);
  EXPECT_STREQ(name, "Test GPU");
  EXPECT_EQ(bytes, std::size_t{3} << 30);
}

TEST_F(CudaDriver, HidesGpusAsToldByTheEnvironment) {
  setenv("CUDA_VISIBLE_DEVICES", "1,0,7,2", 1);
  restart_bare({{"GPUS", "4"}});
  int count = 0;
  EXPECT_EQ(f.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(f.cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(f.cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2) << "what follows a GPU that does not exist is hidden too";
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  restart_bare({{"GPUS", "4"}});
  EXPECT_EQ(f.cuInit(0), CUDA_ERROR_NO_DEVICE);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(CudaDriver, RunsAKernelThatNvrtcCompiled) {
  const CUfunction fill = kernel(kFill, "fill");
  const CUdeviceptr memory = allocate(1000 * sizeof(float));
  EXPECT_EQ(launch(fill, 8, 128, nullptr, memory, 2.5f, 1000), CUDA_SUCCESS);
  EXPECT_EQ(read(memory, 1000), std::vector<float>(1000, 2.5f));
  EXPECT_EQ(count("cuLaunchKernel"), 1);
  EXPECT_EQ(count("kernel"), 1);
}

TEST_F(CudaDriver, PassesGridsOfThreeDimensionsAndStructures) {
  const CUfunction positions = kernel(kGrid, "positions");
  const CUdeviceptr memory = allocate(24 * 24 * 8);
  struct {
    long long at[64];
  } words;
  for (int i = 0; i < 64; ++i) words.at[i] = 100 + i;
  CUdeviceptr address = memory;
  void* parameters[] = {&address, &words};
  EXPECT_EQ(f.cuLaunchKernel(positions, 2, 3, 4, 3, 4, 2, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  std::vector<long long> found(24 * 24);
  EXPECT_EQ(f.cuMemcpyDtoHAsync_v2(found.data(), memory, found.size() * 8, nullptr), CUDA_SUCCESS);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], 100 + static_cast<long long>(i % 24));
}

TEST_F(CudaDriver, DynamicSharedMemoryIsWhatTheLaunchAsksFor) {
  const CUfunction reverse = kernel(kDynamic, "reverse");
  const CUdeviceptr memory = allocate(64 * sizeof(float));
  std::vector<float> values(64);
  for (int i = 0; i < 64; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i);
  ASSERT_EQ(f.cuMemcpyHtoDAsync_v2(memory, values.data(), 256, nullptr), CUDA_SUCCESS);
  CUdeviceptr address = memory;
  void* parameters[] = {&address};
  EXPECT_EQ(f.cuLaunchKernel(reverse, 1, 1, 1, 64, 1, 1, 256, nullptr, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(read(memory, 64), std::vector<float>(values.rbegin(), values.rend()));
  EXPECT_EQ(f.cuLaunchKernel(reverse, 1, 1, 1, 64, 1, 1, 64 << 10, nullptr, parameters, nullptr), CUDA_ERROR_INVALID_VALUE)
      << "more than 48 KiB must be asked for";
  EXPECT_EQ(f.cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10), CUDA_SUCCESS);
  EXPECT_EQ(f.cuLaunchKernel(reverse, 1, 1, 1, 64, 1, 1, 64 << 10, nullptr, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(f.cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 << 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(f.cuLaunchKernel(reverse, 1, 1, 1, 64, 1, 1, 128, nullptr, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(f.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED) << "it wrote behind what it asked for";
}

TEST_F(CudaDriver, FreshMemoryIsPoisonAndFullMemoryAnError) {
  restart({{"MEMORY", "1MiB"}});
  const CUdeviceptr memory = allocate(512 << 10);
  EXPECT_TRUE(read(memory, 1)[0] != read(memory, 1)[0]) << "not a number";
  CUdeviceptr more = 0;
  EXPECT_EQ(f.cuMemAlloc_v2(&more, 600 << 10), CUDA_ERROR_OUT_OF_MEMORY);
  std::size_t free = 0, total = 0;
  EXPECT_EQ(f.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, std::size_t{512} << 10);
  EXPECT_EQ(f.cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(f.cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE) << "twice";
  EXPECT_EQ(f.cuMemAlloc_v2(&more, 600 << 10), CUDA_SUCCESS);
  EXPECT_EQ(figure("device_bytes"), 600 << 10);
  EXPECT_EQ(figure("device_bytes_peak"), 600 << 10);
}

TEST_F(CudaDriver, CopiesOutsideOfAnAllocationAreRefused) {
  const CUdeviceptr memory = allocate(100);
  char bytes[200] = {};
  EXPECT_EQ(f.cuMemcpyHtoDAsync_v2(memory, bytes, 101, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(f.cuMemcpyDtoHAsync_v2(bytes, memory + 60, 41, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(f.cuMemcpyHtoDAsync_v2(memory + 60, bytes, 40, nullptr), CUDA_SUCCESS);
}

TEST_F(CudaDriver, AnErrorOfAKernelStays) {
  const CUfunction fill = kernel(kFill, "fill");
  const CUdeviceptr memory = allocate(1000 * sizeof(float));
  EXPECT_EQ(launch(fill, 8, 128, nullptr, memory, 1.0f, 1001), CUDA_SUCCESS) << "a launch does not wait for its kernel";
  EXPECT_EQ(f.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS) << "it wrote over a guard zone";
  CUdeviceptr more = 0;
  EXPECT_EQ(f.cuMemAlloc_v2(&more, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(f.cuMemFree_v2(memory), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(figure("device_allocations"), 0) << "it is given back all the same";
}

TEST_F(CudaDriver, AKernelMayNotUseMemoryThatIsGone) {
  const CUfunction fill = kernel(kFill, "fill");
  const CUdeviceptr memory = allocate(64);
  ASSERT_EQ(f.cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(launch(fill, 1, 1, nullptr, memory, 1.0f, 1), CUDA_SUCCESS);
  EXPECT_EQ(f.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(CudaDriver, AKernelFarOutsideIsNamedBeforeTheProcessEnds) {
  const CUfunction fill = kernel(kFar, "far_away");
  const CUdeviceptr memory = allocate(64);
  EXPECT_DEATH(launch(fill, 1, 1, nullptr, memory), "kernel far_away, .* far outside");
}

TEST_F(CudaDriver, RacesShowWhereTheyAreLookedFor) {
  for (const bool with_barrier : {true, false}) {
    restart({{"RACES", "1"}});
    const CUfunction shift = kernel(racy(with_barrier), "shift");
    const CUdeviceptr memory = allocate(64 * sizeof(float));
    std::vector<float> values(64);
    for (int i = 0; i < 64; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i);
    ASSERT_EQ(f.cuMemcpyHtoDAsync_v2(memory, values.data(), 256, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(launch(shift, 1, 64, nullptr, memory), CUDA_SUCCESS);
    EXPECT_EQ(f.cuCtxSynchronize(), with_barrier ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
  }
}

TEST_F(CudaDriver, DelayedStreamsShowAMissingWait) {
  for (const bool waits : {true, false}) {
    restart({{"ORDER", "delayed"}});
    const CUfunction add = kernel(kAdd, "add");
    const CUdeviceptr from = allocate(4), to = allocate(4);
    float* const value = pinned(1);
    *value = 3;
    const CUstream copies = stream(), computes = stream();
    const CUevent copied = event(), cleared = event();
    ASSERT_EQ(f.cuMemsetD8Async(from, 0, 4, copies), CUDA_SUCCESS);
    ASSERT_EQ(f.cuMemsetD8Async(to, 0, 4, computes), CUDA_SUCCESS);
    ASSERT_EQ(f.cuEventRecord(cleared, copies), CUDA_SUCCESS);
    ASSERT_EQ(f.cuEventSynchronize(cleared), CUDA_SUCCESS);
    ASSERT_EQ(f.cuMemcpyHtoDAsync_v2(from, value, 4, copies), CUDA_SUCCESS);
    ASSERT_EQ(f.cuEventRecord(copied, copies), CUDA_SUCCESS);
    if (waits) { ASSERT_EQ(f.cuStreamWaitEvent(computes, copied, 0), CUDA_SUCCESS); }
    ASSERT_EQ(launch(add, 1, 1, computes, from, to), CUDA_SUCCESS);
    EXPECT_EQ(read(to, 1, computes)[0], waits ? 3.0f : 0.0f);
  }
}

TEST_F(CudaDriver, ADelayedCopyReadsPinnedMemoryWhenItRuns) {
  restart({{"ORDER", "delayed"}});
  const CUdeviceptr memory = allocate(8);
  float* const value = pinned(1);
  *value = 1;
  float ordinary = 1;
  const CUstream on = stream();
  ASSERT_EQ(f.cuMemcpyHtoDAsync_v2(memory, value, 4, on), CUDA_SUCCESS);
  EXPECT_EQ(count("synchronising"), 0);
  ASSERT_EQ(f.cuMemcpyHtoDAsync_v2(memory + 4, &ordinary, 4, on), CUDA_SUCCESS);
  EXPECT_EQ(count("synchronising"), 1) << "other memory is read at once";
  *value = ordinary = 2;
  EXPECT_EQ(read(memory, 2, on), (std::vector<float>{2, 1}));
}

TEST_F(CudaDriver, EventsAreReadyWhenTheirWorkIsDone) {
  for (const char* order : {"eager", "delayed"}) {
    restart({{"ORDER", order}});
    const CUdeviceptr memory = allocate(4);
    const CUstream on = stream();
    const CUevent done = event();
    EXPECT_EQ(f.cuEventQuery(done), CUDA_SUCCESS) << "never recorded";
    ASSERT_EQ(f.cuMemsetD8Async(memory, 0, 4, on), CUDA_SUCCESS);
    ASSERT_EQ(f.cuEventRecord(done, on), CUDA_SUCCESS);
    EXPECT_EQ(f.cuEventQuery(done), std::string_view(order) == "delayed" ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
    EXPECT_EQ(f.cuEventQuery(done), CUDA_SUCCESS) << "a host that asks again gets there";
  }
}

TEST_F(CudaDriver, DamagedImagesAndImagesOfOtherGpusAreRefused) {
  std::vector<char> image = compile(kFill);
  CUmodule module = nullptr;
  for (const std::size_t at : {std::size_t{2}, std::size_t{20}, std::size_t{30}, image.size() / 2, image.size() - 1}) {
    std::vector<char> damaged = image;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_EQ(f.cuModuleLoadDataEx(&module, damaged.data(), 0, nullptr, nullptr), CUDA_ERROR_INVALID_IMAGE) << at;
  }
  image = compile(kFill, "sm_80");
  EXPECT_EQ(f.cuModuleLoadDataEx(&module, image.data(), 0, nullptr, nullptr), CUDA_ERROR_NO_BINARY_FOR_GPU);
  restart({{"COMPUTE", "8.9"}});
  ASSERT_EQ(f.cuModuleLoadDataEx(&module, image.data(), 0, nullptr, nullptr), CUDA_SUCCESS);
  CUfunction function = nullptr;
  EXPECT_EQ(f.cuModuleGetFunction(&function, module, "missing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(figure("modules"), 1);
  EXPECT_EQ(f.cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(f.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(figure("modules"), 0);
}

TEST_F(CudaDriver, FailsTheCallThatItIsToldTo) {
  restart({{"FAIL", "cuMemAlloc_v2:2:2,kernel:1:719"}});
  CUdeviceptr memory = 0;
  EXPECT_EQ(f.cuMemAlloc_v2(&memory, 16), CUDA_SUCCESS);
  EXPECT_EQ(f.cuMemAlloc_v2(&memory, 16), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(f.cuMemAlloc_v2(&memory, 16), CUDA_SUCCESS);
  EXPECT_EQ(count("cuMemAlloc_v2"), 3);
  EXPECT_EQ(figure("device_allocations"), 2);
  EXPECT_EQ(launch(kernel(kFill, "fill"), 1, 1, nullptr, memory, 1.0f, 1), CUDA_SUCCESS);
  EXPECT_EQ(f.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(CudaDriver, StaleHandlesAreErrors) {
  const CUstream on = stream();
  const CUevent done = event();
  EXPECT_EQ(f.cuStreamDestroy_v2(on), CUDA_SUCCESS);
  EXPECT_EQ(f.cuStreamSynchronize(on), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(f.cuEventDestroy_v2(done), CUDA_SUCCESS);
  EXPECT_EQ(f.cuEventRecord(done, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace gcomp::tests
