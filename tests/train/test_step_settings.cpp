// Parameter groups, clipping, the average of the parameters and skipped steps: against PyTorch's record
// (tests/fixtures/training/record_groups.py), by the command and through the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gcomp/gcomp.h"
#include "gcomp/ops.h"
#include "gcomp/predictor.h"
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

constexpr double kCloseToRecord = 1e-9;
constexpr std::int64_t kRecordedSteps = 50;

std::string settings_fixture(const std::string& name) { return std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/" + name; }

std::vector<json> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

const std::map<std::string, Tensor>& record() {
  static const std::map<std::string, Tensor> kRecord = load_arrays(settings_fixture("groups.npz"));
  return kRecord;
}

/// The options of each recorded training.
std::vector<std::vector<std::string>> cases() {
  const Tensor& bytes = record().at("cases");
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()));
  std::vector<std::vector<std::string>> all;
  for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line).get<std::vector<std::string>>());
  return all;
}

std::string joined(const std::vector<std::string>& flags) {
  std::string text;
  for (const std::string& flag : flags) text += " " + flag;
  return text;
}

class RecordedSteps : public testing::TestWithParam<const char*> {
 protected:
  CommandResult train(const std::vector<std::string>& more) {
    const std::string model = GetParam();
    std::vector<std::string> arguments{"train",       settings_fixture(model + ".onnx"),
                                       "--data",      settings_fixture(model + ".npz"),
                                       "--loss",      "cross_entropy",
                                       "--batch",     "6",
                                       "--steps",     std::to_string(kRecordedSteps),
                                       "--precision", "f64",
                                       "--metrics",   folder_ / "m.jsonl",
                                       "--out",       folder_ / "t.onnx",
                                       "--eval-data", settings_fixture(model + ".npz"),
                                       "--no-shuffle"};
    if (model == "bn") arguments.insert(arguments.end(), {"--batchnorm-variance", "unbiased"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }

  TemporaryDirectory folder_;
};

TEST_P(RecordedSteps, TrainAsPyTorchDoes) {
  const std::string model = GetParam();
  const Tensor &losses = record().at(model), &norms = record().at(model + ".norms"), &evaluated = record().at(model + ".evaluated");
  const std::vector<std::vector<std::string>> all = cases();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const CommandResult result = train(all[i]);
    ASSERT_EQ(result.exit_code, 0) << joined(all[i]) << ": " << result.errors;
    const std::vector<json> lines = lines_of(folder_ / "m.jsonl");
    ASSERT_EQ(static_cast<std::int64_t>(lines.size()), kRecordedSteps + 1);
    const bool clips = std::ranges::count(all[i], "--clip-norm") > 0;
    const auto number = static_cast<std::int64_t>(i);
    for (std::int64_t step = 0; step < kRecordedSteps; ++step) {
      const json& line = lines[static_cast<std::size_t>(step)];
      const double wanted = losses.at(number * kRecordedSteps + step), norm = norms.at(number * kRecordedSteps + step);
      ASSERT_NEAR(line.at("loss").get<double>(), wanted, kCloseToRecord * wanted) << joined(all[i]) << ", step " << step + 1;
      ASSERT_EQ(line.contains("gradient_norm"), clips) << joined(all[i]);
      if (clips) { ASSERT_NEAR(line.at("gradient_norm").get<double>(), norm, kCloseToRecord * norm) << joined(all[i]); }
    }
    const double wanted = evaluated.at(number);
    EXPECT_NEAR(lines.back().at("loss").get<double>(), wanted, kCloseToRecord * wanted) << joined(all[i]) << ", evaluated";
  }
}

TEST_P(RecordedSteps, SkippingChangesNothingOfGoodSteps) {
  const std::vector<std::string> flags = cases().back();
  ASSERT_EQ(train(flags).exit_code, 0);
  const std::string plain = contents(folder_ / "t.onnx");
  std::vector<std::string> skipping = flags;
  skipping.push_back("--skip-non-finite");
  const CommandResult result = train(skipping);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(contents(folder_ / "t.onnx") == plain);
  const Tensor& norms = record().at(GetParam() + std::string(".norms"));
  const std::vector<json> lines = lines_of(folder_ / "m.jsonl");
  const std::int64_t first = (static_cast<std::int64_t>(cases().size()) - 1) * kRecordedSteps;
  for (std::int64_t step = 0; step < kRecordedSteps; ++step) {
    const json& line = lines[static_cast<std::size_t>(step)];
    EXPECT_EQ(line.at("skipped"), 0);
    EXPECT_NEAR(line.at("gradient_norm").get<double>(), norms.at(first + step), kCloseToRecord * norms.at(first + step));
  }
  EXPECT_EQ(result.output.find("skipped:"), std::string::npos) << result.output;
}

INSTANTIATE_TEST_SUITE_P(Models, RecordedSteps, testing::Values("mlp", "cnn", "transformer", "bn"),
                         [](const auto& info) { return std::string(info.param); });

// The library, on a small model with running statistics.

Trainer small_trainer(const TrainOptions& given) {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 4});
    nn.output("y", nn.linear("fc", nn.relu(nn.batch_norm("norm", nn.linear("first", x, 8))), 2));
  });
  TrainOptions options = given;
  options.loss = "mse";
  options.batch = 4;
  options.device = DeviceRequest::cpu;
  return Trainer(model, options);
}

