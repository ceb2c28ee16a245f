#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "ir/base/nearest.h"
#include "ir/base/philox.h"
#include "runtime/batch_plan.h"
#include "runtime/convert.h"
#include "runtime/dataset.h"
#include "runtime/row_reader.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp {
namespace {

using PhiloxWords = std::array<std::uint32_t, 4>;

// The known answers that Random123, the authors' own implementation, is tested with.
static_assert(philox4x32_10({0, 0, 0, 0}, {0, 0}) == PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

TEST(Nearest, DistancesAndChoices) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("lable", "label"), 1);
  EXPECT_EQ(edit_distance("Label", "label"), 0);
  const std::vector<std::string> losses = {"cross_entropy", "mse", "bce", "bce_with_logits", "l1"};
  EXPECT_EQ(nearest("cross_entrpoy", losses), "cross_entropy");
  EXPECT_EQ(nearest("msee", losses), "mse");
  EXPECT_EQ(nearest("cros", losses), "cross_entropy");
  EXPECT_EQ(nearest("cr", losses), std::nullopt);
  EXPECT_EQ(nearest("huber", losses), std::nullopt);
  EXPECT_EQ(nearest("x", std::vector<std::string>{"y"}), std::nullopt);
  EXPECT_EQ(did_you_mean("MSE", losses), "; did you mean 'mse'?");
  EXPECT_EQ(listing(losses), "'cross_entropy', 'mse', 'bce', 'bce_with_logits' and 'l1'");
  EXPECT_EQ(listing(std::vector<std::string>(12, "a")), "'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a' and 2 more");
}

}  // namespace

