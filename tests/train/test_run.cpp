// gcomp run goes through rows by batches: one program for any number of them, and memory for one batch.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/files/npz.h"
#include "runtime/files/npz_stream.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using runtime::test::TemporaryDirectory;

Tensor first_rows(const Tensor& tensor, std::int64_t rows) {
  TensorType type = tensor.type();
  const std::int64_t row_bytes = type.bytes() / type.shape[0];
  type.shape[0] = rows;
  Tensor part(type);
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(part.data() + row * row_bytes, tensor.data() + row % tensor.shape()[0] * row_bytes,
                static_cast<std::size_t>(row_bytes));
  return part;
}

/// The first rows of a recorded model's training data, over and over.
void write_rows(const std::filesystem::path& path, const RecordedModel& model, std::int64_t rows) {
  std::vector<runtime::NamedTensor> arrays;
  for (const auto& [name, tensor] : load_arrays(model.data())) arrays.emplace_back(name, first_rows(tensor, rows));
  runtime::write_npz(path, arrays);
}

CommandResult run_rows(const TemporaryDirectory& folder, const RecordedModel& model, std::int64_t rows,
                       std::vector<std::string> more = {}, const CommandOptions& options = {}) {
  const std::string inputs = folder / concat("in", rows, ".npz"), outputs = folder / concat("out", rows, ".npz");
  write_rows(inputs, model, rows);
  more.insert(more.begin(), {"run", model.model(), "--inputs", inputs, "--outputs", outputs});
  CommandResult result = run_gcomp(more, options);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return result;
}

std::ptrdiff_t files_in(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::recursive_directory_iterator(folder), {});
}

TEST(Run, OneProgramAndTheSameBitsForAnyNumberOfRows) {
  const TemporaryDirectory folder;
  const RecordedModel model = recorded_model("mnist_cnn");
  const CommandOptions options{.environment = {concat("XDG_CACHE_HOME=", folder / "cache")}, .limits = {}};
  const std::int64_t batch = on_another_device() ? 1024 : 128, more = batch + 72;  // gcomp/driver/row_batches.h
  run_rows(folder, model, 5, {}, options);
  const auto cached = std::filesystem::exists(folder / "cache") ? files_in(folder / "cache") : 0;
  const CommandResult longer = run_rows(folder, model, more, {}, options);
  EXPECT_NE(longer.errors.find(concat(" rows, which run in batches of ", batch)), std::string::npos) << longer.errors;
  EXPECT_EQ(std::filesystem::exists(folder / "cache") ? files_in(folder / "cache") : 0, cached) << "it compiled again";
  const Tensor few = load_arrays(folder / "out5.npz").at("output"),
               many = load_arrays(folder / concat("out", more, ".npz")).at("output");
  EXPECT_EQ(many.shape(), (Shape{more, 10}));
  EXPECT_EQ(first_rows(many, 5), few);
}

TEST(Run, MemoryDoesNotGrowWithTheRows) {
  if (on_another_device()) GTEST_SKIP() << "a GPU's driver takes memory of its own";
  const TemporaryDirectory folder;
  const RecordedModel model = recorded_model("mlp");
  const Tensor x = first_rows(load_arrays(model.data()).at("x"), 250);
  // A process starts with the peak of the one that starts it, so this one must stay small too.
  const auto peak_of = [&](std::int64_t rows) {
    runtime::NpzStream in(folder / "in.npz", {{"x", {x.dtype(), {rows, x.shape()[1]}}}});
    for (std::int64_t done = 0; done < rows; done += x.shape()[0]) in.append(0, x.bytes());
    in.commit();
    const CommandResult result =
        run_gcomp({"run", model.model(), "--inputs", folder / "in.npz", "--outputs", folder / "out.npz", "--threads", "1"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(runtime::NpzFile(folder / "out.npz").type("output").shape[0], rows);
    return result.peak_bytes;
  };
  constexpr std::int64_t kRows = 1'000'000, kBytes = kRows * 80;  // of inputs
  const std::int64_t few = peak_of(250);
  EXPECT_LT(peak_of(kRows), few + kBytes / 2);
}

TEST(Run, RowsThatDependOnEachOtherRunAtOnce) {
  const TemporaryDirectory folder;
  const CommandResult result = run_rows(folder, recorded_model("mnist_cnn"), 200, {"--training"});
  EXPECT_NE(result.errors.find("all rows run at once: node '"), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("BatchNormalization run in training form"), std::string::npos) << result.errors;
}

TEST(Run, AnIndexOutOfRangeIsNamedByItsRowInTheFile) {
  const TemporaryDirectory folder;
  const RecordedModel model = recorded_model("gpt_tiny");
  std::vector<runtime::NamedTensor> arrays;
  for (const auto& [name, tensor] : load_arrays(model.data())) arrays.emplace_back(name, first_rows(tensor, 700));
  for (auto& [name, tensor] : arrays)
    if (name != "label") tensor.set(690 * tensor.elements() / 700, 1e6);
  runtime::write_npz(folder / "in.npz", arrays);
  const CommandResult result = run_gcomp({"run", model.model(), "--inputs", folder / "in.npz", "--outputs", folder / "out.npz"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.errors.find("row 690: index 1000000"), std::string::npos) << result.errors;
  EXPECT_FALSE(std::filesystem::exists(folder / "out.npz"));
}

}  // namespace
}  // namespace gcomp::test
