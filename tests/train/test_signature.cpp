// Files as PyTorch's default exporter writes them train as PyTorch does, without flags, and go on from what they export.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/files/npz.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using runtime::test::contents;
using runtime::test::TemporaryDirectory;

const fs::path kFixtures = fs::path(GCOMP_SOURCE_DIR) / "tests/fixtures/signature";

struct Recording {
  int batch = 0;
  std::vector<double> loss;
};

Recording recording(const std::string& name) {
  const auto all = nlohmann::json::parse(std::ifstream(kFixtures / "losses.json"));
  return {all.at(name).at("batch"), all.at(name).at("loss")};
}

CommandResult train(const std::string& model, const Recording& recorded, const TemporaryDirectory& folder,
                    const std::vector<std::string>& flags = {}, const std::string& optimizer = "sgd",
                    const std::string& loss = "mse") {
  std::vector<std::string> arguments{"train",
                                     (kFixtures / (model + ".onnx")).string(),
                                     "--data",
                                     (kFixtures / (model + ".npz")).string(),
                                     "--loss",
                                     loss,
                                     "--optimizer",
                                     optimizer,
                                     "--lr",
                                     "0.1",
                                     "--no-shuffle",
                                     "--epochs",
                                     "1",
                                     "--batch",
                                     std::to_string(recorded.batch),
                                     "--metrics",
                                     folder / "m.jsonl",
                                     "--out",
                                     folder / "out.onnx"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return run_gcomp(arguments);
}

std::vector<double> losses(const std::string& path) {
  std::vector<double> values;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);)
    if (const auto entry = nlohmann::json::parse(line); entry.contains("loss") && entry.contains("step"))
      values.push_back(entry.at("loss"));
  return values;
}

void expect_losses(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], tolerance * wanted[i]) << "step " << i + 1;
}

class DefaultExport : public testing::TestWithParam<const char*> {};

