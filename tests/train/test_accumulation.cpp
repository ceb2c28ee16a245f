// Batches in micro-batches: against PyTorch's record (tests/fixtures/training/record_accumulation.py), by the command and through
// the library.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "gcomp/gcomp.h"
#include "gcomp/loaded_model.h"
#include "runtime/artifact.h"
#include "runtime/files/npz.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_cases.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using nlohmann::json;
using runtime::test::contents;
using runtime::test::TemporaryDirectory;

constexpr double kWithin = 1e-9;

std::string training_fixture(const std::string& name) { return std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/" + name; }

std::vector<json> metric_lines(const std::string& path) {
  std::ifstream in(path);
  std::vector<json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

const std::map<std::string, Tensor>& accumulation_record() {
  static const std::map<std::string, Tensor> kRecord = load_arrays(training_fixture("accumulation.npz"));
  return kRecord;
}

class RecordedAccumulation : public testing::TestWithParam<const char*> {};

TEST_P(RecordedAccumulation, TrainsAsPyTorchDoes) {
  const std::string model = GetParam();
  const TemporaryDirectory folder;
  int runs = 0;
  for (const RecordedCase& recorded : recorded_cases(accumulation_record())) {
    if (recorded.options.at("model") != model) continue;
    for (const json& micro_batches : recorded.options.at("micro_batches")) {
      std::vector<std::string> arguments{"train",
                                         training_fixture(model + ".onnx"),
                                         "--data",
                                         training_fixture(model + ".npz"),
                                         "--eval-data",
                                         training_fixture(model + ".npz"),
                                         "--loss",
                                         recorded.options.at("loss"),
                                         "--optimizer",
                                         recorded.options.at("optimizer"),
                                         "--batch",
                                         recorded.options.at("rows").dump(),
                                         "--micro-batches",
                                         micro_batches.dump(),
                                         "--steps",
                                         "50",
                                         "--precision",
                                         "f64",
                                         "--no-shuffle",
                                         "--metrics",
                                         folder / "m.jsonl",
                                         "--out",
                                         folder / "t.onnx"};
      if (model == "bn") arguments.insert(arguments.end(), {"--batchnorm-variance", "unbiased"});
      for (const json& flag : recorded.options.at("flags")) arguments.push_back(flag);
      const std::string what = concat(recorded.text(), " in ", micro_batches.dump());
      const CommandResult result = run_gcomp(arguments);
      ASSERT_EQ(result.exit_code, 0) << what << ": " << result.errors;
      ++runs;
      const std::vector<json> lines = metric_lines(folder / "m.jsonl");
      const Tensor &losses = accumulation_record().at(recorded.number),
                   &norms = accumulation_record().at(recorded.number + ".norms");
      ASSERT_GT(static_cast<std::int64_t>(lines.size()), losses.elements()) << what;
      std::vector<const json*> steps;
      for (const json& line : lines)
        if (line.contains("lr")) steps.push_back(&line);
      ASSERT_EQ(static_cast<std::int64_t>(steps.size()), losses.elements()) << what;
      for (std::int64_t step = 0; step < losses.elements(); ++step) {
        const json& line = *steps[static_cast<std::size_t>(step)];
        ASSERT_NEAR(line.at("loss").get<double>(), losses.at(step), kWithin * std::abs(losses.at(step)))
            << what << ", step " << step + 1;
        if (line.contains("gradient_norm")) {
          ASSERT_NEAR(line.at("gradient_norm").get<double>(), norms.at(step), kWithin * norms.at(step))
              << what << ", step " << step + 1;
        }
      }
      if (model.starts_with("heads")) continue;  // losses that are no sums: the evaluation is by other batches
      const double wanted = accumulation_record().at(recorded.number + ".evaluated").at(0);
      EXPECT_NEAR(lines.back().at("loss").get<double>(), wanted, kWithin * wanted) << what << ", evaluated";
    }
  }
  EXPECT_GT(runs, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, RecordedAccumulation, testing::Values("mlp", "cnn", "transformer", "bn", "heads_mlp", "heads_cnn"),
                         [](const auto& info) { return std::string(info.param); });

// The library, on a small model with running statistics.

constexpr std::int64_t kRows = 8;

Trainer trainer_in(std::int64_t micro_batches, const TrainOptions& given = {}) {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 4});
    nn.output("y", nn.linear("fc", nn.relu(nn.batch_norm("norm", nn.linear("first", x, 8))), 2));
  });
  TrainOptions options = given;
  options.loss = "mse";
  options.batch = kRows;
  options.micro_batches = micro_batches;
  options.device = DeviceRequest::cpu;
  return Trainer(model, options);
}

