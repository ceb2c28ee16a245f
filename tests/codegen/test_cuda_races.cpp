// Races that the emulator finds in watched kernels, and what it must not take for one.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ir/base/error.h"
#include "tests/cuda/shim/emulator.h"
#include "tests/cuda/shim/host_module.h"

namespace gcomp::cuda_shim {
namespace {

/// Kernels of one block of 64 threads, over memory of 64 ints, but for those that say two blocks.
constexpr char kRacingKernels[] = R"(
extern "C" __global__ void apart(int* p0) { p0[threadIdx.x] += 1; }
extern "C" __global__ void halves(int* p0) { ((short*)p0)[threadIdx.x] = ((signed char*)p0)[128 + threadIdx.x]; }
// Threads have a half of a word each, and read whole ones, as vectors of halves are.
extern "C" __global__ void words_of_halves(int* p0) {
  __shared__ int shared[32];
  ((short*)shared)[threadIdx.x] = 1;
  __syncthreads();
  p0[threadIdx.x] = shared[31 - threadIdx.x / 2];
}
extern "C" __global__ void words_of_halves_too_early(int* p0) {
  __shared__ int shared[32];
  ((short*)shared)[threadIdx.x] = 1;
  if (threadIdx.x % 2 == 1) p0[threadIdx.x] = shared[threadIdx.x / 2];
}
extern "C" __global__ void halves_of_words_too_early(int* p0) {
  __shared__ int shared[64];
  shared[threadIdx.x] = 1;
  p0[threadIdx.x] = ((short*)shared)[2 * (63 - threadIdx.x) + 1];
}
extern "C" __global__ void same_place(int* p0) { p0[0] = 1; }
extern "C" __global__ void barrier(int* p0) {
  __shared__ int shared[64];
  shared[threadIdx.x] = p0[threadIdx.x];
  __syncthreads();
  p0[threadIdx.x] = shared[63 - threadIdx.x];
}
extern "C" __global__ void no_barrier(int* p0) {
  __shared__ int shared[64];
  shared[threadIdx.x] = p0[threadIdx.x];
  p0[threadIdx.x] = shared[63 - threadIdx.x];
}
// The second round's writes meet the first one's reads, though all threads run in step.
extern "C" __global__ void written_again(int* p0) {
  __shared__ int shared[64];
  for (int round = 0; round < 2; ++round) {
    shared[threadIdx.x] = p0[threadIdx.x];
    __syncthreads();
    p0[threadIdx.x] = shared[63 - threadIdx.x];
  }
}
extern "C" __global__ void two_halves(int* p0) {
  __shared__ int shared[2][64];
  for (int round = 0; round < 3; ++round) {
    shared[round % 2][threadIdx.x] = p0[threadIdx.x];
    __syncthreads();
    p0[threadIdx.x] = shared[round % 2][63 - threadIdx.x];
  }
}
extern "C" __global__ void warp_barrier(int* p0) {
  __shared__ int shared[64];
  shared[threadIdx.x] = p0[threadIdx.x];
  __syncwarp();
  p0[threadIdx.x] = shared[threadIdx.x ^ 31];
}
extern "C" __global__ void other_warp(int* p0) {
  __shared__ int shared[64];
  shared[threadIdx.x] = p0[threadIdx.x];
  __syncwarp();
  p0[threadIdx.x] = shared[threadIdx.x ^ 32];
}
// A shuffle orders no memory.
extern "C" __global__ void shuffled(int* p0) {
  __shared__ int shared[64];
  shared[threadIdx.x] = p0[threadIdx.x];
  const int other = __shfl_xor_sync(0xffffffffu, 1, 31);
  p0[threadIdx.x] = shared[threadIdx.x ^ 31] + other;
}
extern "C" __global__ void read_by_lanes(int* p0) {
  __shared__ int shared;
  if (threadIdx.x == 0) shared = 1;
  __syncthreads();
  p0[threadIdx.x] = shared;
  __syncwarp();
  if (threadIdx.x == 0) shared = 2;
}
extern "C" __global__ void read_by_one_warp(int* p0) {
  __shared__ int shared;
  if (threadIdx.x == 0) shared = 1;
  __syncthreads();
  if (threadIdx.x < 32) {
    p0[threadIdx.x] = shared;
    __syncwarp();
    if (threadIdx.x == 0) shared = 2;
  }
}
extern "C" __global__ void dynamic_memory(int* p0) {
  extern __shared__ int dynamic[];
  dynamic[threadIdx.x] = 1;
  p0[threadIdx.x] = dynamic[0];
}
extern "C" __global__ void copied(int* p0) {
  __shared__ __align__(16) int shared[64];
  gcomp_shim::copy_async(&shared[threadIdx.x], p0 + threadIdx.x, 4, true);
  gcomp_shim::await_copies();
  __syncthreads();
  p0[threadIdx.x] = shared[63 - threadIdx.x];
}
extern "C" __global__ void copied_too_late(int* p0) {
  __shared__ __align__(16) int shared[64];
  gcomp_shim::copy_async(&shared[threadIdx.x], p0 + threadIdx.x, 4, true);
  __syncthreads();
  gcomp_shim::await_copies();
  p0[threadIdx.x] = shared[63 - threadIdx.x];
}
// Two blocks.
extern "C" __global__ void own_part(int* p0) {
  __shared__ int shared[32];
  shared[threadIdx.x % 32] = 1;
  __syncthreads();
  p0[blockIdx.x * 32 + threadIdx.x % 32] = shared[0];
}
extern "C" __global__ void other_blocks_part(int* p0) { p0[blockIdx.x * 32 + threadIdx.x] = p0[32]; }
extern "C" __global__ void read_and_then_written(int* p0) {
  const int first = p0[0];
  __syncthreads();
  if (blockIdx.x == 1 && first < 5) p0[0] = 1;
}
)";

class CudaRaces : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    module_ = std::make_unique<HostModule>(kRacingKernels, kernels_of(kRacingKernels), Watch::accesses);
  }
  static void TearDownTestSuite() { module_.reset(); }

  /// "" or what was found.
  std::string found(const std::string& kernel, unsigned blocks = 1, unsigned threads = 64) {
    std::vector<int> memory(64);
    void* pointer = memory.data();
    void* arguments[] = {&pointer, nullptr};
    try {
      emulator_.launch(module_->function(kernel), blocks, threads, arguments, kernel == "dynamic_memory" ? 256 : 0);
    } catch (const InternalError& error) { return error.what(); }
    return "";
  }

 private:
  static inline std::unique_ptr<HostModule> module_;
  Emulator emulator_;
};

