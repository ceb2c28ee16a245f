// What is timed without being asked for: a faster algorithm of cuBLASLt's takes the place of its favourite where both give the same
// bits, and nowhere else. The emulated library says how long its algorithms take, and adds in an order of its own for each where
// asked.
#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/cuda/matmul_timing.h"
#include "runtime/cuda/matmul_tuning.h"
#include "runtime/cuda/session.h"
#include "tests/cuda/emulated_libraries.h"
#include "tests/temporary_directory.h"

namespace gcomp::tests {
namespace {

using namespace gcomp::runtime;
using namespace gcomp::runtime::cuda;

/// A setting of the emulated libraries, which read it at each call.
class EmulatedSetting {
 public:
  EmulatedSetting(const char* name, const char* value) : name_(concat("GCOMP_EMULATED_", name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    setenv(name_.c_str(), value, 1);
  }
  ~EmulatedSetting() {
    if (before_) setenv(name_.c_str(), before_->c_str(), 1);
    else unsetenv(name_.c_str());
  }
  EmulatedSetting(const EmulatedSetting&) = delete;
  EmulatedSetting& operator=(const EmulatedSetting&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

constexpr char kFirstIsFaster[] = "10,20", kSecondIsFaster[] = "20,10";

struct ProductSizes {
  std::int64_t m = 0, n = 0, k = 0;
};
/// As many operations as it takes to be timed.
constexpr ProductSizes kLarge{512, 512, 256};

/// A program of one product of row-major matrices; its epilogue's bias is buffer 3.
Program program_of(const ProductSizes& s, DType dtype, std::optional<EpilogueKind> epilogue = {}) {
  Program program;
  const auto add = [&](const Shape& shape) {
    Buffer buffer{.name = concat("b", program.buffers.size()), .space = Space::arena, .type = {dtype, shape}, .contents = {}};
    buffer.offset = program.arena_bytes;
    program.arena_bytes += (buffer.type.bytes() + 255) / 256 * 256;
    program.buffers.push_back(std::move(buffer));
  };
  const auto rows = [](int buffer, std::int64_t columns) {
    return MatrixView{.buffer = buffer, .offset = 0, .batch_strides = {}, .row_stride = columns, .column_stride = 1};
  };
  add({s.m, s.k});
  add({s.k, s.n});
  add({s.m, s.n});
  MatmulCall call{.dtype = dtype,
                  .batch = {},
                  .m = s.m,
                  .n = s.n,
                  .k = s.k,
                  .a = rows(0, s.k),
                  .b = rows(1, s.n),
                  .c = rows(2, s.n),
                  .origin = "product"};
  if (epilogue) {
    add({s.n});
    call.epilogue.emplace();
    call.epilogue->library = LibraryEpilogue{*epilogue, 3, {}};
  }
  program.steps.emplace_back(std::move(call));
  return program;
}

class CudaEqualBits : public testing::Test {
 protected:
  CudaEqualBits() {
    const LibrarySearch search = emulated_libraries();
    const auto driver = Driver::open(search);
    session_.context = std::make_shared<Context>(driver, choose_gpu(*driver, 0));
    session_.compute = make_stream(session_.context);
    std::string reason;
    session_.cublaslt = CublasLt::open(session_.context, search, reason);
    EXPECT_NE(session_.cublaslt, nullptr) << reason;
    options_.cache_directory = folder_.path().string();
  }

  std::unique_ptr<CublasLtMatmul> plan(const Program& program) const {
    const auto& call = std::get<MatmulCall>(program.steps[0]);
    constexpr CUdeviceptr kSomewhere = CUdeviceptr{1} << 40;
    const LibraryEpilogue* epilogue = call.epilogue ? &*call.epilogue->library : nullptr;
    auto matmul = CublasLtMatmul::plan(session_.cublaslt, call, {kSomewhere, kSomewhere, kSomewhere, kSomewhere, kSomewhere},
                                       options_.precision, epilogue);
    EXPECT_TRUE(matmul && matmul->candidates().size() == 2);
    return matmul;
  }

  /// Which of the two algorithms is taken: its number, from 0.
  int taken(const Program& program) {
    MatmulTuning tuning(session_, options_);
    MatmulWays ways;
    ways.fused = plan(program);
    const MatmulAlgorithm first = ways.fused->candidates().at(0);
    const auto chosen = tuning.choose(std::move(ways), {program, std::get<MatmulCall>(program.steps[0]), {}});
    tuning.save();
    EXPECT_TRUE(tuning.choices().of.empty()) << "a training has nothing to keep";
    return chosen->chosen().workspace_bytes == first.workspace_bytes ? 0 : 1;
  }
  int taken(const ProductSizes& sizes, DType dtype) { return taken(program_of(sizes, dtype)); }

  bool are_alike(const ProductSizes& sizes, DType dtype) {
    const Program program = program_of(sizes, dtype);
    const auto& call = std::get<MatmulCall>(program.steps[0]);
    TrialNumbers numbers;
    const auto matmul = plan(program);
    const auto timing = MatmulTiming::make(session_, program, call, 1 << 20, numbers);
    return timing->are_alike(*matmul, matmul->candidates()[0], matmul->candidates()[1], {.of_matrix = 1});
  }

  const EmulatedSetting told_{"CUBLASLT_TIMES", "10"};  // before the driver, whose events then measure nothing else
  Session session_;
  DeviceOptions options_;
  gcomp::test::TemporaryDirectory folder_;
};

TEST_F(CudaEqualBits, AFasterAlgorithmIsTaken) {
  EXPECT_EQ(options_.tune, Tuning::equal_bits) << "that is what a device does by itself";
  const EmulatedSetting times("CUBLASLT_TIMES", kSecondIsFaster);
  for (const DType dtype : {DType::f32, DType::bf16}) EXPECT_EQ(taken(kLarge, dtype), 1) << name_of(dtype);
}

TEST_F(CudaEqualBits, AnotherOrderOfAdditionIsNot) {
  const EmulatedSetting times("CUBLASLT_TIMES", kSecondIsFaster), orders("CUBLASLT_ORDERS", "1");
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) EXPECT_EQ(taken(kLarge, dtype), 0) << name_of(dtype);
}

TEST_F(CudaEqualBits, WhatIsAsFastStays) {
  for (const char* equal : {"1000,1000", "1000,995"}) {
    const EmulatedSetting times("CUBLASLT_TIMES", equal);
    EXPECT_EQ(taken(kLarge, DType::f32), 0) << equal;
    std::filesystem::remove_all(folder_.path());
  }
}

TEST_F(CudaEqualBits, IsRememberedByTheCache) {
  {
    const EmulatedSetting times("CUBLASLT_TIMES", kSecondIsFaster);
    EXPECT_EQ(taken(kLarge, DType::f32), 1);
  }
  const EmulatedSetting times("CUBLASLT_TIMES", kFirstIsFaster);
  EXPECT_EQ(taken(kLarge, DType::f32), 1) << "it was timed again";
  options_.use_cache = false;
  EXPECT_EQ(taken(kLarge, DType::f32), 0);
}

TEST_F(CudaEqualBits, SmallProductsAndOffTakeNoTime) {
  const EmulatedSetting times("CUBLASLT_TIMES", kSecondIsFaster);
  EXPECT_EQ(taken({512, 512, 255}, DType::f32), 0);
  options_.tune = Tuning::off;
  EXPECT_EQ(taken(kLarge, DType::f32), 0);
}

/// Sums of a bias gradient are few: numbers have to change often before one would tell orders apart in 16 bits.
TEST_F(CudaEqualBits, AsManyNumbersAsItTakes) {
  const auto runs = [](const Program& program) {
    const auto& call = std::get<MatmulCall>(program.steps[0]);
    return runs_to_tell_apart(program, call, call.epilogue ? &*call.epilogue->library : nullptr);
  };
  EXPECT_EQ(runs(program_of(kLarge, DType::f32)), (TellingRuns{1, 0}));
  EXPECT_EQ(runs(program_of(kLarge, DType::bf16)), (TellingRuns{32, 0}));  // 128 / (2^18 * sqrt(256) / 2^20)
  EXPECT_EQ(runs(program_of({16384, 768, 768}, DType::bf16)), (TellingRuns{1, 0}));
  EXPECT_EQ(runs(program_of({16384, 3072, 768}, DType::bf16)), (TellingRuns{4, 0})) << "one line in 32";
  const ProductSizes weights{768, 3072, 16384};
  EXPECT_EQ(runs(program_of(weights, DType::bf16, EpilogueKind::bias_gradient_b)),
            (TellingRuns{1, 43}));  // 16 / (3072 * 2^7 / 2^20)
  EXPECT_EQ(runs(program_of(weights, DType::f32, EpilogueKind::bias_gradient_b)), (TellingRuns{1, 1}));
  EXPECT_EQ(runs(program_of({768, 64, 1024}, DType::bf16, EpilogueKind::bias_gradient_b)), std::nullopt) << "too many";
}

/// Its sums are compared beside the matrix.
TEST_F(CudaEqualBits, OfABiasGradientToo) {
  const EmulatedSetting times("CUBLASLT_TIMES", kSecondIsFaster);
  EXPECT_EQ(taken(program_of({512, 1024, 256}, DType::f32, EpilogueKind::bias_gradient_b)), 1);
}

/// Of results beyond 64 MiB some lines are compared.
TEST_F(CudaEqualBits, OfLargeResultsLinesAreCompared) {
  EXPECT_TRUE(are_alike({4160, 4096, 8}, DType::f32));
  const EmulatedSetting orders("CUBLASLT_ORDERS", "1");
  EXPECT_FALSE(are_alike({4160, 4096, 8}, DType::f32));
}

TEST_F(CudaEqualBits, AResultOverAnOperandIsLeftAlone) {
  const EmulatedSetting times("CUBLASLT_TIMES", kSecondIsFaster);
  Program program = program_of(kLarge, DType::f32);
  program.buffers[2].offset = program.buffers[0].offset;
  EXPECT_EQ(taken(program), 0);
}

}  // namespace
}  // namespace gcomp::tests