/// Rows that differ; the label of the last is `label`.
double step_on(Trainer& trainer, double label, int turn = 0) {
  std::vector<float> x(kRows * 4), y(kRows * 2);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i) * 1.7f + static_cast<float>(turn));
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::cos(static_cast<float>(i + 1));
  y.back() = static_cast<float>(label);
  return trainer.train_step({{"x", {std::span<const float>(x), {kRows, 4}}}, {"label", {std::span<const float>(y), {kRows, 2}}}});
}

std::map<std::string, Tensor> all_states(const Trainer& trainer) {
  std::map<std::string, Tensor> states;
  for (const std::string& name : trainer.states()) states.emplace(name, trainer.read(name));
  return states;
}

TEST(Accumulation, TheBatchIsTheUsersAndSumsAreNoState) {
  Trainer trainer = trainer_in(4);
  EXPECT_EQ(trainer.batch(), kRows);
  EXPECT_EQ(trainer.input_type("x"), (TensorType{DType::f32, {kRows, 4}}));
  EXPECT_EQ(trainer.input("label").size(), kRows * 2 * sizeof(float));
  EXPECT_EQ(trainer.input_names(), (std::vector<std::string>{"x", "label"}));
  EXPECT_EQ(all_states(trainer), all_states(trainer_in(1)));
  EXPECT_EQ(trainer.notes(), trainer_in(1).notes());
}

/// Also of the running statistics, which the shards before the bad one have moved by then.
TEST(Accumulation, AStepThatIsNotFiniteLeavesEveryStateAsItWas) {
  for (const bool f16 : {false, true}) {
    TrainOptions options{.optimizer = {"adam"}, .clip_norm = 1.0, .ema = 0.9, .skip_non_finite = true};
    if (f16) options.graph.precision = DType::f16;
    Trainer trainer = trainer_in(4, options);
    for (int turn = 0; turn < 30 && trainer.read("step").at(0) == 0; ++turn) step_on(trainer, 1);  // the scale finds itself
    ASSERT_FALSE(*trainer.skipped());
    std::map<std::string, Tensor> before = all_states(trainer);
    EXPECT_EQ(before.at("step").at(0), 1);
    EXPECT_FALSE(std::isfinite(step_on(trainer, std::numeric_limits<double>::quiet_NaN())));
    EXPECT_TRUE(*trainer.skipped());
    for (const auto& [name, value] : all_states(trainer))
      if (name != "loss_scale" && name != "good_steps") { EXPECT_EQ(value, before.at(name)) << name; }
    step_on(trainer, 1);
    EXPECT_FALSE(*trainer.skipped());
    EXPECT_EQ(trainer.read("step").at(0), 2);
    EXPECT_NE(trainer.read("norm.running_mean"), before.at("norm.running_mean"));
  }
}

/// f16: gradients are summed scaled, then unscaled, and then their norm is taken. Shards of four rows: of fewer, batch norm makes
/// much of a last bit.
TEST(Accumulation, ClippingWithLossScalingIsThatWithout) {
  const auto losses = [&](std::optional<DType> precision, std::optional<double> scale) {
    TrainOptions options{.optimizer = {"sgd"}, .learning_rate = 0.2, .clip_norm = 0.1};
    if (precision) options.graph.precision = *precision;
    if (scale) options.graph.loss_scale = *scale;
    Trainer trainer = trainer_in(2, options);
    const float first = 1024;  // of a dynamic scale: no step overflows
    if (precision && !scale) trainer.write("loss_scale", {std::span(&first, 1), {}});
    std::vector<double> all;
    for (int turn = 0; turn < 20; ++turn) all.push_back(step_on(trainer, 5, turn));
    return all;
  };
  constexpr double kOfF16 = 0x1p-9;
  const std::vector<double> reference = losses({}, {});
  for (const std::optional<double> scale : {std::optional<double>(), std::optional<double>(1.0), std::optional<double>(128.0)}) {
    const std::vector<double> found = losses(DType::f16, scale);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], reference[i], kOfF16 * reference[i]) << "scale " << scale.value_or(0) << ", step " << i + 1;
  }
}

TEST(Accumulation, InputsThatAreNotWrittenStay) {
  Trainer once = trainer_in(4), each = trainer_in(4);
  step_on(once, 1);
  step_on(each, 1);
  for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(once.step(), step_on(each, 1)) << turn;
}