/// Rows that differ; the label of the first is `label`.
double step(Trainer& trainer, double label, int turn = 0) {
  std::vector<float> x(16), y(8);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i) * 1.7f + static_cast<float>(turn));
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::cos(static_cast<float>(i + 1));
  y[0] = static_cast<float>(label);
  return trainer.train_step({{"x", {std::span<const float>(x), {4, 4}}}, {"label", {std::span<const float>(y), {4, 2}}}});
}

std::map<std::string, Tensor> states_of(const Trainer& trainer) {
  std::map<std::string, Tensor> states;
  for (const std::string& name : trainer.states()) states.emplace(name, trainer.read(name));
  return states;
}

TEST(StepSettings, AStepThatIsNotFiniteLeavesEveryStateAsItWas) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 3e30}) {
    Trainer trainer = small_trainer({.optimizer = {"adam"}, .clip_norm = 1.0, .ema = 0.9, .skip_non_finite = true});
    EXPECT_FALSE(trainer.skipped());
    step(trainer, 1);
    ASSERT_TRUE(trainer.skipped());
    EXPECT_FALSE(*trainer.skipped());
    EXPECT_FALSE(trainer.loss_scale()) << "nothing is scaled";
    const std::map<std::string, Tensor> before = states_of(trainer);
    EXPECT_EQ(before.at("step").at(0), 1);
    EXPECT_FALSE(std::isfinite(step(trainer, bad)));  // 3e30 squared is beyond float32
    EXPECT_TRUE(*trainer.skipped());
    for (const auto& [name, value] : states_of(trainer)) EXPECT_EQ(value, before.at(name)) << name;
    step(trainer, 1);
    EXPECT_FALSE(*trainer.skipped());
    EXPECT_EQ(trainer.read("step").at(0), 2) << "the counter counts what was done";
    EXPECT_NE(trainer.read("fc.weight"), before.at("fc.weight"));
  }
}