namespace runtime {
namespace {

using test::TemporaryDirectory;
using test::user_error;

std::vector<std::int64_t> rows_of(BatchPlan& plan, std::int64_t step) {
  const auto rows = plan.rows_of(step);
  return {rows.begin(), rows.end()};
}

TEST(BatchPlan, SequentialTakesRowsInOrderAndDropsTheRest) {
  BatchPlan plan(11, 3, 1, RowOrder::sequential);
  EXPECT_EQ(plan.steps_per_epoch(), 3);
  EXPECT_EQ(plan.dropped_rows(), 2);
  EXPECT_EQ(rows_of(plan, 0), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(rows_of(plan, 2), (std::vector<std::int64_t>{6, 7, 8}));
  EXPECT_EQ(rows_of(plan, 3), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(plan.epoch_of(2), 0);
  EXPECT_EQ(plan.epoch_of(3), 1);
}

TEST(BatchPlan, AnEpochIsAPermutationAndAPureFunctionOfSeedAndEpoch) {
  BatchPlan forwards(100, 10, 7, RowOrder::shuffled), backwards(100, 10, 7, RowOrder::shuffled);
  std::vector<std::vector<std::int64_t>> steps(30);
  for (std::int64_t step = 0; step < 30; ++step) steps[static_cast<std::size_t>(step)] = rows_of(forwards, step);
  for (std::int64_t step = 29; step >= 0; --step) EXPECT_EQ(rows_of(backwards, step), steps[static_cast<std::size_t>(step)]);
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::int64_t> seen;
    for (std::size_t i = 0; i < 10; ++i) seen.insert(steps[epoch * 10 + i].begin(), steps[epoch * 10 + i].end());
    EXPECT_EQ(seen.size(), 100u);
  }
  EXPECT_NE(steps[0], steps[10]);
  BatchPlan other_seed(100, 10, 8, RowOrder::shuffled);
  EXPECT_NE(rows_of(other_seed, 0), steps[0]);
}

/// The order itself is a promise: what was trained yesterday must come out the same tomorrow.
TEST(BatchPlan, OrderIsPinned) {
  const KeyedPermutation order = order_of_epoch(10, 1, 2);
  std::vector<std::int64_t> rows;
  for (std::int64_t position = 0; position < 10; ++position) rows.push_back(order(position));
  EXPECT_EQ(rows, (std::vector<std::int64_t>{1, 3, 2, 4, 7, 9, 0, 8, 6, 5}));
}

TEST(BatchPlan, StepsOfManyRowsNeedNoMemory) {
  const std::int64_t rows = std::int64_t{1} << 40;
  const BatchPlan plan(rows, 4, 3, RowOrder::shuffled);
  std::set<std::int64_t> seen;
  for (std::int64_t step = 0; step < 1000; ++step) {
    std::array<std::int64_t, 4> some{};
    plan.rows_of(step * 1'000'003, some);
    seen.insert(some.begin(), some.end());
  }
  EXPECT_EQ(seen.size(), 4000u);
  EXPECT_GE(*seen.begin(), 0);
  EXPECT_LT(*seen.rbegin(), rows);
}

TEST(BatchPlan, ShuffleIsUniform) {
  constexpr int kEpochs = 24'000;
  std::map<std::vector<std::int64_t>, int> counts;
  std::vector<std::int64_t> rows(4);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const KeyedPermutation order = order_of_epoch(4, 99, epoch);
    for (std::size_t position = 0; position < rows.size(); ++position) rows[position] = order(static_cast<std::int64_t>(position));
    ++counts[rows];
  }
  ASSERT_EQ(counts.size(), 24u);
  double chi_squared = 0;
  for (const auto& [order, count] : counts) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_squared, 49.7);  // the 99.9 % point of 23 degrees of freedom
}

TEST(BatchPlan, ABatchLargerThanTheDataIsRefused) {
  EXPECT_EQ(user_error([] { BatchPlan(50, 64, 1, RowOrder::shuffled); }),
            "a batch of 64 rows, but the data has 50; give --batch 50 or less");
  EXPECT_THROW(BatchPlan(50, 0, 1, RowOrder::shuffled), UserError);
}

Dataset small_dataset() {
  return Dataset("d.npz", {{"x", Tensor::of(DType::f64, {3, 2}, {0, 0.5, 1, 1.5, 2, 1e-3})},
                           {"label", Tensor::of(DType::i64, {3}, {0, -100, 2})}});
}

TEST(Dataset, GathersRowsConvertedToTheInputsType) {
  const Dataset data = small_dataset();
  RowReader reader(data);
  reader.require("x", {DType::f32, {64, 2}});
  reader.require("label", {DType::i32, {64}});
  Tensor x(DType::f32, {4, 2}), label(DType::i32, {4});
  const std::int64_t rows[] = {2, 0, 2, 1};
  reader.gather(reader.find("x"), rows, x.bytes());
  reader.gather(reader.find("label"), rows, label.bytes());
  EXPECT_EQ(x, Tensor::of(DType::f32, {4, 2}, {2, 1e-3, 0, 0.5, 2, 1e-3, 1, 1.5}));
  EXPECT_EQ(label, Tensor::of(DType::i32, {4}, {2, 0, 2, -100}));
  EXPECT_THROW(reader.gather(0, rows, label.bytes()), InternalError);
}

TEST(Dataset, WhatIsConvertedLiesThereOnceAsItWasStored) {
  const Dataset data = small_dataset();
  const std::byte* const stored = data.array("x").data();
  RowReader(data).require("x", {DType::f32, {64, 2}});
  EXPECT_EQ(data.array("x").dtype(), DType::f64);
  EXPECT_EQ(data.array("x").data(), stored);
}

TEST(Dataset, MismatchesAreNamed) {
  const Dataset data = small_dataset();
  RowReader reader(data);
  EXPECT_EQ(user_error([&] {
              reader.require("inputs", {DType::f32, {64, 2}});
            }),
            "'d.npz' has no array 'inputs', it has 'x' and 'label'");
  EXPECT_EQ(user_error([&] {
              reader.require("lable", {DType::i64, {64}});
            }),
            "'d.npz' has no array 'lable', it has 'x' and 'label'; did you mean 'label'?");
  EXPECT_EQ(user_error([&] {
              reader.require("x", {DType::f32, {64, 3}});
            }),
            "'d.npz', array 'x': each row is f64[2], wanted f32[3]");
  EXPECT_EQ(user_error([&] { reader.require("x", {DType::f32, {64}}); }), "'d.npz', array 'x': each row is f64[2], wanted f32[]");
  EXPECT_EQ(
      user_error([&] {
        reader.require("label", {DType::f32, {64}});
      }),
      "'d.npz', array 'label': dtype i64, wanted f32; gcomp does not turn integers into floats unasked: convert the array first");
  EXPECT_EQ(user_error([&] {
              reader.require("label", {DType::u8, {64}});
            }),
            "'d.npz', array 'label', row 1: the value -100 does not fit u8");
}

/// Ten lines of a program's own: rows that lie nowhere.
struct CountedRows final : gcomp::Dataset {
  std::int64_t rows() const override { return 300; }
  std::vector<NamedType> arrays() const override { return {{"x", {DType::f64, {2}}}, {"label", {DType::i64, {}}}}; }
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    const double x[] = {static_cast<double>(row), 0.5};
    std::memcpy(bytes.data(), array == 0 ? static_cast<const void*>(x) : &row, bytes.size());
  }
};

