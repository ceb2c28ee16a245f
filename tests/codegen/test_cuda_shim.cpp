// The emulator itself: it computes what a device would, and reports what a device would leave undefined.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "codegen/cuda/emit.h"
#include "ir/base/dtype.h"
#include "ir/base/error.h"
#include "ir/base/philox.h"
#include "tests/cuda/shim/emulator.h"
#include "tests/cuda/shim/host_module.h"

namespace gcomp::cuda_shim {
namespace {

constexpr char kKernels[] = R"(
extern "C" __global__ void block_sums(const float* p0, float* p1) {
  __shared__ float shared[4];
  float x = p0[blockIdx.x * blockDim.x + threadIdx.x];
  x = gc_combine_block<128>(x, gc_combine_sum(), shared);
  if (threadIdx.x == 0) p1[blockIdx.x] = x;
}
extern "C" __global__ void shuffles(int* p0) {
  const int lane = threadIdx.x % 32;
  p0[threadIdx.x * 4] = __shfl_xor_sync(0xffffffffu, lane, 5);
  p0[threadIdx.x * 4 + 1] = __shfl_down_sync(0xffffffffu, lane, 3u);
  p0[threadIdx.x * 4 + 2] = __shfl_sync(0xffffffffu, lane, 7);
  p0[threadIdx.x * 4 + 3] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
}
extern "C" __global__ void early_exit() {
  if (threadIdx.x == 5) return;
  __syncthreads();
}
extern "C" __global__ void split_barrier() {
  if (threadIdx.x % 2) __syncthreads();
  else
    __syncthreads();
}
extern "C" __global__ void lost_lane(float* p0) {
  if (threadIdx.x == 3) return;
  p0[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}
extern "C" __global__ void misaligned(float* p0) { gc_store_vector(p0 + 4 * threadIdx.x, {1.0f, 2.0f, 3.0f, 4.0f}); }
extern "C" __global__ void overrun(float* p0) { p0[threadIdx.x] = 1; }
extern "C" __global__ void shared_rubbish(unsigned* p0) {
  __shared__ unsigned shared[32];
  p0[blockIdx.x * 32 + threadIdx.x] = shared[threadIdx.x];
  shared[threadIdx.x] = 7;
}
extern "C" __global__ void widen(const gc_f16* p0, const gc_bf16* p1, float* p2, float* p3) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  p2[i] = gc_load(p0[i]);
  p3[i] = gc_load(p1[i]);
}
extern "C" __global__ void narrow(const float* p0, gc_f16* p1, gc_bf16* p2) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  p1[i] = gc_store_f16(p0[i]);
  p2[i] = gc_store_bf16(p0[i]);
}
extern "C" __global__ void saturate(const double* p0, signed char* p1, unsigned char* p2, int* p3, long long* p4, unsigned long long* p5) {
  p1[threadIdx.x] = gc_to_i8(p0[threadIdx.x]);
  p2[threadIdx.x] = gc_to_u8((float)p0[threadIdx.x]);
  p3[threadIdx.x] = gc_to_i32((float)p0[threadIdx.x]);
  p4[threadIdx.x] = gc_to_i64(p0[threadIdx.x]);
  p5[threadIdx.x] = gc_to_u64(p0[threadIdx.x]);
}
template <int kColumns, int kRows, int kLanes>
GC_DEVICE void sum_columns(const int* from, int* to) {
  __shared__ int shared[gc_joined_values<kColumns, kRows, kLanes>];
  int x[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) x[lane] = from[threadIdx.x * kLanes + lane];
  gc_combine_columns<kColumns, kRows>(x, gc_combine_sum(), shared);
  for (int lane = 0; lane < kLanes; ++lane) to[threadIdx.x * kLanes + lane] = x[lane];
}
extern "C" __global__ void columns_8_32_4(const int* p0, int* p1) { sum_columns<8, 32, 4>(p0, p1); }
extern "C" __global__ void columns_4_8_8(const int* p0, int* p1) { sum_columns<4, 8, 8>(p0, p1); }
extern "C" __global__ void columns_1_64_2(const int* p0, int* p1) { sum_columns<1, 64, 2>(p0, p1); }
extern "C" __global__ void columns_64_4_1(const int* p0, int* p1) { sum_columns<64, 4, 1>(p0, p1); }
extern "C" __global__ void vector_starts(const long long* p0, int* p1, long long* p2) {
  p1[threadIdx.x] = gc_vector_start<8, int>(p0[threadIdx.x]);
  p2[threadIdx.x] = gc_vector_start<8, long long>(p0[threadIdx.x]);
}
extern "C" __global__ void philox(uint4* p0) {
  p0[0] = gc_philox(0, uint4{0, 0, 0, 0});
  p0[1] = gc_philox(0x0123456789abcdefull, uint4{1, 2, 3, 4});
}
extern "C" __global__ void updates(const int* p0, int* p1, int* p2) {
  __shared__ int places[512], starts[9], tallies[32], counts[4];
  __shared__ unsigned short keys[512], order[512];
  int listed = 0;
  for (int base = 0; base < 512; base += 256) {
    int found[2];
    for (int k = 0; k < 2; ++k) found[k] = p0[base + ((int)threadIdx.x / 32 * 2 + k) * 32 + (int)threadIdx.x % 32];
    listed = gc_list_updates<128>(found, base, listed, places, keys, counts);
  }
  gc_sort_updates<128, 8>(keys, listed, order, starts, tallies);
  for (int i = (int)threadIdx.x; i < listed; i += 128) p1[i] = places[order[i]];
  if (threadIdx.x < 9) p2[threadIdx.x] = starts[threadIdx.x];
}
)";