TEST(StepSettings, TheFirstUpdateOfTheAverageCopiesAndLaterOnesMove) {
  constexpr double kDecay = 0.75;
  Trainer trainer = small_trainer({.optimizer = {"sgd"}, .learning_rate = 0.1, .ema = kDecay});
  EXPECT_TRUE(trainer.keeps_average());
  EXPECT_EQ(trainer.weights(), Weights::averaged);
  std::map<std::string, std::vector<double>> averages;
  for (int turn = 0; turn < 4; ++turn) {
    step(trainer, 1, turn);
    for (const std::string& name : trainer.trained()) {
      const std::vector<double> now = trainer.read(name).to_doubles(), found = trainer.read(name + ".ema").to_doubles();
      std::vector<double>& average = averages[name];
      if (turn == 0) average = now;
      for (std::size_t i = 0; i < now.size(); ++i) {
        average[i] = kDecay * average[i] + (1 - kDecay) * now[i];
        EXPECT_NEAR(found[i], average[i], 1e-6) << name;
      }
      if (turn == 0) { EXPECT_EQ(found, now) << name; }
    }
  }
  EXPECT_THROW(trainer.read("norm.running_mean.ema"), Error) << "running statistics have none";
}

TEST(StepSettings, EvaluationPredictionAndExportTakeTheAverage) {
  const TemporaryDirectory folder;
  const std::string model = settings_fixture("cnn.onnx");
  TrainOptions options{.optimizer = {"sgd"}, .learning_rate = 0.5, .ema = 0.9, .batch = 6, .device = DeviceRequest::cpu};
  Trainer trainer = compile(Model::load(model), options);
  const std::map<std::string, Tensor> data = load_arrays(settings_fixture("cnn.npz"));
  Tensor x(DType::f32, {6, 2, 8, 8}), label(DType::i64, {6});
  const auto fill = [&](std::int64_t turn) {
    for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, data.at("x").at(turn * x.elements() + i));
    for (std::int64_t i = 0; i < 6; ++i) label.set(i, data.at("label").at(turn * 6 + i));
  };
  const auto batch = [&] { return Batch{{"x", x}, {"label", label}}; };
  for (std::int64_t turn = 0; turn < 8; ++turn) {
    fill(turn);
    trainer.train_step(batch());
  }
  const std::string path = folder / "average.onnx", plain_path = folder / "plain.onnx";
  trainer.save(path, Weights::averaged);
  trainer.save(plain_path);
  const Tensor averaged = trainer.predict(batch())[0].second;
  const double loss = trainer.evaluate(batch()).loss;
  trainer.use(Weights::trained);
  const Tensor trained = trainer.predict(batch())[0].second;
  EXPECT_NE(averaged, trained);
  EXPECT_NE(trainer.evaluate(batch()).loss, loss);
  const auto predicted = [&](const std::string& file) {
    Predictor predictor(Model::load(file), {.batch = 6, .device = DeviceRequest::cpu});
    return predictor.predict(batch())[0].second;
  };
  EXPECT_EQ(predicted(path), averaged);
  EXPECT_EQ(predicted(plain_path), trained);
  Trainer without = compile(Model::load(model), {.batch = 6, .device = DeviceRequest::cpu});
  EXPECT_FALSE(without.keeps_average());
  EXPECT_THROW(without.use(Weights::averaged), Error);
  EXPECT_THROW(without.save(path, Weights::averaged), Error);
}

TEST(StepSettings, GroupsAreKnownToTheLibrary) {
  Trainer trainer = small_trainer({.optimizer = {"adamw"},
                                   .learning_rate = 0.01,
                                   .groups = {"kind:bias, kind:norm: weight_decay=0", "fc.*: lr=0.5x", "*: lr=0.002"}});
  const std::vector<ParameterGroup>& groups = trainer.groups();
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].tensors, 4);  // two biases, scale and shift
  EXPECT_EQ(groups[0].elements, 8 + 8 + 8 + 2);
  EXPECT_EQ(groups[1].tensors, 1) << "fc.bias is in the first";
  EXPECT_EQ(groups[1].rate, 0.5);
  EXPECT_EQ(groups[2].elements, 32);
  EXPECT_DOUBLE_EQ(groups[2].rate, 0.2);
}