TEST(Dataset, OneOfAProgramsOwnIsConvertedAsArraysAre) {
  const CountedRows data;
  RowReader reader(data);
  reader.require("x", {DType::f32, {64, 2}});
  reader.require("label", {DType::u8, {64}});
  Tensor x(DType::f32, {2, 2}), label(DType::u8, {2});
  const std::int64_t rows[] = {7, 3}, beyond[] = {255, 256};
  reader.gather(0, rows, x.bytes());
  reader.gather(1, rows, label.bytes());
  EXPECT_EQ(x, Tensor::of(DType::f32, {2, 2}, {7, 0.5, 3, 0.5}));
  EXPECT_EQ(label, Tensor::of(DType::u8, {2}, {7, 3}));
  EXPECT_EQ(user_error([&] { reader.gather(1, beyond, label.bytes()); }),
            "'the data', array 'label', row 256: the value 256 does not fit u8");
  EXPECT_EQ(user_error([&] {
              reader.require("x", {DType::f32, {64, 3}});
            }),
            "'the data', array 'x': each row is f64[2], wanted f32[3]");
  EXPECT_NE(user_error([&] { reader.require("label", {DType::f32, {64}}); }).find("dtype i64, wanted f32"), std::string::npos);
}

TEST(Dataset, RowsMustAgree) {
  EXPECT_EQ(user_error([] {
              Dataset("d.npz", {{"x", Tensor(DType::f32, {3, 2})}, {"label", Tensor(DType::i64, {4})}});
            }),
            "'d.npz': array 'x' has 3 rows, but array 'label' has 4");
  EXPECT_EQ(user_error([] {
              Dataset("d.npz", {{"x", Tensor::scalar(DType::f32, 1)}});
            }),
            "'d.npz', array 'x': it is a scalar, wanted one row for each sample");
}

TEST(Dataset, OpensOnlyWhatIsAskedFor) {
  const TemporaryDirectory directory;
  const std::vector<NamedTensor> arrays = {
      {"x", Tensor(DType::f32, {3, 2})}, {"names", Tensor(DType::u8, {10})}, {"label", Tensor(DType::i64, {3})}};
  write_npz(directory / "d.npz", arrays);
  const std::vector<std::string> names = {"x", "label"}, misspelt = {"x", "labels"};
  const Dataset data = Dataset::open(directory / "d.npz", names);
  EXPECT_EQ(data.rows(), 3);
  EXPECT_EQ(data.unused(), std::vector<std::string>{"names"});
  EXPECT_EQ(data.array("label"), arrays[2].second);
  EXPECT_NE(user_error([&] {
              Dataset::open(directory / "d.npz", misspelt);
            }).find("has no array 'labels', it has 'x', 'names' and 'label'; did you mean 'label'?"),
            std::string::npos);
}

TEST(Convert, KeepsValuesOrRefuses) {
  for (DType from : kAllDTypes)
    for (DType to : kAllDTypes) {
      const Tensor tensor = Tensor::of(from, {2}, {1, 0});
      if (is_float(from) == is_float(to))
        EXPECT_EQ(convert(tensor, to, "x"), Tensor::of(to, {2}, {1, 0})) << name_of(from) << name_of(to);
      else EXPECT_THROW(convert(tensor, to, "x"), UserError) << name_of(from) << name_of(to);
    }
  Tensor large(DType::u64, {2, 2});
  large.as<std::uint64_t>()[3] = UINT64_MAX;
  EXPECT_EQ(user_error([&] { convert(large, DType::i64, "x"); }), "x, row 1: the value 18446744073709551615 does not fit i64");
  EXPECT_EQ(user_error([&] { convert(Tensor::of(DType::i8, {1}, {-1}), DType::u64, "x"); }),
            "x, row 0: the value -1 does not fit u64");
  EXPECT_EQ(user_error([&] { convert(Tensor::of(DType::i8, {1}, {2}), DType::boolean, "x"); }),
            "x, row 0: the value 2 does not fit bool");
  EXPECT_EQ(user_error([&] { convert(Tensor::scalar(DType::i16, 128), DType::i8, "x"); }), "x: the value 128 does not fit i8");
  EXPECT_EQ(user_error([&] { convert(Tensor::of(DType::f64, {1}, {1e300}), DType::f32, "x"); }),
            "x, row 0: the value 1e+300 does not fit f32");
  EXPECT_EQ(convert(Tensor::of(DType::f64, {2}, {INFINITY, NAN}), DType::f32, "x"), Tensor::of(DType::f32, {2}, {INFINITY, NAN}));
  EXPECT_EQ(user_error([&] { convert(Tensor::of(DType::f32, {1}, {3.4e38}), DType::bf16, "x"); }),
            "x, row 0: the value 3.4e+38 does not fit bf16");
  Tensor exact(DType::i64, {1});
  exact.as<std::int64_t>()[0] = INT64_MAX;
  EXPECT_EQ(convert(convert(exact, DType::u64, "x"), DType::i64, "x"), exact);
}

}  // namespace
}  // namespace runtime
}  // namespace gcomp