TEST_F(CudaRaces, NoneWhereABarrierStandsBetween) {
  for (const char* kernel :
       {"apart", "halves", "words_of_halves", "barrier", "two_halves", "warp_barrier", "read_by_one_warp", "copied"})
    EXPECT_EQ(found(kernel), "") << kernel;
  EXPECT_EQ(found("own_part", 2, 32), "");
}

TEST_F(CudaRaces, FoundWhereNoneDoes) {
  for (const char* kernel : {"words_of_halves_too_early", "halves_of_words_too_early", "same_place", "no_barrier", "written_again",
                             "other_warp", "shuffled", "read_by_lanes", "dynamic_memory", "copied_too_late"})
    EXPECT_NE(found(kernel).find("a race: thread"), std::string::npos) << kernel;
  for (const char* kernel : {"other_blocks_part", "read_and_then_written"})
    EXPECT_NE(found(kernel, 2, 32).find("another block's thread"), std::string::npos) << kernel;
}

TEST_F(CudaRaces, SayWhoAndWhere) {
  const std::string race = found("no_barrier"), before = "block 0: a race: thread 32 writes byte ",
                    after = " of shared memory, which thread 31 read, and no barrier stands between";
  EXPECT_EQ(race.substr(0, before.size()), before);
  EXPECT_EQ(race.substr(race.size() - std::min(race.size(), after.size())), after);
}

TEST_F(CudaRaces, OneLaunchComesBehindTheOther) {
  EXPECT_EQ(found("apart"), "");
  EXPECT_NE(found("same_place"), "");
  EXPECT_EQ(found("apart"), "");
}

}  // namespace
}  // namespace gcomp::cuda_shim