/// f16: gradients are unscaled before their norm is taken, so that the scale does not move the bound.
TEST(StepSettings, ClippingWithLossScalingIsThatWithout) {
  const auto losses = [&](std::optional<DType> precision, std::optional<double> scale, std::optional<double> clip) {
    TrainOptions options{.optimizer = {"sgd"}, .learning_rate = 0.2};
    if (clip) options.clip_norm = *clip;
    if (precision) options.graph.precision = *precision;
    if (scale) options.graph.loss_scale = *scale;
    Trainer trainer = small_trainer(options);
    const float first = 1024;  // of a dynamic scale: no step overflows
    if (precision && !scale) trainer.write("loss_scale", {std::span(&first, 1), {}});
    std::vector<double> all;
    for (int turn = 0; turn < 20; ++turn) all.push_back(step(trainer, 5, turn));
    return all;
  };
  constexpr double kClip = 0.1, kOfF16 = 0x1p-9;
  const std::vector<double> reference = losses({}, {}, kClip), free = losses({}, {}, {});
  EXPECT_GT(std::abs(reference.back() - free.back()), 0.05 * reference.back()) << "the bound is one";
  for (const std::optional<double> scale : {std::optional<double>(), std::optional<double>(1.0), std::optional<double>(128.0)}) {
    const std::vector<double> found = losses(DType::f16, scale, kClip);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], reference[i], kOfF16 * reference[i]) << "scale " << scale.value_or(0) << ", step " << i + 1;
  }
}

// The command.