/// gradients() takes the batch at once.
TEST(Accumulation, GradientsOfABatchAreTheSameHoweverItTrains) {
  std::vector<float> x(kRows * 4), y(kRows * 2);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  const Batch batch{{"x", {std::span<const float>(x), {kRows, 4}}}, {"label", {std::span<const float>(y), {kRows, 2}}}};
  EXPECT_EQ(trainer_in(4).gradients(batch), trainer_in(1).gradients(batch));
}

/// The row is the batch's, nothing is trained, and the next step begins anew.
TEST(Accumulation, AnIndexOutOfRangeIsNamedByItsRowOfTheBatch) {
  const Model model = Model::define([](Layers& nn) {
    nn.output("y", nn.linear("fc", nn.batch_norm("norm", nn.embedding("table", nn.input("ids", DType::i64, {kBatch}), 10, 4)), 2));
  });
  const auto make = [&] {
    return Trainer(model, {.loss = "mse", .optimizer = {"sgd"}, .micro_batches = 4, .batch = kRows, .device = DeviceRequest::cpu});
  };
  Trainer trainer = make(), other = make();
  const auto step = [](Trainer& one, std::int64_t sixth) {
    const std::vector<std::int64_t> ids{1, 2, 3, 4, 5, sixth, 7, 8};
    const std::vector<float> label(kRows * 2, 0.5f);
    return one.train_step(
        {{"ids", {std::span<const std::int64_t>(ids), {kRows}}}, {"label", {std::span<const float>(label), {kRows, 2}}}});
  };
  const std::map<std::string, Tensor> before = all_states(trainer);
  try {
    step(trainer, 10);
    ADD_FAILURE() << "10 is no row of the table";
  } catch (const UserError& error) { EXPECT_STREQ(error.what(), "input 'ids', row 5: index 10, wanted -10 to 9"); }
  EXPECT_EQ(all_states(trainer), before);
  EXPECT_EQ(step(trainer, 6), step(other, 6));
  EXPECT_EQ(trainer.weights_digest(), other.weights_digest());
}

// The command.