TEST_P(DefaultExport, TrainsAsPyTorch) {
  const TemporaryDirectory folder;
  const Recording recorded = recording(GetParam());
  for (const auto& [precision, tolerance] : {std::pair("f32", 1e-4), std::pair("f64", 1e-7)}) {
    const CommandResult result = train(GetParam(), recorded, folder, {"--precision", precision});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    expect_losses(losses(folder / "m.jsonl"), recorded.loss, tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Signature, DefaultExport,
                         testing::Values("tied_head", "copied_layers", "merged", "class_token", "grid", "bag", "group_norms",
                                         "late_norms", "folded_scales", "folded_biases", "padding", "norm_twice", "detached",
                                         "detached_plain", "decoder", "kinks", "moved_buffers", "literals", "literals_f64",
                                         "detached_weights", "buckets", "buffer_and_constant", "scalar_parameter"),
                         [](const auto& info) { return std::string(info.param); });

class LossInTheModel : public testing::TestWithParam<const char*> {};

TEST_P(LossInTheModel, HasItsLabelSmoothing) {
  const TemporaryDirectory folder;
  const Recording recorded = recording(GetParam());
  const CommandResult result = train(GetParam(), recorded, folder, {"--precision", "f64"}, "sgd", "output:cross_entropy_loss");
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  expect_losses(losses(folder / "m.jsonl"), recorded.loss, 1e-7);
  EXPECT_NE(result.errors.find("has the label smoothing 0.2 of the module's code"), std::string::npos) << result.errors;
}

INSTANTIATE_TEST_SUITE_P(Signature, LossInTheModel, testing::Values("smoothed", "expected"),
                         [](const auto& info) { return std::string(info.param); });

/// Each part of a step computes with what the part before it made of the buffers, as gradient accumulation does in PyTorch.
TEST(MovedBuffers, MoveWithEachMicroBatch) {
  const TemporaryDirectory folder;
  const Recording recorded = recording("moved_buffers_in_parts");
  const CommandResult result = train("moved_buffers", recorded, folder, {"--micro-batches", "2", "--precision", "f64"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  expect_losses(losses(folder / "m.jsonl"), recorded.loss, 1e-7);
}

/// The rows have no gradient and decay all the same.
TEST(Padding, DecaysAsInPyTorch) {
  const TemporaryDirectory folder;
  const Recording recorded = recording("padding_adamw");
  const CommandResult result = train("padding", recorded, folder, {"--weight-decay", "0.3", "--precision", "f64"}, "adamw");
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  expect_losses(losses(folder / "m.jsonl"), recorded.loss, 1e-7);
  EXPECT_NE(result.errors.find("row 4 is padding without gradient"), std::string::npos) << result.errors;
}

TEST(TiedHead, IsListedApartFromWhatIsFrozen) {
  const TemporaryDirectory folder;
  const CommandResult result = train("tied_head", recording("tied_head"), folder);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  for (const char* line : {"\ntied: 1 initializer, 160 values\n", "\nfrozen: 0 initializers, 0 values\n"})
    EXPECT_NE(result.errors.find(line), std::string::npos) << line << result.errors;
}

TEST(FrozenNorm, NormalisesByItsRunningStatistics) {
  const TemporaryDirectory folder;
  const Recording recorded = recording("late_norms_a_frozen");
  const CommandResult result = train("late_norms", recorded, folder, {"--freeze", "a.*", "--precision", "f64"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  expect_losses(losses(folder / "m.jsonl"), recorded.loss, 1e-7);
  EXPECT_NE(result.errors.find("normalises by its running statistics"), std::string::npos) << result.errors;
}

TEST(Notes, EqualOnesBecomeOneWithACount) {
  const TemporaryDirectory folder;
  const CommandResult result = train("late_norms", recording("late_norms"), folder);
  const std::string inference = "is in inference form";
  const std::size_t first = result.errors.find(inference);
  ASSERT_NE(first, std::string::npos) << result.errors;
  EXPECT_EQ(result.errors.find(inference, first + 1), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("1 more note like this, of 'node_"), std::string::npos) << result.errors;
}

TEST(Notes, ABufferWhoseNextValueNoFileHasIsSaidToStay) {
  const TemporaryDirectory folder;
  const CommandResult result =
      run_gcomp({"train", (kFixtures / "lost_buffer.onnx").string(), "--data", (kFixtures / "moved_buffers.npz").string(), "--loss",
                 "mse", "--batch", "8", "--epochs", "1", "--out", folder / "t.onnx"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("the module's code changes 'center' at each call, and this file does not have how: it stays"),
            std::string::npos)
      << result.errors;
}

/// Rows `first` to `last` of the arrays of a fixture.
std::string rows(const std::string& name, std::int64_t first, std::int64_t last, const TemporaryDirectory& folder) {
  std::vector<runtime::NamedTensor> parts;
  for (const auto& [array, whole] : load_arrays((kFixtures / (name + ".npz")).string())) {
    TensorType type = whole.type();
    const std::size_t row = static_cast<std::size_t>(type.bytes() / type.shape[0]);
    type.shape[0] = last - first;
    Tensor part(type);
    std::copy_n(whole.bytes().begin() + static_cast<std::ptrdiff_t>(row) * first, part.bytes().size(), part.bytes().begin());
    parts.emplace_back(array, std::move(part));
  }
  const std::string path = folder / ("rows_" + std::to_string(first) + ".npz");
  runtime::write_npz(path, parts);
  return path;
}

TEST(Grad, ATiedInitializerKeepsItsArray) {
  const TemporaryDirectory folder;
  const CommandResult result =
      run_gcomp({"grad", (kFixtures / "tied_head.onnx").string(), "--inputs", rows("tied_head", 0, 2, folder), "--loss", "mse",
                 "--tie", "val_2", "--outputs", folder / "g.npz"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  Tensor whole, tied;
  for (const auto& [name, gradient] : load_arrays(folder / "g.npz")) {
    if (name == "head.weight") whole = gradient;
    if (name == "val_2") tied = gradient;
  }
  ASSERT_EQ(whole.shape(), (Shape{20, 8}));
  ASSERT_EQ(tied.shape(), (Shape{8, 20}));
  EXPECT_EQ(whole.at(3 * 8 + 5), tied.at(5 * 20 + 3)) << "the shared parameter's gradient, transposed";
}

TEST(Grad, APaddingRowHasNone) {
  const TemporaryDirectory folder;
  const CommandResult result = run_gcomp({"grad", (kFixtures / "padding.onnx").string(), "--inputs", rows("padding", 2, 4, folder),
                                          "--loss", "mse", "--outputs", folder / "g.npz"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  for (const auto& [name, gradient] : load_arrays(folder / "g.npz")) {
    if (name != "kinds.weight") continue;
    ASSERT_EQ(gradient.shape(), (Shape{5, 4}));
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(gradient.at(i), 0) << "row 0 is looked up, and is padding";
      EXPECT_NE(gradient.at(4 + i), 0) << "row 1";
    }
    return;
  }
  FAIL() << "no gradient of kinds.weight";
}

/// Split, tied, restored and repeated parameters go on from the exported file as if nothing had happened.
TEST_P(DefaultExport, GoesOnFromItsOwnExport) {
  const TemporaryDirectory folder;
  const std::string name = GetParam();
  const Recording recorded = recording(name);
  const auto step = [&](const std::string& model, std::int64_t first, std::int64_t last, const std::string& out) {
    const CommandResult result =
        run_gcomp({"train", model, "--data", rows(name, first, last, folder), "--loss", "mse", "--optimizer", "sgd", "--lr", "0.1",
                   "--no-shuffle", "--epochs", "1", "--batch", std::to_string(recorded.batch), "--out", folder / out});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
  };
  const std::string model = (kFixtures / (name + ".onnx")).string();
  const std::int64_t whole = recorded.batch * static_cast<std::int64_t>(recorded.loss.size()), part = 2 * recorded.batch;
  step(model, 0, whole, "whole.onnx");
  step(model, 0, part, "first.onnx");
  step(folder / "first.onnx", part, whole, "second.onnx");
  ASSERT_FALSE(contents(folder / "whole.onnx").empty());
  EXPECT_TRUE(contents(folder / "whole.onnx") == contents(folder / "second.onnx"));
}

}  // namespace
}  // namespace gcomp::test