class StepCommand : public testing::Test {
 protected:
  CommandResult train(const std::string& model, const std::string& out, const std::vector<std::string>& more,
                      const std::string& data = settings_fixture("mlp.npz")) {
    std::vector<std::string> arguments{"train", model, "--data", data, "--out", folder_ / out};
    if (model.ends_with(".onnx")) arguments.insert(arguments.end(), {"--loss", "cross_entropy", "--batch", "6"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }

  const std::string model_ = settings_fixture("mlp.onnx");
  TemporaryDirectory folder_;
};

const std::vector<std::string> kEverything{
    "--group",          "kind:bias: weight_decay=0, lr=0.5x", "--group", "0.*: lr=0.003", "--clip-norm", "0.3", "--ema", "0.9",
    "--skip-non-finite"};

TEST_F(StepCommand, AnArtifactGoesOnWithWhatWasChosen) {
  const auto with_steps = [&](const std::string& steps) {
    std::vector<std::string> flags = kEverything;
    flags.insert(flags.end(), {"--steps", steps});
    return flags;
  };
  ASSERT_EQ(train(model_, "whole.gcx", with_steps("12")).exit_code, 0);
  ASSERT_EQ(train(model_, "part.gcx", with_steps("5")).exit_code, 0);
  const std::string part = folder_ / "part.gcx";
  const CommandResult rest = train(part, "rest.gcx", {"--steps", "7", "--metrics", folder_ / "m.jsonl"});
  ASSERT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_TRUE(contents(folder_ / "whole.gcx") == contents(folder_ / "rest.gcx"));
  EXPECT_NE(rest.errors.find("group 'kind:bias: weight_decay=0, lr=0.5x': 2 tensors, 11 parameters, learning rate 0.0005"),
            std::string::npos)
      << rest.errors;
  const json line = lines_of(folder_ / "m.jsonl").at(0);
  EXPECT_EQ(line.at("lr"), 0.001);
  EXPECT_EQ(line.at("lr_groups"), json({0.0005, 0.003}));
  const CommandResult averaged = train(part, "rest.onnx", {"--steps", "7", "--out-ema", folder_ / "ema.onnx"});
  ASSERT_EQ(averaged.exit_code, 0) << averaged.errors;
  EXPECT_NE(contents(folder_ / "ema.onnx"), contents(folder_ / "rest.onnx"));
  for (std::size_t i = 0; i < kEverything.size(); i += 2) {
    std::vector<std::string> decided{"--steps", "1", kEverything[i]};
    if (i + 1 < kEverything.size()) decided.push_back(kEverything[i + 1]);
    const CommandResult refused = train(part, "x.gcx", decided);
    EXPECT_EQ(refused.exit_code, 2) << kEverything[i];
    EXPECT_NE(refused.errors.find("is compiled, which has decided that"), std::string::npos) << refused.errors;
  }
  const CommandResult compiled = run_gcomp({"compile", model_, "--train", "--loss", "cross_entropy", "--batch", "6", "--group",
                                            "kind:bias: weight_decay=0, lr=0.5x", "--group", "0.*: lr=0.003", "--clip-norm", "0.3",
                                            "--ema", "0.9", "--skip-non-finite", "-o", folder_ / "step.gcx"});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.errors;
  ASSERT_EQ(train(folder_ / "step.gcx", "compiled.onnx", {"--steps", "12"}).exit_code, 0);
  ASSERT_EQ(train(folder_ / "part.gcx", "parted.onnx", {"--steps", "7"}).exit_code, 0);
  EXPECT_TRUE(contents(folder_ / "compiled.onnx") == contents(folder_ / "parted.onnx"));
}

TEST_F(StepCommand, AnyThreadsGiveTheSameBytes) {
  const RecordedModel gpt = recorded_model("gpt_tiny");
  std::vector<std::string> written;
  for (const char* threads : {"1", "2", "2"}) {
    const CommandResult result =
        train(gpt.model(), "t.onnx",
              {"--group", "kind:bias, kind:norm: weight_decay=0", "--group", "kind:embedding: lr=0.1x", "--clip-norm", "0.3",
               "--ema", "0.9", "--skip-non-finite", "--steps", "5", "--threads", threads, "--out-ema", folder_ / "ema.onnx"},
              gpt.data());
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    written.push_back(contents(folder_ / "t.onnx") + contents(folder_ / "ema.onnx"));
  }
  EXPECT_TRUE(written[0] == written[1]) << "one thread and two differ";
  EXPECT_TRUE(written[1] == written[2]) << "two runs differ";
}

TEST_F(StepCommand, SkippedStepsAreCounted) {
  std::map<std::string, Tensor> data = load_arrays(settings_fixture("mlp.npz"));
  data.at("x").set(6 * 5 * 3 + 1, std::numeric_limits<double>::quiet_NaN());  // of the fourth step
  const std::string bad = folder_ / "bad.npz";
  runtime::write_npz(bad, std::vector<runtime::NamedTensor>{{"x", data.at("x")}, {"label", data.at("label")}});
  const std::vector<std::string> run{"--steps", "10", "--no-shuffle", "--metrics", folder_ / "m.jsonl"};
  std::vector<std::string> skipping = run;
  skipping.push_back("--skip-non-finite");
  const CommandResult stopped = train(model_, "a.onnx", run, bad), skipped = train(model_, "b.onnx", skipping, bad);
  EXPECT_EQ(stopped.exit_code, 8);
  ASSERT_EQ(skipped.exit_code, 0) << skipped.errors;
  EXPECT_NE(skipped.output.find("1 step was skipped: loss or gradients were not finite"), std::string::npos) << skipped.output;
  const std::vector<json> lines = lines_of(folder_ / "m.jsonl");
  ASSERT_EQ(lines.size(), 10u);
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].at("skipped"), i == 3 ? 1 : 0);
  EXPECT_TRUE(lines[3].at("loss").is_null());
  for (std::int64_t i = 0; i < data.at("x").elements(); ++i) data.at("x").set(i, std::numeric_limits<double>::quiet_NaN());
  runtime::write_npz(bad, std::vector<runtime::NamedTensor>{{"x", data.at("x")}, {"label", data.at("label")}});
  const CommandResult all = train(model_, "c.onnx", skipping, bad);
  EXPECT_EQ(all.exit_code, 8);
  EXPECT_NE(all.errors.find("all 10 steps were skipped"), std::string::npos) << all.errors;
  // In f16 all are skipped without being asked to, and which row it is can be said.
  std::vector<std::string> half = run;
  half.insert(half.end(), {"--precision", "f16"});
  const CommandResult of_f16 = train(model_, "d.onnx", half, bad);
  EXPECT_EQ(of_f16.exit_code, 8);
  EXPECT_NE(of_f16.errors.find("all 10 steps were skipped"), std::string::npos) << of_f16.errors;
  EXPECT_NE(of_f16.errors.find("row "), std::string::npos) << of_f16.errors;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "d.onnx"));
}

