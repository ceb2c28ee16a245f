// What users define themselves: losses that are ONNX graphs, class weights from the data, and optimizers as IR text and in C++.
// Losses by PyTorch and timm (tests/fixtures/training/record_loss_graph.py, record.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gcomp/gcomp.h"
#include "runtime/files/npz.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/onnx/model_builder.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using nlohmann::json;
using runtime::test::contents;
using runtime::test::TemporaryDirectory;

constexpr double kNear = 1e-9;
constexpr std::int64_t kRecorded = 50;

std::string recorded(const std::string& name) { return std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/" + name; }

class OwnDefinitions : public testing::Test {
 protected:
  /// Of a run in the order of the record, in f64.
  CommandResult train(const std::string& model, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train",       recorded(model + ".onnx"),
                                       "--batch",     "6",
                                       "--steps",     std::to_string(kRecorded),
                                       "--metrics",   folder_ / "m.jsonl",
                                       "--out",       folder_ / "t.onnx",
                                       "--seed",      "0",
                                       "--precision", "f64",
                                       "--no-shuffle"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (std::ranges::count(more, "--data") == 0) arguments.insert(arguments.end(), {"--data", recorded(model + ".npz")});
    return run_gcomp(arguments);
  }

  std::vector<double> losses() const {
    std::ifstream in(folder_ / "m.jsonl");
    std::vector<double> found;
    for (std::string line; std::getline(in, line);) found.push_back(json::parse(line).at("loss"));
    return found;
  }

  TemporaryDirectory folder_;
};

/// `first` is where in `wanted` the run's losses begin.
void expect_losses(const std::vector<double>& losses, const Tensor& wanted, std::int64_t first) {
  ASSERT_EQ(static_cast<std::int64_t>(losses.size()), kRecorded);
  for (std::int64_t step = 0; step < kRecorded; ++step) {
    const double reference = wanted.at(first + step);
    ASSERT_NEAR(losses[static_cast<std::size_t>(step)], reference, kNear * std::abs(reference)) << "step " << step + 1;
  }
}

/// Where the losses of an optimizer begin in the record of a model.
std::int64_t losses_begin(const std::map<std::string, Tensor>& record, const std::string& optimizer) {
  const Tensor& bytes = record.at("texts");
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()));
  std::int64_t first = 0;
  for (std::string line; std::getline(lines, line); first += kRecorded)
    if (line == optimizer) return first;
  throw InternalError("no record of " + optimizer);
}

TEST_F(OwnDefinitions, AnOnnxGraphIsALoss) {
  const std::map<std::string, Tensor> record = load_arrays(recorded("loss_graph.npz"));
  const std::vector<std::string> loss{"--loss", "graph:" + recorded("loss_graph.onnx")};
  std::vector<std::string> flags = loss;
  flags.insert(flags.end(), {"--optimizer", "sgd", "--lr", "0.1"});
  const CommandResult result = train("mlp", flags);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  expect_losses(losses(), record.at("losses"), 0);

  std::vector<std::string> arguments{
      "eval", recorded("mlp.onnx"), "--data", recorded("mlp.npz"), "--batch", "6", "--precision", "f64", "--json"};
  arguments.insert(arguments.end(), loss.begin(), loss.end());
  const CommandResult evaluated = run_gcomp(arguments);
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.errors;
  EXPECT_NEAR(json::parse(evaluated.output).at("loss").get<double>(), record.at("evaluated").at(0), 1e-12);
}

TEST_F(OwnDefinitions, ALossGraphMayHaveNoInitializers) {
  tests::ModelBuilder loss;
  loss.input("logits", {"batch", "3"}).output("loss");
  loss.node("Mul", {"logits", "logits"}, {"squares"}).node("ReduceMean", {"squares"}, {"loss"}, {{"keepdims", 0}});
  std::ofstream(folder_ / "plain.onnx", std::ios::binary) << loss.bytes();
  const CommandResult by_graph = train("mlp", {"--loss", "graph:" + std::string(folder_ / "plain.onnx")});
  ASSERT_EQ(by_graph.exit_code, 0) << by_graph.errors;
  const std::vector<double> found = losses();
  const CommandResult by_table = train("mlp", {"--loss", "mse(logits, 0)"});
  ASSERT_EQ(by_table.exit_code, 0) << by_table.errors;
  const std::vector<double> wanted = losses();
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-12 * std::abs(wanted[i])) << "step " << i + 1;
}