class CudaShim : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    module_ = std::make_unique<HostModule>(
        std::string(codegen::cuda::prelude()) + kKernels,
        std::vector<std::string>{"block_sums", "shuffles", "early_exit", "split_barrier", "lost_lane", "misaligned", "overrun",
                                 "shared_rubbish", "widen", "narrow", "saturate", "vector_starts", "philox", "updates",
                                 "columns_8_32_4", "columns_4_8_8", "columns_1_64_2", "columns_64_4_1"});
  }
  static void TearDownTestSuite() { module_.reset(); }

  template <class... P>
  LaunchCounts launch(const std::string& kernel, unsigned blocks, unsigned threads, P*... pointers) {
    void* arguments[] = {&pointers..., nullptr};
    return emulator_.launch(module_->function(kernel), blocks, threads, arguments);
  }
  std::string failure(const std::string& kernel, unsigned threads, float* memory = nullptr) {
    try {
      launch(kernel, 1, threads, memory);
    } catch (const InternalError& error) { return error.what(); }
    return "";
  }

 private:
  static inline std::unique_ptr<HostModule> module_;
  Emulator emulator_;
};

// Numbers that no index of 32 bits is lie in no vector of theirs.
TEST_F(CudaShim, FindsTheVectorOfAPosition) {
  std::vector<long long> numbers{0, 7, 8, 23, -1, -100, 0x7fffffff, 0x100000008};
  std::vector<int> starts(numbers.size());
  std::vector<long long> wide(numbers.size());
  launch("vector_starts", 1, static_cast<unsigned>(numbers.size()), numbers.data(), starts.data(), wide.data());
  EXPECT_EQ(starts, (std::vector<int>{0, 0, 8, 16, -1, -1, 0x7ffffff8, -1}));
  EXPECT_EQ(wide, (std::vector<long long>{0, 0, 8, 16, -1, -1, 0x7ffffff8, 0x100000008}));
}