class AccumulationCommand : public testing::Test {
 protected:
  CommandResult train(const std::string& model, const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train", model, "--data", training_fixture("mlp.npz"), "--out", folder_ / out};
    if (model.ends_with(".onnx"))
      arguments.insert(arguments.end(), {"--loss", "cross_entropy(weight=[0.5, 2, 1.25])", "--batch", "12"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }

  const std::string model_ = training_fixture("mlp.onnx");
  TemporaryDirectory folder_;
};

const std::vector<std::string> kInSix{"--micro-batches", "6", "--clip-norm", "0.3", "--ema", "0.9", "--skip-non-finite"};

std::vector<std::string> with(std::vector<std::string> flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

TEST_F(AccumulationCommand, AnArtifactGoesOnWithIt) {
  ASSERT_EQ(train(model_, "whole.gcx", with(kInSix, {"--steps", "12"})).exit_code, 0);
  ASSERT_EQ(train(model_, "part.gcx", with(kInSix, {"--steps", "5"})).exit_code, 0);
  const std::string part = folder_ / "part.gcx";
  const CommandResult rest = train(part, "rest.gcx", {"--steps", "7"});
  ASSERT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_TRUE(contents(folder_ / "whole.gcx") == contents(folder_ / "rest.gcx"));
  for (const auto& [name, tensor] : runtime::read_artifact(part).weights)
    EXPECT_TRUE(name.find("gradient") == name.npos && name.find("loss") == name.npos) << name << " holds nothing between steps";
  const CommandResult refused = train(part, "x.gcx", {"--steps", "1", "--micro-batches", "2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.errors.find("--micro-batches: '" + part + "' is compiled, which has decided that"), std::string::npos)
      << refused.errors;
  const CommandResult compiled = run_gcomp(with(
      {"compile", model_, "--train", "--loss", "cross_entropy(weight=[0.5, 2, 1.25])", "--batch", "12", "-o", folder_ / "step.gcx"},
      kInSix));
  ASSERT_EQ(compiled.exit_code, 0) << compiled.errors;
  ASSERT_EQ(train(folder_ / "step.gcx", "compiled.onnx", {"--steps", "12"}).exit_code, 0);
  ASSERT_EQ(train(part, "parted.onnx", {"--steps", "7"}).exit_code, 0);
  EXPECT_TRUE(contents(folder_ / "compiled.onnx") == contents(folder_ / "parted.onnx"));
}

TEST_F(AccumulationCommand, AnArtifactThatLacksAPartIsRefused) {
  ASSERT_EQ(run_gcomp(with({"compile", model_, "--train", "--loss", "cross_entropy", "--batch", "12", "--target", "cpu", "-o",
                            folder_ / "step.gcx"},
                           kInSix))
                .exit_code,
            0);
  const runtime::Artifact whole = runtime::read_artifact(folder_ / "step.gcx");
  int parts = 0;
  for (const runtime::Program& part : whole.programs) {
    if (!part.name.starts_with("train")) continue;
    ++parts;
    runtime::Artifact damaged = whole;
    std::erase_if(damaged.programs, [&](const runtime::Program& program) { return program.name == part.name; });
    std::erase_if(damaged.binaries, [&](const auto& binary) { return binary.first.find(part.name) != std::string::npos; });
    runtime::write_artifact(folder_ / "damaged.gcx", damaged);
    EXPECT_THROW(Trainer::load(folder_ / "damaged.gcx"), UserError) << part.name;
    if (part.name != "train_step") { EXPECT_THROW(LoadedModel(folder_ / "damaged.gcx"), UserError) << part.name; }
  }
  EXPECT_EQ(parts, 7) << "step, shard, count, three levels, total";
}

TEST_F(AccumulationCommand, ALoadedModelTrainsAsTheTrainerDoes) {
  ASSERT_EQ(run_gcomp(with({"compile", model_, "--train", "--loss", "cross_entropy(weight=[0.5, 2, 1.25])", "--batch", "12",
                            "--target", "cpu", "-o", folder_ / "step.gcx"},
                           kInSix))
                .exit_code,
            0);
  const std::map<std::string, Tensor> data = load_arrays(training_fixture("mlp.npz"));
  LoadedModel loaded(folder_ / "step.gcx", {}, DeviceRequest::cpu);
  Trainer trainer = Trainer::load(folder_ / "step.gcx");
  EXPECT_EQ(loaded.states(), trainer.states());
  for (const double rate : {std::nan(""), -1.0, std::numeric_limits<double>::infinity()})
    EXPECT_THROW(loaded.set_learning_rate(rate), UserError) << rate;
  EXPECT_EQ(loaded.learning_rate(), trainer.learning_rate());
  for (std::int64_t turn = 0; turn < 3; ++turn) {
    Tensor x(DType::f32, {12, 5}), label(DType::i64, {12});
    for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, data.at("x").at(turn * x.elements() + i));
    for (std::int64_t i = 0; i < 12; ++i) label.set(i, data.at("label").at(turn * 12 + i));
    const Batch batch{{"x", x}, {"label", label}};
    EXPECT_EQ(loaded.train_step(batch), trainer.train_step(batch));
  }
  for (const std::string& name : loaded.states()) EXPECT_EQ(loaded.read(name), trainer.read(name)) << name;
}

TEST_F(AccumulationCommand, AnyThreadsGiveTheSameBytes) {
  const RecordedModel gpt = recorded_model("gpt_tiny");
  std::vector<std::string> written;
  for (const char* threads : {"1", "2", "2"}) {
    const CommandResult result =
        run_gcomp({"train",     gpt.model(),       "--data", gpt.data(),         "--loss",    "cross_entropy",    "--batch",
                   "8",         "--micro-batches", "4",      "--clip-norm",      "0.3",       "--steps",          "4",
                   "--threads", threads,           "--out",  folder_ / "t.onnx", "--metrics", folder_ / "m.jsonl"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    written.push_back(contents(folder_ / "t.onnx"));
    for (const json& line : metric_lines(folder_ / "m.jsonl")) written.back() += concat(" ", line.at("loss").dump());
  }
  EXPECT_TRUE(written[0] == written[1]) << "one thread and two differ";
  EXPECT_TRUE(written[1] == written[2]) << "two runs differ";
}

/// Random numbers are those of the rows of the whole batch, however it is cut.
TEST_F(AccumulationCommand, DropsWhatTheWholeBatchDrops) {
  const auto losses = [&](const std::string& micro_batches, const std::string& seed) {
    const CommandResult result = run_gcomp({"train",
                                            training_fixture("dropout.onnx"),
                                            "--data",
                                            training_fixture("mlp.npz"),
                                            "--loss",
                                            "cross_entropy(ignore_index=1)",
                                            "--batch",
                                            "16",
                                            "--micro-batches",
                                            micro_batches,
                                            "--steps",
                                            "20",
                                            "--seed",
                                            seed,
                                            "--no-shuffle",
                                            "--precision",
                                            "f64",
                                            "--metrics",
                                            folder_ / "m.jsonl",
                                            "--out",
                                            folder_ / "t.onnx"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return step_losses(folder_ / "m.jsonl");
  };
  const std::vector<double> whole = losses("1", "5");
  for (const char* micro_batches : {"2", "4", "8", "16"}) {
    const std::vector<double> parts = losses(micro_batches, "5");
    ASSERT_EQ(parts.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(parts[i], whole[i], kWithin * whole[i]) << micro_batches << " micro-batches, step " << i + 1;
  }
  EXPECT_GT(std::abs(losses("4", "6").back() - whole.back()), 1e-3) << "nothing is dropped";
}

/// Classes that are yes or no are targets as floats, as integers and as truth values.
TEST_F(AccumulationCommand, TargetsMayBeTruthValues) {
  std::map<std::string, Tensor> arrays;
  for (auto& [name, values] : load_arrays(training_fixture("heads_mlp.npz"))) arrays.emplace(name, values);
  std::vector<double> first;
  for (const DType dtype : {DType::f32, DType::i64, DType::boolean}) {
    const std::vector<runtime::NamedTensor> written{{"x", arrays.at("x")}, {"yes", arrays.at("yes").cast(dtype)}};
    runtime::write_npz(folder_ / "t.npz", written);
    const CommandResult result =
        run_gcomp({"train", training_fixture("heads_mlp.onnx"), "--data", folder_ / "t.npz", "--loss", "dice(probs, yes)",
                   "--batch", "6", "--steps", "3", "--metrics", folder_ / "t.jsonl", "--out", folder_ / "t.onnx"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const std::vector<double> losses = step_losses(folder_ / "t.jsonl");
    if (first.empty()) first = losses;
    EXPECT_EQ(losses, first) << name_of(dtype);
  }
  EXPECT_EQ(first.size(), 3);
}

TEST_F(AccumulationCommand, WhatIsAveragedIsSaid) {
  const auto notes = [&](const std::string& loss) {
    const CommandResult result =
        run_gcomp({"train", training_fixture("heads_mlp.onnx"), "--data", training_fixture("heads_mlp.npz"), "--loss", loss,
                   "--batch", "6", "--micro-batches", "3", "--steps", "1", "--out", folder_ / "h.onnx"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.errors;
  };
  const auto expect = [&](const std::string& loss, const std::string& term) {
    const std::string found = notes(loss);
    EXPECT_NE(found.find(concat("note: the loss '", term,
                                "' is no sum over a count: a batch is cut into 3 micro-batches, and it is "
                                "the mean over those, not that of the whole")),
              std::string::npos)
        << found;
  };
  expect("output:total", "total");
  expect("cross_entropy + 2*dice(probs, yes)", "dice(probs, yes)");
  expect("cross_entropy*mse(values, target)", "cross_entropy*mse(values, target)");
  EXPECT_EQ(notes("(2*cross_entropy - mse(values, target)/2 + 1)/3").find("is no sum over a count"), std::string::npos);
}

TEST_F(AccumulationCommand, WhatIsWrongIsSaid) {
  const auto expect = [&](const CommandResult& result, const std::string& part) {
    EXPECT_EQ(result.exit_code, 2) << result.errors;
    EXPECT_NE(result.errors.find(part), std::string::npos) << "no '" << part << "' in: " << result.errors;
  };
  const auto in = [&](const char* count) { return train(model_, "x.onnx", {"--steps", "1", "--micro-batches", count}); };
  expect(in("5"), "--micro-batches 5: a batch of 12 rows is not cut into 5 equal parts");
  expect(in("24"), "--micro-batches 24: a batch of 12 rows is not cut into 24 equal parts");
  expect(in("0"), "--micro-batches 0: wanted 1 to 4096");
  expect(in("-2"), "--micro-batches -2: wanted 1 to 4096");
  expect(in("two"), "--micro-batches");
  expect(run_gcomp({"compile", model_, "--train", "--loss", "mse", "--dim", "batch=8", "--micro-batches", "2", "--emit", "ir"}),
         "--micro-batches 2: give the rows of a step, which it cuts, such as --batch 16");
  expect(run_gcomp({"compile", model_, "--batch", "8", "--micro-batches", "2", "--emit", "ir"}),
         "--micro-batches has a meaning only with --train");
  expect(run_gcomp({"bench", model_, "--data", training_fixture("mlp.npz"), "--loss", "cross_entropy", "--batch", "12",
                    "--micro-batches", "2", "--profile"}),
         "--profile looks into a step of one program: leave --micro-batches out");
}

}  // namespace
}  // namespace gcomp::test