TEST_F(StepCommand, WhatIsWrongIsSaid) {
  const auto refusal = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--steps", "1"});
    const CommandResult result = train(model_, "x.onnx", flags);
    EXPECT_EQ(result.exit_code, 2) << result.errors;
    return result.errors;
  };
  const auto expect = [&](const std::vector<std::string>& flags, const std::string& part) {
    const std::string found = refusal(flags);
    EXPECT_NE(found.find(part), std::string::npos) << "no '" << part << "' in: " << found;
  };
  const auto group = [](const std::string& text) { return std::vector<std::string>{"--group", text}; };
  expect(group("0.wieght: lr=0.1x"),
         "--group '0.wieght: lr=0.1x': '0.wieght' matches no trained parameter; did you mean '0.weight'?");
  expect(group("kind:norm: weight_decay=0"),
         "'kind:norm' matches no trained parameter; there are 2 of kind:bias, 2 of kind:matrix");
  expect(group("kind:biases: lr=0.1x"),
         "unknown kind 'biases', there are 'bias', 'norm', 'embedding' and 'matrix'; did you mean 'bias'?");
  expect({"--group", "*: lr=0.1x", "--group", "kind:bias: lr=1x"},
         "all that it matches, such as '0.bias', is in a group before it");
  expect(group("*: weight_deca=0"), "adamw has no option 'weight_deca'");
  expect(group("*: weight_deca=0"), "did you mean 'weight_decay'?");
  expect(group("*: weight_decay=-1"), "weight_decay: found -1, wanted a number of at least 0");
  expect(group("*: momentum=0.9"), "adamw has no option 'momentum'");
  expect(group("*: lr=0.1y"), "lr: found 0.1y, wanted a number of at least 0, or with an x what the base rate is multiplied by");
  expect(group("*: lr=-1x"), "lr: found -1x");
  expect(group("*: lr=1x, lr=2x"), "lr is given twice");
  expect(group("kind:bias"), "no ':' between selector and options");
  expect(group("lr=0.1x"), "wanted SELECTOR: option=value");
  expect(group("*.weight, kind:bias lr=0.1"), "no ':' between selector and options");
  expect(group("*:"), "wanted SELECTOR: option=value");
  expect(group("*, : lr=0.1x"), "a selector is empty");
  expect({"--optimizer", "sgd", "--group", "*: nesterov=true"}, "nesterov needs a momentum above 0");
  expect({"--optimizer", "lamb", "--group", "*: max_grad_norm=2"}, "max_grad_norm of lamb is one for all parameters together");
  expect({"--optimizer", "muon", "--group", "kind:bias: weight_decay=0"}, "it has no parameter that muon takes");
  expect({"--lr", "0", "--group", "*: lr=0.1"}, "lr=0.1 stands beside a base rate of 0");
  expect({"--optimizer", "sgd(momentum=0.9)", "--schedule", "one_cycle", "--group", "*: momentum=0.5"},
         "momentum: the schedule turns it; cycle_momentum=false leaves it");
  expect({"--clip-norm", "0"}, "--clip-norm 0: wanted a number above 0");
  expect({"--clip-value", "-1"}, "--clip-value -1: wanted a number above 0");
  expect({"--clip-norm", "1", "--clip-value", "1"}, "--clip-norm 1 and --clip-value 1: gradients are clipped one way");
  expect({"--ema", "1"}, "--ema 1: wanted a decay from 0 to below 1");
  expect({"--out-ema", folder_ / "e.onnx"}, "no average is kept; --ema 0.999 keeps one");
  expect({"--ema", "0.9", "--out-ema", folder_ / "e.gcx"}, "--out-ema");
  expect({"--ema", "0.9", "--out-ema", folder_ / "x.onnx"}, "--out-ema");
  const CommandResult untrained = run_gcomp({"compile", model_, "--batch", "6", "--clip-norm", "1", "--emit", "ir"});
  EXPECT_EQ(untrained.exit_code, 2);
  EXPECT_NE(untrained.errors.find("--clip-norm has a meaning only with --train"), std::string::npos) << untrained.errors;
  ASSERT_EQ(train(model_, "plain.gcx", {"--steps", "1"}).exit_code, 0);
  const CommandResult plain = train(folder_ / "plain.gcx", "y.onnx", {"--steps", "1", "--out-ema", folder_ / "e.onnx"});
  EXPECT_EQ(plain.exit_code, 2);
  EXPECT_NE(plain.errors.find("was compiled without --ema"), std::string::npos) << plain.errors;
}

