// A training that goes on from a .gcx is one long training, and comes out as .onnx.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gcomp/trainer.h"
#include "runtime/artifact.h"
#include "runtime/files/sha256.h"
#include "tests/errors/bad_input.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using runtime::test::contents;
using runtime::test::put;
using runtime::test::user_error;

/// A linear model with Dropout behind it, and 22 rows: five steps an epoch, two rows left over.
class ContinuingArtifact : public BadInput {
 protected:
  ContinuingArtifact() {
    write_linear_model(model_, [](onnx::ModelProto& model) { append_node(model, "Dropout"); });
    Tensor x(DType::f32, {22, 3}), label(DType::i64, {22});
    for (std::int64_t i = 0; i < 66; ++i) x.set(i, 0.1 * static_cast<double>(i * 7 % 23) - 1);
    for (std::int64_t i = 0; i < 22; ++i) label.set(i, static_cast<double>(i % 2));
    write_data({{"x", x}, {"label", label}});
  }
  CommandResult train_from(const std::string& model, const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train", model, "--data", data_, "--out", folder_ / out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }
  std::vector<std::string> fresh(const std::string& steps, const std::vector<std::string>& more = {}) {
    std::vector<std::string> options{"--loss", "cross_entropy", "--batch", "4", "--lr", "0.05", "--seed", "9", "--steps", steps};
    options.insert(options.end(), more.begin(), more.end());
    return options;
  }
  void expect_trained(const std::string& model, const std::string& out, const std::vector<std::string>& more) {
    const CommandResult result = train_from(model, out, more);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
};

TEST_F(ContinuingArtifact, InPartsItGivesTheBytesOfOneRun) {
  expect_trained(model_, "whole.onnx", fresh("20"));
  expect_trained(model_, "whole.gcx", fresh("20"));
  expect_trained(model_, "first.gcx", fresh("7"));  // within the second epoch
  expect_trained(folder_ / "first.gcx", "second.gcx", {"--steps", "3"});
  expect_trained(folder_ / "second.gcx", "third.gcx", {"--epochs", "2"});
  expect_trained(folder_ / "second.gcx", "third.onnx", {"--epochs", "2"});
  EXPECT_TRUE(contents(folder_ / "whole.gcx") == contents(folder_ / "third.gcx"));
  EXPECT_TRUE(contents(folder_ / "whole.onnx") == contents(folder_ / "third.onnx"));
  EXPECT_NE(contents(folder_ / "whole.onnx"), contents(model_));
}

TEST_F(ContinuingArtifact, ACompiledStepTrainsAsItsModelDoes) {
  const std::string step = folder_ / "step.gcx";
  ASSERT_EQ(run_gcomp({"compile", model_, "--train", "--loss", "cross_entropy", "--dim", "batch=4", "-o", step}).exit_code, 0);
  expect_trained(model_, "whole.onnx", fresh("8"));
  expect_trained(step, "compiled.onnx", {"--lr", "0.05", "--seed", "9", "--steps", "8"});
  EXPECT_TRUE(contents(folder_ / "whole.onnx") == contents(folder_ / "compiled.onnx"));
}

TEST_F(ContinuingArtifact, TheLearningRateIsTheRuns) {
  expect_trained(model_, "first.gcx", fresh("5"));
  expect_trained(folder_ / "first.gcx", "still.gcx", {"--steps", "5", "--lr", "0"});
  Trainer first = Trainer::load(folder_ / "first.gcx"), still = Trainer::load(folder_ / "still.gcx");
  EXPECT_EQ(first.weights_digest(), still.weights_digest());
  EXPECT_EQ(first.learning_rate(), 0.05);
  EXPECT_EQ(still.data_position(), (DataPosition{.seed = 9, .shuffled = true, .rows = 22, .steps = 10}));
}

TEST_F(ContinuingArtifact, AnotherOrderIsRefused) {
  expect_trained(model_, "first.gcx", fresh("5"));
  const std::string first = folder_ / "first.gcx";
  expect_refused(train_from(first, "n.gcx", {"--steps", "1", "--seed", "3"}), ExitCode::usage, {"--seed 3", "with seed 9"});
  expect_refused(train_from(first, "n.gcx", {"--steps", "1", "--no-shuffle"}), ExitCode::usage, {"--no-shuffle", "shuffled"});
  EXPECT_EQ(train_from(first, "n.gcx", {"--steps", "1", "--seed", "9"}).exit_code, 0);
  write_data({{"x", Tensor(DType::f32, {8, 3})}, {"label", Tensor(DType::i64, {8})}});
  const CommandResult other = train_from(first, "n.gcx", {"--steps", "1"});
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_NE(other.errors.find("22 rows"), std::string::npos) << other.errors;
}

TEST_F(ContinuingArtifact, AModelThatIsGoneOrAnotherIsNamedWithItsDigest) {
  expect_trained(model_, "whole.onnx", fresh("10"));
  expect_trained(model_, "first.gcx", fresh("5"));
  expect_trained(model_, "embedded.gcx", fresh("5", {"--embed-model"}));
  const std::string digest = runtime::sha256_of_file(model_).substr(0, 16), first = folder_ / "first.gcx", bytes = contents(model_);
  const auto go_on = [&](const std::string& from) { return train_from(from, "t.onnx", {"--steps", "5"}); };
  put(model_, contents(model_) + contents(model_));
  expect_refused(go_on(first), ExitCode::invalid, {model_, digest, "--embed-model"});
  fs::remove(model_);
  expect_refused(go_on(first), ExitCode::invalid, {model_, digest, "--embed-model", ".gcx"});
  EXPECT_FALSE(fs::exists(folder_ / "t.onnx"));
  EXPECT_EQ(train_from(first, "t.gcx", {"--steps", "5"}).exit_code, 0);
  EXPECT_EQ(go_on(folder_ / "embedded.gcx").exit_code, 0);
  EXPECT_TRUE(contents(folder_ / "whole.onnx") == contents(folder_ / "t.onnx"));
  fs::create_directory(folder_ / "moved");
  fs::copy_file(first, folder_ / "moved/first.gcx");
  put(folder_ / "moved/model.onnx", bytes);
  EXPECT_EQ(go_on(folder_ / "moved/first.gcx").exit_code, 0);
  EXPECT_TRUE(contents(folder_ / "whole.onnx") == contents(folder_ / "t.onnx"));
}

TEST_F(ContinuingArtifact, ExternalDataThatIsGoneIsNamedWithTheCure) {
  ::onnx::ModelProto proto;
  ASSERT_TRUE(proto.ParseFromString(contents(model_)));
  auto& weight = *proto.mutable_graph()->mutable_initializer(0);
  ASSERT_FALSE(weight.raw_data().empty() && weight.float_data().empty());
  if (weight.raw_data().empty())
    weight.set_raw_data(std::string(reinterpret_cast<const char*>(weight.float_data().data()),
                                    4 * static_cast<std::size_t>(weight.float_data_size())));
  const std::string data = (fs::path(model_).parent_path() / "weights.bin").string();
  put(data, weight.raw_data());
  weight.clear_raw_data();
  weight.clear_float_data();
  weight.set_data_location(::onnx::TensorProto::EXTERNAL);
  auto& entry = *weight.add_external_data();
  entry.set_key("location");
  entry.set_value("weights.bin");
  put(model_, proto.SerializeAsString());
  expect_trained(model_, "first.gcx", fresh("5"));
  fs::remove(data);
  expect_refused(train_from(folder_ / "first.gcx", "t.onnx", {"--steps", "5"}), ExitCode::invalid,
                 {"external data", data, "is not there", "--embed-model"});
}

TEST_F(ContinuingArtifact, TheOriginalIsNotReplaced) {
  expect_trained(model_, "first.gcx", fresh("5"));
  const std::string before = contents(model_);
  expect_refused(train_from(folder_ / "first.gcx", "model.onnx", {"--steps", "1"}), ExitCode::usage, {"the model"});
  EXPECT_EQ(contents(model_), before);
}

/// Of the time when a loss read one array, there were no groups, and the host evaluated.
TEST_F(ContinuingArtifact, AnEarlierOneGoesOn) {
  expect_trained(model_, "good.gcx", fresh("5"));
  expect_trained(folder_ / "good.gcx", "further.onnx", {"--steps", "3"});
  runtime::Artifact earlier = runtime::read_artifact(folder_ / "good.gcx");
  nlohmann::json json = nlohmann::json::parse(earlier.metadata.at("gcomp.model"));
  for (const char* later : {"labels", "evaluation", "groups"}) json.erase(later);
  json.update({{"axis", -1}, {"classes", 0}, {"loss_output", 0}, {"label", true}});
  earlier.metadata["gcomp.model"] = json.dump();
  std::erase_if(earlier.programs, [](const runtime::Program& program) { return program.name == "evaluate"; });
  std::erase_if(earlier.binaries, [](const auto& binary) { return binary.first.find("evaluate") != std::string::npos; });
  runtime::write_artifact(folder_ / "earlier.gcx", earlier);
  expect_trained(folder_ / "earlier.gcx", "earlier.onnx", {"--steps", "3"});
  EXPECT_TRUE(contents(folder_ / "earlier.onnx") == contents(folder_ / "further.onnx"));
  EXPECT_NE(
      user_error([&] { Trainer::load(folder_ / "earlier.gcx").prepare_evaluation(); }).find("holds no program that evaluates"),
      std::string::npos);
}

TEST_F(ContinuingArtifact, WhatItSaysOfItselfIsChecked) {
  expect_trained(model_, "good.gcx", fresh("5"));
  const runtime::Artifact good = runtime::read_artifact(folder_ / "good.gcx");
  const auto message_of = [&](const std::function<void(nlohmann::json&, runtime::Artifact&)>& change) {
    runtime::Artifact bad = good;
    nlohmann::json json = nlohmann::json::parse(bad.metadata.at("gcomp.model"));
    change(json, bad);
    bad.metadata["gcomp.model"] = json.dump();
    runtime::write_artifact(folder_ / "bad.gcx", bad);
    return user_error([&] { Trainer::load(folder_ / "bad.gcx"); });
  };
  const struct {
    const char *pointer, *value, *wanted;
  } cases[] = {{"/labels", "[[\"label\"]]", "a label is [\"label\"]"},
               {"/labels", "[[\"nobody\", 3, null]]", "'nobody', whose labels it limits, is no input"},
               {"/learning_rate", "-1", "'learning_rate' is -1"},
               {"/learning_rate", "\"fast\"", "'learning_rate' is \"fast\""},
               {"/outputs", "[]", "it names 0 outputs"},
               {"/outputs", "[\"z\", \"z\"]", "lists \"z\" twice"},
               {"/evaluation/terms", "[false]", "it names 3 results of an evaluation, which has 4"},
               {"/evaluation/terms", "[false, false]", "it has 2 terms, the loss 1"},
               {"/evaluation/metrics", "[3]", "an object is missing"},
               {"/trained", "[\"nobody\"]", "'nobody', which is trained, is no state"},
               {"/limits", "[[\"nobody\", 3]]", "'nobody', which it limits, is no input"},
               {"/position/steps", "-1", "'steps' is -1"},
               {"/position/steps", "18446744073709551615", "'steps' is"},
               {"/position/shuffled", "1", "'shuffled' is 1"},
               {"/original/sha256", "\"12\"", "'sha256' is 12"},
               {"/original/path", "3", "'path' is 3"},
               {"/extra", "1", "an unknown member 'extra'"},
               {"/loss", "\"\"", "does not fit its training step"}};
  for (const auto& c : cases) {
    const std::string message = message_of([&](nlohmann::json& json, runtime::Artifact&) {
      json[nlohmann::json::json_pointer(c.pointer)] = nlohmann::json::parse(c.value);
    });
    EXPECT_NE(message.find(c.wanted), std::string::npos) << c.pointer << " " << c.value << ": " << message;
    EXPECT_NE(message.find("bad.gcx"), std::string::npos) << message;
  }
  EXPECT_NE(message_of([](nlohmann::json&, runtime::Artifact& bad) {
              bad.weights["nobody"] = Tensor(DType::f32, {1});
            }).find("'nobody' among its weights is no state"),
            std::string::npos);
  EXPECT_NE(
      message_of([](nlohmann::json&, runtime::Artifact& bad) { bad.weights["w"] = Tensor(DType::f32, {1}); }).find("'w' is f32[1]"),
      std::string::npos);
}

}  // namespace
}  // namespace gcomp::test