TEST_F(CudaShim, JoinsOverABlock) {
  std::vector<float> x(3 * 128), sums(3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const LaunchCounts counts = launch("block_sums", 3, 128, x.data(), sums.data());
  for (std::size_t b = 0; b < 3; ++b) EXPECT_EQ(sums[b], static_cast<float>(128 * (128 * b + 128 * b + 127) / 2));
  EXPECT_EQ(counts.barriers, 3 * 2);
  EXPECT_EQ(counts.exchanges, 3 * 4 * 5);
}

TEST_F(CudaShim, ExchangesWithinAWarp) {
  std::vector<int> found(64 * 4);
  launch("shuffles", 1, 64, found.data());
  for (int t = 0; t < 64; ++t) {
    const int lane = t % 32;
    EXPECT_EQ(found[static_cast<std::size_t>(4 * t)], lane ^ 5);
    EXPECT_EQ(found[static_cast<std::size_t>(4 * t + 1)], lane + 3 < 32 ? lane + 3 : lane);
    EXPECT_EQ(found[static_cast<std::size_t>(4 * t + 2)], 7);
    EXPECT_EQ(static_cast<unsigned>(found[static_cast<std::size_t>(4 * t + 3)]), 0x49249249u);
  }
}

TEST_F(CudaShim, ReportsWhatADeviceLeavesUndefined) {
  alignas(16) float memory[64] = {};
  EXPECT_NE(failure("early_exit", 64).find("63 threads wait at the barrier"), std::string::npos) << failure("early_exit", 64);
  EXPECT_NE(failure("split_barrier", 64).find("at once"), std::string::npos) << failure("split_barrier", 64);
  EXPECT_NE(failure("lost_lane", 32, memory).find("which has left"), std::string::npos) << failure("lost_lane", 32, memory);
  EXPECT_EQ(failure("misaligned", 2, memory), "");
  const std::string misaligned = failure("misaligned", 2, memory + 1);
  EXPECT_NE(misaligned.find("thread 0 moves 16 bytes at 4 beyond a multiple of as many"), std::string::npos) << misaligned;
  EXPECT_EQ(failure("overrun", 64, memory), "") << "the emulator works on after a failure";
}

TEST_F(CudaShim, GuardZonesShowWritesBesideABuffer) {
  GuardedMemory memory(32 * sizeof(float));
  launch("overrun", 1, 32, reinterpret_cast<float*>(memory.data()));
  EXPECT_EQ(memory.damage(), "");
  launch("overrun", 1, 33, reinterpret_cast<float*>(memory.data()));
  EXPECT_EQ(memory.damage(), "memory behind the buffer was written");
}

TEST_F(CudaShim, SharedMemoryStartsAsRubbishInEachBlock) {
  std::vector<unsigned> found(64);
  launch("shared_rubbish", 2, 32, found.data());
  for (unsigned x : found) EXPECT_EQ(x, 0xa5a5a5a5u);
}

TEST_F(CudaShim, EveryHalfWidensAsTheInterpreterHasIt) {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> f16(bits.size()), bf16(bits.size());
  launch("widen", 256, 256, bits.data(), bits.data(), f16.data(), bf16.data());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const float a = f16_to_float(bits[i]), b = bf16_to_float(bits[i]);
    ASSERT_TRUE(f16[i] == a || (f16[i] != f16[i] && a != a)) << i << ": " << f16[i] << " and " << a;
    ASSERT_TRUE(bf16[i] == b || (bf16[i] != bf16[i] && b != b)) << i << ": " << bf16[i] << " and " << b;
  }
}

TEST_F(CudaShim, FloatsNarrowAsTheInterpreterHasIt) {
  // Every f16 value, the midpoint to the next, and both neighbours of the midpoint; the same for bf16 by its bits.
  std::vector<float> x;
  for (std::uint32_t i = 0; i < 0x7c00; ++i) {
    const float low = f16_to_float(static_cast<std::uint16_t>(i)),
                high = i == 0x7bff ? 65536.0f : f16_to_float(static_cast<std::uint16_t>(i + 1)), middle = (low + high) / 2;
    for (float v : {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) x.push_back(v);
  }
  for (std::uint32_t i = 0; i < 0x8000; i += 7)
    for (std::uint32_t tail : {0x7fffu, 0x8000u, 0x8001u}) {
      const std::uint32_t bits = i << 16 | tail;
      float v;
      std::memcpy(&v, &bits, sizeof v);
      x.push_back(-v);
    }
  x.push_back(std::numeric_limits<float>::infinity());
  x.resize((x.size() + 255) / 256 * 256);
  std::vector<std::uint16_t> f16(x.size()), bf16(x.size());
  launch("narrow", static_cast<unsigned>(x.size() / 256), 256, x.data(), f16.data(), bf16.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] != x[i]) {
      EXPECT_TRUE(f16_to_float(f16[i]) != f16_to_float(f16[i]));
      continue;
    }
    ASSERT_EQ(f16[i], float_to_f16(x[i])) << x[i];
    ASSERT_EQ(bf16[i], float_to_bf16(x[i])) << x[i];
  }
}

