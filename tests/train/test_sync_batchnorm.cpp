// gcomp train --sync-batchnorm: PyTorch's record of the undivided batch (tests/fixtures/training/record_accumulation.py),
// artifacts, runs that go on, and what has nothing to do with it. tests/fit compares with the undivided batch of other models.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ir/base/tensor.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_cases.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using runtime::test::contents;
using runtime::test::TemporaryDirectory;
using Flags = std::vector<std::string>;

std::string sync_fixture(const std::string& name) { return std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/" + name; }

class SyncBatchNormCommand : public testing::Test {
 protected:
  CommandResult train(const std::string& model, const Flags& more) {
    Flags arguments{
        "train", sync_fixture(model + ".onnx"), "--data", sync_fixture(model + ".npz"), "--batch", "16", "--quiet", "--threads",
        "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }

  TemporaryDirectory folder_;
};

/// The case of the record in which batch norm sees all rows.
RecordedCase undivided_case(const std::map<std::string, Tensor>& record) {
  for (const RecordedCase& recorded : recorded_cases(record))
    if (recorded.options.at("model") == "bn" && recorded.options.at("micro_batches") == nlohmann::json({1})) return recorded;
  throw InternalError("the record has no such case");
}

TEST_F(SyncBatchNormCommand, TrainsAsPyTorchDoesWithTheUndividedBatch) {
  const std::map<std::string, Tensor> record = load_arrays(sync_fixture("accumulation.npz"));
  const auto [number, recorded] = undivided_case(record);
  ASSERT_EQ(recorded.at("rows"), 16);
  const Tensor& wanted = record.at(number);
  const double evaluated = record.at(number + ".evaluated").at(0);
  for (const char* micro_batches : {"2", "4", "8"}) {
    Flags flags{"--micro-batches",
                micro_batches,
                "--sync-batchnorm",
                "--batchnorm-variance",
                "unbiased",
                "--precision",
                "f64",
                "--no-shuffle",
                "--steps",
                "50",
                "--loss",
                recorded.at("loss"),
                "--optimizer",
                recorded.at("optimizer"),
                "--eval-data",
                sync_fixture("bn.npz"),
                "--metrics",
                folder_ / "m.jsonl",
                "--out",
                folder_ / "t.onnx"};
    for (const auto& flag : recorded.at("flags")) flags.push_back(flag);
    const CommandResult result = train("bn", flags);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    std::vector<double> losses;
    std::istringstream lines(contents(folder_ / "m.jsonl"));
    double last = 0;
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json values = nlohmann::json::parse(line);
      last = values.at("loss");
      if (values.contains("lr")) losses.push_back(last);
    }
    ASSERT_EQ(static_cast<std::int64_t>(losses.size()), wanted.elements());
    for (std::size_t step = 0; step < losses.size(); ++step) {
      const double loss = wanted.at(static_cast<std::int64_t>(step));
      ASSERT_NEAR(losses[step], loss, 1e-9 * std::abs(loss)) << micro_batches << " micro-batches, step " << step + 1;
    }
    EXPECT_NEAR(last, evaluated, 1e-9 * evaluated) << micro_batches << " micro-batches, evaluated by the running statistics";
  }
}

TEST_F(SyncBatchNormCommand, AnArtifactTrainsAsItWasCompiled) {
  const Flags how{"--loss", "cross_entropy", "--optimizer", "adamw", "--micro-batches", "4", "--sync-batchnorm"};
  Flags compile{"compile", sync_fixture("bn.onnx"), "--train", "--batch", "16", "--out", folder_ / "bn.gcx"};
  compile.insert(compile.end(), how.begin(), how.end());
  ASSERT_EQ(run_gcomp(compile).exit_code, 0);
  const Flags steps{"--steps", "5"};
  Flags direct = how;
  direct.insert(direct.end(), {"--steps", "5", "--out", folder_ / "direct.onnx"});
  ASSERT_EQ(train("bn", direct).exit_code, 0);
  const CommandResult result = run_gcomp({"train", folder_ / "bn.gcx", "--data", sync_fixture("bn.npz"), "--quiet", "--threads",
                                          "1", "--steps", "5", "--out", folder_ / "artifact.onnx"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(contents(folder_ / "artifact.onnx") == contents(folder_ / "direct.onnx"));
  const CommandResult refused = run_gcomp({"train", folder_ / "bn.gcx", "--data", sync_fixture("bn.npz"), "--steps", "5",
                                           "--sync-batchnorm", "--out", folder_ / "x.onnx"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.errors.find("--sync-batchnorm: "), std::string::npos) << refused.errors;
}

TEST_F(SyncBatchNormCommand, ARunGoesOnAsItBegan) {
  const Flags how{"--loss", "cross_entropy", "--micro-batches", "4", "--checkpoint-every", "2"};
  const auto run = [&](const char* steps, const std::string& run_dir, Flags more) {
    more.insert(more.end(), how.begin(), how.end());
    more.insert(more.end(), {"--steps", steps, "--run-dir", folder_ / run_dir});
    return train("bn", more);
  };
  ASSERT_EQ(run("6", "whole", {"--sync-batchnorm"}).exit_code, 0);
  ASSERT_EQ(run("3", "parts", {"--sync-batchnorm"}).exit_code, 0);
  const CommandResult other = run("6", "parts", {"--resume"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.errors.find("'sync-batchnorm' was true and is false"), std::string::npos) << other.errors;
  const CommandResult result = run("6", "parts", {"--resume", "--sync-batchnorm"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(contents(folder_ / "parts/last.onnx") == contents(folder_ / "whole/last.onnx"));
}

TEST_F(SyncBatchNormCommand, SaysWhereItChangesNothing) {
  const std::string note = "--sync-batchnorm changes nothing: no BatchNormalization of the model takes the statistics of a batch";
  const auto bytes = [&](Flags flags, bool noted) {
    flags.insert(flags.end(), {"--loss", "cross_entropy", "--micro-batches", "4", "--steps", "3", "--out", folder_ / "t.onnx"});
    Flags arguments{"train", sync_fixture("mlp.onnx"), "--data", sync_fixture("mlp.npz"), "--batch", "16", "--threads", "1"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const CommandResult result = run_gcomp(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ((result.output + result.errors).find(note) != std::string::npos, noted) << result.output << result.errors;
    return contents(folder_ / "t.onnx");
  };
  const std::string usual = bytes({}, false);
  EXPECT_TRUE(bytes({"--sync-batchnorm"}, true) == usual);
}

}  // namespace
}  // namespace gcomp::test