TEST_F(OwnDefinitions, AnArtifactTrainsOnItsGraph) {
  const std::string loss = "graph:" + recorded("loss_graph.onnx"), artifact = folder_ / "m.gcx";
  const CommandResult made = run_gcomp({"compile", recorded("mlp.onnx"), "--train", "--loss", loss, "--optimizer", "sgd", "--dim",
                                        "batch=6", "--precision", "f64", "-o", artifact});
  ASSERT_EQ(made.exit_code, 0) << made.errors;
  const CommandResult result =
      run_gcomp({"train", artifact, "--data", recorded("mlp.npz"), "--lr", "0.1", "--steps", std::to_string(kRecorded),
                 "--no-shuffle", "--metrics", folder_ / "m.jsonl", "--out", folder_ / "t.onnx"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  expect_losses(losses(), load_arrays(recorded("loss_graph.npz")).at("losses"), 0);
}

TEST_F(OwnDefinitions, ClassWeightsMayLieInTheData) {
  std::map<std::string, Tensor> arrays = load_arrays(recorded("mlp.npz"));
  Tensor weights(DType::f32, {3});
  for (std::int64_t i = 0; i < 3; ++i) weights.set(i, 0.5 + static_cast<double>(i) * 0.75);
  std::vector<NamedTensor> all(arrays.begin(), arrays.end());
  all.emplace_back("class_weight", weights);
  runtime::write_npz(folder_ / "weighted.npz", all);
  const auto trained = [&](const std::string& loss) {
    const CommandResult result = train("mlp", {"--loss", loss, "--data", folder_ / "weighted.npz"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return contents(folder_ / "t.onnx");
  };
  const std::string by_list = trained("cross_entropy(weight=[0.5, 1.25, 2])");
  EXPECT_TRUE(trained("cross_entropy(weight=class_weight)") == by_list);
  EXPECT_FALSE(trained("cross_entropy") == by_list);
}

TEST_F(OwnDefinitions, FlagsBesideAnOptimizersTextCount) {
  const std::map<std::string, Tensor> record = load_arrays(recorded("optimizers.npz"));
  const CommandResult result = train("mlp", {"--loss", "cross_entropy", "--optimizer", "sgd(nesterov=true)", "--momentum", "0.9",
                                             "--lr", "0.1", "--weight-decay", "0.01"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  expect_losses(losses(), record.at("mlp"), losses_begin(record, "sgd(lr=0.1, momentum=0.9, nesterov=true, weight_decay=0.01)"));
}

class OwnOptimizers : public OwnDefinitions, public testing::WithParamInterface<const char*> {};

TEST_P(OwnOptimizers, MomentumAsTextIsPyTorchs) {
  const std::map<std::string, Tensor> record = load_arrays(recorded("optimizers.npz"));
  const CommandResult result =
      train(GetParam(), {"--loss", "cross_entropy", "--optimizer", recorded("momentum.gir"), "--lr", "0.1"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  expect_losses(losses(), record.at(GetParam()), losses_begin(record, "sgd(lr=0.1, momentum=0.9)"));
}

TEST_P(OwnOptimizers, LambAsTextIsTimms) {
  const std::map<std::string, Tensor> record = load_arrays(recorded("optimizers.npz"));
  const CommandResult result = train(GetParam(), {"--loss", "cross_entropy", "--optimizer", recorded("lamb.gir"), "--lr", "0.01"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  expect_losses(losses(), record.at(GetParam()), losses_begin(record, "lamb(lr=0.01, max_grad_norm=none)"));
}

TEST_P(OwnOptimizers, AFunctionIsOneToo) {
  const std::map<std::string, Tensor> record = load_arrays(recorded("optimizers.npz")),
                                      data = load_arrays(recorded(std::string(GetParam()) + ".npz"));
  TrainOptions options;
  options.optimizer.text = "momentum";
  options.optimizer.rule = [](OptimizerStep& step) {
    const Var before = step.state("velocity"), velocity = before * 0.9 + step.gradient();
    step.update(before, velocity);
    return step.parameter() - step.spread(step.learning_rate()) * velocity;
  };
  options.learning_rate = 0.1;
  options.batch = 6;
  options.graph.precision = DType::f64;
  options.device = DeviceRequest::cpu;
  Trainer trainer = compile(Model::load(recorded(std::string(GetParam()) + ".onnx")), options);
  std::vector<double> found;
  for (std::int64_t step = 0; step < kRecorded; ++step) {
    Batch batch;
    std::vector<NamedTensor> rows;
    for (const auto& [name, array] : data) {
      Shape shape = array.shape();
      shape[0] = 6;
      Tensor part(array.dtype(), shape);
      for (std::int64_t i = 0; i < part.elements(); ++i) part.set(i, array.at(step * part.elements() + i));
      rows.emplace_back(name, std::move(part));
    }
    for (const auto& [name, part] : rows) batch.emplace_back(name, part);
    found.push_back(trainer.train_step(batch));
  }
  expect_losses(found, record.at(GetParam()), losses_begin(record, "sgd(lr=0.1, momentum=0.9)"));
}

INSTANTIATE_TEST_SUITE_P(Models, OwnOptimizers, testing::Values("mlp", "cnn", "transformer"),
                         [](const auto& info) { return std::string(info.param); });

// What is wrong with a user's own.

std::string written(const TemporaryDirectory& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder / name) << text;
  return folder / name;
}

TEST_F(OwnDefinitions, WrongOptimizersAreRefusedWithTheReason) {
  const auto refusal = [&](const std::string& text) {
    const CommandResult result =
        train("mlp", {"--loss", "cross_entropy", "--optimizer", written(folder_, "rule.gir", text), "--lr", "0.1"});
    EXPECT_EQ(result.exit_code, 3) << result.errors;
    return result.errors;
  };
  EXPECT_NE(refusal("graph @a(%weight: f32[4]) -> (%weight) {\n}\n").find("no input 'parameter'"), std::string::npos);
  EXPECT_NE(refusal("graph @a(%parameter: f32[4], %rate: f64[]) -> (%parameter) {\n}\n").find("input 'rate'"), std::string::npos);
  EXPECT_NE(refusal("graph @a(%parameter: f64[4]) -> (%parameter) {\n}\n").find("wanted a vector of f32"), std::string::npos);
  EXPECT_NE(
      refusal("graph @a(%parameter: f32[4]) -> (%b) {\n  %b = reduce_sum %parameter {axes=[0]}\n}\n").find("its output is f32[]"),
      std::string::npos);
  EXPECT_NE(refusal("graph @a(%parameter: f32[4]) -> (%b) {\n  %b = cumulative_sum %parameter {axis=0}\n}\n")
                .find("wanted pointwise ops"),
            std::string::npos);
  EXPECT_NE(refusal("graph @a(%parameter: f32[4] -> (%b) {\n}\n").find("rule.gir:1:"), std::string::npos);
  EXPECT_NE(refusal("graph @a(%parameter: f32[4]) -> (%parameter) {\n  state %m: f32[4] optimizer\n}\n").find("what it begins at"),
            std::string::npos);
  const CommandResult missing = train("mlp", {"--loss", "cross_entropy", "--optimizer", folder_ / "none.gir"});
  EXPECT_NE(missing.exit_code, 0);
  EXPECT_NE(missing.errors.find("none.gir"), std::string::npos) << missing.errors;
}

TEST_F(OwnDefinitions, WrongLossGraphsAreRefusedWithTheReason) {
  const auto refusal = [&](const std::string& file, const std::string& model) {
    const CommandResult result = train(model, {"--loss", "graph:" + file});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE(result.exit_code, 1) << result.errors;
    return result.errors;
  };
  // a model is a graph whose output is no scalar, and whose input is called x, which the model has too
  EXPECT_NE(refusal(recorded("mlp.onnx"), "mlp").find("wanted a scalar of floats"), std::string::npos)
      << refusal(recorded("mlp.onnx"), "mlp");
  EXPECT_NE(refusal(recorded("heads_mlp.onnx"), "mlp").find("outputs"), std::string::npos);
  EXPECT_NE(refusal(recorded("loss_graph.onnx"), "transformer").find("input logits: f32[batch,3]"), std::string::npos)
      << refusal(recorded("loss_graph.onnx"), "transformer");
  EXPECT_NE(refusal(folder_ / "none.onnx", "mlp").find("none.onnx"), std::string::npos);
  EXPECT_NE(refusal("", "mlp").find("graph:loss.onnx"), std::string::npos);
}

}  // namespace
}  // namespace gcomp::test