TEST_F(CudaShim, CastsToIntegersSaturate) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> x = {0,      1.9,     -1.9,   127.9,    128,       -129,        255.9, 256, 2147483648.0, -2147483904.0,
                           9.3e18, -9.3e18, 1.9e19, infinity, -infinity, std::nan("")};
  std::vector<signed char> i8(x.size());
  std::vector<unsigned char> u8(x.size());
  std::vector<int> i32(x.size());
  std::vector<std::int64_t> i64(x.size());
  std::vector<std::uint64_t> u64(x.size());
  launch("saturate", 1, static_cast<unsigned>(x.size()), x.data(), i8.data(), u8.data(), i32.data(), i64.data(), u64.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(i8[i], round_to(DType::i8, x[i])) << x[i];
    EXPECT_EQ(u8[i], round_to(DType::u8, x[i])) << x[i];
    EXPECT_EQ(i32[i], round_to(DType::i32, x[i])) << x[i];
    EXPECT_EQ(static_cast<double>(i64[i]), round_to(DType::i64, x[i])) << x[i];
    EXPECT_EQ(static_cast<double>(u64[i]), round_to(DType::u64, x[i])) << x[i];
  }
}

TEST_F(CudaShim, PhiloxGivesItsPublishedWords) {
  std::uint32_t found[8] = {};
  launch("philox", 1, 1, found);
  EXPECT_EQ((std::vector<std::uint32_t>(found, found + 4)),
            (std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const auto expected = philox4x32_10({1, 2, 3, 4}, philox_key(0x0123456789abcdefull));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(found[4 + i], expected[i]);
}

// Within a warp, across warps with several columns in each, and with columns wider than a warp.
TEST_F(CudaShim, JoinsColumnsOfLanes) {
  struct Case {
    const char* kernel;
    unsigned columns, rows, lanes;
  };
  for (const auto& [kernel, columns, rows, lanes] : {Case{"columns_8_32_4", 8, 32, 4}, Case{"columns_4_8_8", 4, 8, 8},
                                                     Case{"columns_1_64_2", 1, 64, 2}, Case{"columns_64_4_1", 64, 4, 1}}) {
    const std::size_t width = std::size_t{columns} * lanes;
    std::vector<int> x(width * rows), found(width * rows), expected(width * rows);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int>(i * i % 1001);
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t row = 0; row < rows; ++row) expected[i] += x[row * width + i % width];
    launch(kernel, 1, columns * rows, x.data(), found.data());
    EXPECT_EQ(found, expected) << kernel;
  }
}

TEST_F(CudaShim, ListsUpdatesAndSortsThemByDestination) {
  std::vector<int> keys(512), found(512, -1), starts(9), expected;
  for (int i = 0; i < 512; ++i) keys[static_cast<std::size_t>(i)] = i * i % 11 < 8 ? i * i % 11 : -1;
  for (int i = 0; i < 512; ++i)
    if (keys[static_cast<std::size_t>(i)] >= 0) expected.push_back(i);
  const auto key = [&](int update) { return keys[static_cast<std::size_t>(update)]; };
  std::stable_sort(expected.begin(), expected.end(), [&](int a, int b) { return key(a) < key(b); });
  launch("updates", 1, 128, keys.data(), found.data(), starts.data());
  for (int k = 0; k <= 8; ++k)
    EXPECT_EQ(starts[static_cast<std::size_t>(k)],
              std::count_if(expected.begin(), expected.end(), [&](int u) { return key(u) < k; }));
  expected.resize(512, -1);
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace gcomp::cuda_shim