TEST_F(StepCommand, GroupsArePrintedWithTheirCounts) {
  const CommandResult result =
      train(model_, "t.onnx", {"--steps", "1", "--group", "kind:bias: weight_decay=0, lr=0.01", "--lr", "0.1", "--ema", "0.9"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("group 'kind:bias: weight_decay=0, lr=0.01': 2 tensors, 11 parameters, learning rate 0.01\n"),
            std::string::npos)
      << result.errors;
  EXPECT_NE(result.errors.find("group of the rest: 2 tensors, 64 parameters, learning rate 0.1\n"), std::string::npos)
      << result.errors;
  EXPECT_NE(result.errors.find("the average of the parameters is written nowhere: --out-ema FILE writes it"), std::string::npos)
      << result.errors;
}

/// A table of positions is an embedding also where the import knows which rows are read, and nothing is gathered any more.
TEST(StepSettings, PositionsThatAreLookedUpAreAnEmbedding) {
  const TemporaryDirectory folder;
  tests::ModelBuilder m(17);
  m.input("x", {"6", "4", "4"}).floats("wpe.weight", {4, 4}, std::vector<float>(16, 0.5F));
  m.floats("fc.weight", {4, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2}).integers("at", {4}, {0, 1, 2, 3});
  m.node("Gather", {"wpe.weight", "at"}, {"p"})
      .node("Add", {"x", "p"}, {"h"})
      .node("MatMul", {"h", "fc.weight"}, {"y"})
      .output("y");
  std::ofstream(std::string(folder / "m.onnx"), std::ios::binary) << m.bytes();
  const Model defined = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 4, 4});
    Var at = nn.constant(Tensor::of_integers(std::vector<std::int64_t>{0, 1, 2, 3}));
    Var rows = ops::reshape(nn.embedding("wpe", at, 4, 4), {1, 4, 4});
    nn.output("y", nn.linear("fc", x + ops::broadcast(rows, x.shape()), 4));
  });
  for (const Model& model : {Model::load(folder / "m.onnx"), defined}) {
    const Trainer trainer(model, {.loss = "mse",
                                  .optimizer = {"muon"},
                                  .groups = {"kind:embedding: lr=0.1x", "kind:matrix: weight_decay=0"},
                                  .batch = 6,
                                  .device = DeviceRequest::cpu});
    const std::vector<std::string> states = trainer.states();
    EXPECT_EQ(std::ranges::count(states, "wpe.weight.exp_avg"), 1) << model.name() << ": as adamw updates it";
    EXPECT_EQ(std::ranges::count(states, "fc.weight.exp_avg"), 0) << model.name() << ": muon takes it";
  }
}

}  // namespace
}  // namespace gcomp::test
