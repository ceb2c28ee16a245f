// Fresh networks as PyTorch's older exporter writes them, equal initial values merged through Identity, train as PyTorch does, and
// go on from what they export.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "frontend/onnx/import.h"
#include "runtime/files/npz.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using runtime::test::contents;
using runtime::test::TemporaryDirectory;

constexpr int kBatch = 4;

std::string merged_fixture(const std::string& file) {
  return (fs::path(GCOMP_SOURCE_DIR) / "tests/fixtures/merged_names" / file).string();
}

std::vector<double> recorded_losses(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(merged_fixture("losses.json"))).at(name).get<std::vector<double>>();
}

CommandResult train_on(const std::string& model, const std::string& data, const std::string& out,
                       const std::vector<std::string>& flags) {
  std::vector<std::string> arguments{
      "train", model,  "--data",       data,       "--loss", "mse",     "--optimizer",          "sgd",
      "--lr",  "0.05", "--no-shuffle", "--epochs", "1",      "--batch", std::to_string(kBatch), "--out",
      out};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return run_gcomp(arguments);
}

std::vector<double> step_losses(const std::string& path) {
  std::vector<double> values;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);)
    if (const auto entry = nlohmann::json::parse(line); entry.contains("loss") && entry.contains("step"))
      values.push_back(entry.at("loss"));
  return values;
}

class MergedNames : public testing::TestWithParam<const char*> {};

TEST_P(MergedNames, TrainAsPyTorch) {
  const TemporaryDirectory folder;
  const std::string name = GetParam();
  const std::vector<double> wanted = recorded_losses(name);
  for (const auto& [precision, tolerance] : {std::pair("f32", 1e-4), std::pair("f64", 1e-7)}) {
    const CommandResult result = train_on(merged_fixture(name + ".onnx"), merged_fixture(name + ".npz"), folder / "out.onnx",
                                          {"--momentum", "0.9", "--precision", precision, "--metrics", folder / "m.jsonl"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const std::vector<double> found = step_losses(folder / "m.jsonl");
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], tolerance * wanted[i]) << "step " << i + 1;
  }
}

/// Rows `first` to `last` of the arrays of a fixture, as a file.
std::string rows_of(const std::string& name, std::int64_t first, std::int64_t last, const TemporaryDirectory& folder) {
  std::vector<runtime::NamedTensor> parts;
  for (const auto& [array, whole] : load_arrays(merged_fixture(name + ".npz"))) {
    TensorType type = whole.type();
    const std::size_t row = static_cast<std::size_t>(type.bytes() / type.shape[0]);
    type.shape[0] = last - first;
    Tensor part(type);
    std::copy_n(whole.bytes().begin() + static_cast<std::ptrdiff_t>(row) * first, part.bytes().size(), part.bytes().begin());
    parts.emplace_back(array, std::move(part));
  }
  const std::string path = folder / ("rows_" + std::to_string(first) + "_" + std::to_string(last) + ".npz");
  runtime::write_npz(path, parts);
  return path;
}

TEST_P(MergedNames, GoOnFromTheirOwnExport) {
  const TemporaryDirectory folder;
  const std::string name = GetParam();
  const auto train_rows = [&](const std::string& model, std::int64_t first, std::int64_t last, const std::string& out) {
    const CommandResult result = train_on(model, rows_of(name, first, last, folder), folder / out, {});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
  };
  const std::int64_t whole = kBatch * static_cast<std::int64_t>(recorded_losses(name).size()), part = 2 * kBatch;
  train_rows(merged_fixture(name + ".onnx"), 0, whole, "whole.onnx");
  train_rows(merged_fixture(name + ".onnx"), 0, part, "first.onnx");
  train_rows(folder / "first.onnx", part, whole, "second.onnx");
  ASSERT_FALSE(contents(folder / "whole.onnx").empty());
  EXPECT_TRUE(contents(folder / "whole.onnx") == contents(folder / "second.onnx"));
}

INSTANTIATE_TEST_SUITE_P(OlderExporter, MergedNames,
                         testing::Values("norms_11", "norms_14", "norms_18", "norms_training", "residual", "copies",
                                         "shared_memory", "folded", "norm_twice"),
                         [](const auto& info) { return std::string(info.param); });

TEST(NormTwice, MovesOnePairOfStatisticsTwiceAStep) {
  const TemporaryDirectory folder;
  const CommandResult result = train_on(merged_fixture("norm_twice.onnx"), merged_fixture("norm_twice.npz"), folder / "out.onnx",
                                        {"--momentum", "0.9", "--precision", "f64"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const frontend::ImportedModel model = frontend::import_onnx(frontend::open_onnx(folder / "out.onnx"), {.training = true});
  for (const auto& [state, recording] :
       {std::pair("norm.running_mean", "norm_twice_mean"), {"norm.running_var", "norm_twice_variance"}}) {
    ASSERT_TRUE(model.weights.contains(state)) << state;
    const std::vector<double> wanted = recorded_losses(recording);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(model.weights.at(state).at(static_cast<std::int64_t>(i)), wanted[i], 1e-6) << state << " " << i;
  }
}

TEST(MergedNamesExport, HasEachAsAnInitializerOfItsOwn) {
  const TemporaryDirectory folder;
  const CommandResult result =
      train_on(merged_fixture("norms_18.onnx"), merged_fixture("norms_18.npz"), folder / "out.onnx", {"--momentum", "0.9"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const frontend::OnnxFile file = frontend::open_onnx(folder / "out.onnx");
  for (const char* name :
       {"1.weight", "1.bias", "1.running_mean", "1.running_var", "4.weight", "4.bias", "4.running_mean", "4.running_var"})
    EXPECT_EQ(std::count_if(file.initializers.begin(), file.initializers.end(), [&](const auto& i) { return i.name == name; }), 1)
        << name;
  for (const auto& [op, count] : file.operators) EXPECT_NE(op, "Identity");
}

}  // namespace
}  // namespace gcomp::test
