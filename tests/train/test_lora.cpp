// Low-rank adapters: against PEFT's record (tests/fixtures/training/record_lora.py), by the command and through the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "gcomp/gcomp.h"
#include "gcomp/lora.h"
#include "gcomp/ops.h"
#include "runtime/files/npz.h"
#include "runtime/files/safetensors.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/train/lora_command.h"

namespace gcomp::test {
namespace {

using nlohmann::json;
using runtime::test::contents;
using runtime::test::put;
using runtime::test::TemporaryDirectory;

constexpr double kClose = 1e-9;
constexpr std::int64_t kSteps = 50;

const std::map<std::string, Tensor>& peft_record() {
  static const std::map<std::string, Tensor> kRecord = load_arrays(lora_fixture("lora.npz"));
  return kRecord;
}

/// The options of each recorded training of a model.
std::vector<std::vector<std::string>> recorded_cases(const std::string& model) {
  const Tensor& bytes = peft_record().at(model + ".cases");
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()));
  std::vector<std::vector<std::string>> all;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> flags = json::parse(line).get<std::vector<std::string>>();
    for (std::string& flag : flags)
      if (flag.starts_with("lora/")) flag = lora_fixture(flag);
    all.push_back(std::move(flags));
  }
  return all;
}

class RecordedAdapters : public LoraCommand, public testing::WithParamInterface<const char*> {};

TEST_P(RecordedAdapters, TrainAsPeftDoes) {
  const std::string model = GetParam();
  const Tensor &losses = peft_record().at(model), &evaluated = peft_record().at(model + ".evaluated");
  const std::vector<std::vector<std::string>> all = recorded_cases(model);
  ASSERT_EQ(all.size(), 4u);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<std::string> flags{"--steps", std::to_string(kSteps), "--precision",
                                   "f64",     "--eval-data",          lora_fixture(model + ".npz")};
    flags.insert(flags.end(), all[i].begin(), all[i].end());
    const CommandResult result = train(model, flags);
    ASSERT_EQ(result.exit_code, 0) << text_of(flags) << ": " << result.errors;
    const std::vector<json> lines = metrics();
    ASSERT_EQ(static_cast<std::int64_t>(lines.size()), kSteps + 1);
    const auto number = static_cast<std::int64_t>(i);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      const double wanted = losses.at(number * kSteps + step);
      ASSERT_NEAR(lines[static_cast<std::size_t>(step)].at("loss").get<double>(), wanted, kClose * wanted)
          << text_of(flags) << ", step " << step + 1;
    }
    const double wanted = evaluated.at(number);
    EXPECT_NEAR(lines.back().at("loss").get<double>(), wanted, kClose * wanted) << text_of(flags) << ", evaluated";
  }
}

/// Names, shapes and values of PEFT's own state dict, and what its configuration says.
TEST_P(RecordedAdapters, AreWrittenAsPeftWritesThem) {
  const std::string model = GetParam(), out = folder_ / "adapter_model.safetensors";
  std::vector<std::string> flags = recorded_cases(model).at(0);
  flags.insert(flags.end(), {"--steps", std::to_string(kSteps), "--precision", "f64", "--out-adapter", out});
  const CommandResult result = train(model, flags);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.output.find("wrote '" + out + "', the adapters"), std::string::npos) << result.output;
  const runtime::Safetensors written = runtime::read_safetensors(out);
  const std::string prefix = model + ".final.";
  std::size_t recorded = 0;
  for (const auto& [name, wanted] : peft_record()) {
    if (!name.starts_with(prefix)) continue;
    ++recorded;
    const auto found = written.tensors.find(name.substr(prefix.size()));
    ASSERT_NE(found, written.tensors.end()) << name;
    ASSERT_EQ(found->second.type(), wanted.type()) << name;
    for (std::int64_t i = 0; i < wanted.elements(); ++i)
      EXPECT_NEAR(found->second.at(i), wanted.at(i), 1e-8 * std::max(1e-3, std::abs(wanted.at(i)))) << name << ", " << i;
  }
  EXPECT_EQ(written.tensors.size(), recorded);
  EXPECT_EQ(written.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  const json config = json::parse(contents(folder_ / "adapter_config.json"));
  const json theirs = json::parse(contents(lora_fixture("lora/" + model + "/adapter_config.json")));
  EXPECT_EQ(config.at("r"), 2);
  EXPECT_EQ(config.at("lora_alpha"), 4);
  for (const auto& [name, value] : config.items()) {
    ASSERT_TRUE(theirs.contains(name)) << name << " is no member of PEFT's";
    if (name == "target_modules") {
      EXPECT_EQ(value.get<std::set<std::string>>(), theirs.at(name).get<std::set<std::string>>());
    } else if (name != "r" && name != "lora_alpha" && name != "auto_mapping" && name != "use_rslora") {
      EXPECT_EQ(value, theirs.at(name)) << name;
    }
  }
}

/// Of 16 bits and dynamic loss scaling too: near what PEFT computes in f64.
TEST_P(RecordedAdapters, TrainInMixedPrecision) {
  const std::string model = GetParam();
  const Tensor& losses = peft_record().at(model);
  for (const auto& [precision, tolerance] : {std::pair("f32", 1e-5), std::pair("bf16", 0x1p-6), std::pair("f16", 0x1p-9)}) {
    std::vector<std::string> flags = recorded_cases(model).at(0);
    flags.insert(flags.end(), {"--steps", "10", "--precision", precision});
    if (precision == std::string("f16")) flags.insert(flags.end(), {"--loss-scale", "1024"});
    const CommandResult result = train(model, flags);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const std::vector<json> lines = metrics();
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_NEAR(lines[i].at("loss").get<double>(), losses.at(static_cast<std::int64_t>(i)),
                  tolerance * losses.at(static_cast<std::int64_t>(i)))
          << precision << ", step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecordedAdapters, testing::Values("mlp", "cnn", "transformer", "bn"),
                         [](const auto& info) { return std::string(info.param); });

// The library.

TrainOptions lora_options() {
  return {.optimizer = {"adamw"},
          .learning_rate = 0.01,
          .lora = {"*"},
          .lora_rank = 2,
          .lora_alpha = 4,
          .batch = 6,
          .device = DeviceRequest::cpu};
}

/// The rows of a step.
struct Rows {
  Tensor x, label;
  Rows(const std::string& model, std::int64_t turn) {
    static std::map<std::string, std::map<std::string, Tensor>> loaded;
    std::map<std::string, Tensor>& data = loaded[model];
    if (data.empty()) data = load_arrays(lora_fixture(model + ".npz"));
    const auto part = [&](const Tensor& whole) {
      Shape shape = whole.shape();
      shape[0] = 6;
      Tensor rows(whole.dtype(), shape);
      for (std::int64_t i = 0; i < rows.elements(); ++i) rows.set(i, whole.at(turn * rows.elements() + i));
      return rows;
    };
    x = part(data.at("x"));
    label = part(data.at("label"));
  }
  Batch batch() const { return {{"x", x}, {"label", label}}; }
};

TEST(Lora, TheBaseStaysAndHasNoStates) {
  const Model model = Model::load(lora_fixture("transformer.onnx"));
  Trainer trainer(model, lora_options());
  const std::vector<std::string> trained = trainer.trained();
  EXPECT_EQ(trained.size(), 12u);
  const std::set<std::string> adapters(trained.begin(), trained.end());
  std::size_t moments = 0, parameters = 0;
  for (const std::string& name : trainer.states()) {
    const std::string_view view = name;
    if (name.ends_with(".exp_avg") || name.ends_with(".exp_avg_sq")) {
      ++moments;
      EXPECT_TRUE(adapters.contains(std::string(view.substr(0, view.rfind(".exp_avg"))))) << name;
    } else if (name != "step") {
      ++parameters;
    }
  }
  EXPECT_EQ(moments, 24u) << "two for each factor of an adapter, none for the base";
  EXPECT_EQ(parameters, 12u + 15u) << "the adapters and the model's parameters";
  std::map<std::string, Tensor> before;
  for (const std::string& name : trainer.states()) before.emplace(name, trainer.read(name));
  for (std::int64_t turn = 0; turn < 3; ++turn) trainer.train_step(Rows("transformer", turn).batch());
  for (const auto& [name, value] : before) {
    const bool moves = name.find(".lora_") != std::string::npos || name == "step";
    EXPECT_EQ(trainer.read(name) == value, !moves) << name;
  }
}

TEST(Lora, StartsWithThePlainModel) {
  const Model model = Model::load(lora_fixture("cnn.onnx"));
  Trainer adapted(model, lora_options());
  TrainOptions plain_options = lora_options();
  plain_options.lora.clear();
  Trainer plain(model, plain_options);
  const Rows rows("cnn", 0);
  EXPECT_EQ(adapted.train_step(rows.batch()), plain.train_step(rows.batch())) << "B is 0";
  const Tensor a = Trainer(model, lora_options()).read("0.weight.lora_A");
  EXPECT_EQ(a.shape(), (Shape{2, 2, 3, 3}));
  const double bound = 1 / std::sqrt(18.0);
  double largest = 0;
  for (const double value : a.to_doubles()) largest = std::max(largest, std::abs(value));
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, bound / 2);
  TrainOptions other = lora_options();
  other.graph.seed = 1;
  EXPECT_NE(Trainer(model, other).read("0.weight.lora_A"), a) << "another seed, another start";
}

TEST(Lora, MergedFilesComputeWhatTheAdaptedModelDoes) {
  for (const std::string model : {"mlp", "cnn", "transformer", "bn"}) {
    const TemporaryDirectory folder;
    TrainOptions options = lora_options();
    options.ema = 0.5;
    Trainer trainer(Model::load(lora_fixture(model + ".onnx")), options);
    for (std::int64_t turn = 0; turn < 8; ++turn) trainer.train_step(Rows(model, turn).batch());
    const Rows rows(model, 20);
    for (const Weights weights : {Weights::trained, Weights::averaged}) {
      trainer.use(weights);
      const Tensor adapted = trainer.predict(rows.batch())[0].second;
      trainer.save(folder / "merged.onnx", weights);
      Predictor merged(Model::load(folder / "merged.onnx"), {.batch = 6, .device = DeviceRequest::cpu});
      Predictor base(Model::load(lora_fixture(model + ".onnx")), {.batch = 6, .device = DeviceRequest::cpu});
      const Tensor found = merged.predict(rows.batch())[0].second, without = base.predict(rows.batch())[0].second;
      double moved = 0;
      for (std::int64_t i = 0; i < adapted.elements(); ++i) {
        EXPECT_NEAR(found.at(i), adapted.at(i), 2e-6 * std::max(1.0, std::abs(adapted.at(i)))) << model << ", " << i;
        moved = std::max(moved, std::abs(found.at(i) - without.at(i)));
      }
      EXPECT_GT(moved, 1e-2) << model << ": the adapters count";
    }
  }
}

TEST(Lora, AnAdapterGoesOnFromItsFile) {
  const TemporaryDirectory folder;
  const Model model = Model::load(lora_fixture("transformer.onnx"));
  Trainer first(model, lora_options());
  for (std::int64_t turn = 0; turn < 4; ++turn) first.train_step(Rows("transformer", turn).batch());
  ASSERT_TRUE(has_adapters(first));
  save_adapter(first, folder / "a.safetensors");
  TrainOptions options = lora_options();
  options.lora.clear();
  options.lora_adapter = folder / "a.safetensors";
  Trainer second(model, options);
  EXPECT_EQ(second.trained(), first.trained());
  for (const std::string& name : first.trained()) EXPECT_EQ(second.read(name), first.read(name)) << name;
  const Rows rows("transformer", 4);
  EXPECT_EQ(second.predict(rows.batch())[0].second, first.predict(rows.batch())[0].second);
  Predictor beside(model, {.adapter = folder / "a.safetensors", .device = DeviceRequest::cpu});
  const Tensor found = beside.predict(rows.batch())[0].second, wanted = first.predict(rows.batch())[0].second;
  for (std::int64_t i = 0; i < wanted.elements(); ++i) EXPECT_NEAR(found.at(i), wanted.at(i), 1e-5) << i;
  save_adapter(second, folder / "b.safetensors");
  EXPECT_TRUE(contents(folder / "a.safetensors") == contents(folder / "b.safetensors"));
  TrainOptions plain = lora_options();
  plain.lora.clear();
  EXPECT_THROW(save_adapter(Trainer(model, plain), folder / "c.safetensors"), Error);
}

/// Of a definition in C++, whose weights are [outputs, inputs] by name.
TEST(Lora, ModelsWrittenInCpp) {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 4});
    nn.output("y", nn.linear("head", nn.relu(nn.linear("body.0", x, 8)), 2));
  });
  TrainOptions options = lora_options();
  options.loss = "mse";
  options.lora = {"body.*"};
  Trainer trainer(model, options);
  EXPECT_EQ(trainer.trained(), (std::vector<std::string>{"body.0.weight.lora_A", "body.0.weight.lora_B"}));
}

/// Of the older exporter: "/query/MatMul" reads "onnx::MatMul_44".
TEST(Lora, NodesTellModulesWhereNamesDoNot) {
  const TemporaryDirectory folder;
  TrainOptions options = lora_options();
  options.lora = {"query", "/value/*", "up"};
  save_adapter(Trainer(Model::load(lora_fixture("lora/scopes.onnx")), options), folder / "a.safetensors");
  EXPECT_EQ(json::parse(contents(folder / "adapter_config.json")).at("target_modules"), json({"query", "up", "value"}));
}

/// Of torch.nn.MultiheadAttention: what PEFT calls its two matrices, and the one target that it knows for both.
TEST(Lora, MatricesOfAttentionGoByPeftsNames) {
  const TemporaryDirectory folder;
  const Model model = Model::define([](Layers& nn) {
    Var joined = nn.parameter("attention.in_proj_weight", {6, 4}, std::vector<double>(24, 0.1));
    Var x = ops::matmul(nn.input("x", DType::f32, {kBatch, 4}), ops::transpose(joined, {1, 0}));
    nn.output("y", nn.linear("out_proj", nn.linear("attention.out_proj", x, 4), 2));
  });
  TrainOptions options = lora_options();
  options.loss = "mse";
  save_adapter(Trainer(model, options), folder / "a.safetensors");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : runtime::read_safetensors(folder / "a.safetensors").tensors)
    if (name.ends_with("lora_A.weight")) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"base_model.model.attention.base_layer.out_proj.lora_A.weight",
                                      "base_model.model.attention.lora_A.weight", "base_model.model.out_proj.lora_A.weight"}));
  EXPECT_EQ(json::parse(contents(folder / "adapter_config.json")).at("target_modules"), json({"attention", "out_proj"}));
  options.lora.clear();
  options.lora_adapter = folder / "a.safetensors";
  EXPECT_EQ(Trainer(model, options).trained().size(), 6u);
}

// The command.

TEST_F(LoraCommand, AnArtifactGoesOnWithItsAdapters) {
  const std::vector<std::string> lora{"--lora", "*", "--lora-rank", "3", "--lora-alpha", "5", "--ema", "0.9", "--clip-norm", "0.5"};
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), lora.begin(), lora.end());
    return flags;
  };
  ASSERT_EQ(train("mlp", with({"--steps", "12"}), "whole.gcx").exit_code, 0);
  ASSERT_EQ(train("mlp", with({"--steps", "5"}), "part.gcx").exit_code, 0);
  const CommandResult rest = train("part.gcx", {"--steps", "7", "--out-adapter", folder_ / "rest.safetensors"}, "rest.gcx");
  ASSERT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_TRUE(contents(folder_ / "whole.gcx") == contents(folder_ / "rest.gcx"));
  EXPECT_EQ(json::parse(contents(folder_ / "adapter_config.json")).at("lora_alpha"), 5);
  ASSERT_EQ(train("mlp", with({"--steps", "12", "--out-adapter", folder_ / "whole.safetensors"}), "whole.onnx").exit_code, 0);
  EXPECT_TRUE(contents(folder_ / "whole.safetensors") == contents(folder_ / "rest.safetensors"));
  ASSERT_EQ(train("part.gcx", {"--steps", "7"}, "rest.onnx").exit_code, 0);
  EXPECT_TRUE(contents(folder_ / "whole.onnx") == contents(folder_ / "rest.onnx"));
  for (const std::vector<std::string>& decided :
       {std::vector<std::string>{"--lora", "*"}, {"--lora-rank", "2"}, {"--adapter", folder_ / "rest.safetensors"}}) {
    std::vector<std::string> flags{"--steps", "1"};
    flags.insert(flags.end(), decided.begin(), decided.end());
    const CommandResult refused = train("part.gcx", flags, "x.gcx");
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.errors.find("is compiled, which has decided that"), std::string::npos) << refused.errors;
  }
}

/// Unmerged by run, eval and compile, merged by train.
TEST_F(LoraCommand, EveryCommandTakesAnAdapter) {
  const std::string model = lora_fixture("cnn.onnx"), data = lora_fixture("cnn.npz"), adapter = folder_ / "a.safetensors";
  ASSERT_EQ(train("cnn", {"--lora", "*", "--lr", "0.02", "--steps", "20", "--out-adapter", adapter}).exit_code, 0);
  const auto outputs = [&](const std::string& file, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run", file, "--inputs", data, "--outputs", folder_ / "y.npz"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run_gcomp(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return load_arrays(folder_ / "y.npz").at("logits");
  };
  ASSERT_EQ(run_gcomp({"compile", model, "--adapter", adapter, "--batch", "6", "-o", folder_ / "m.gcx"}).exit_code, 0);
  const Tensor merged = outputs(folder_ / "t.onnx", {}), adapted = outputs(model, {"--adapter", adapter}),
               plain = outputs(model, {}), compiled = outputs(folder_ / "m.gcx", {});
  double moved = 0;
  for (std::int64_t i = 0; i < merged.elements(); ++i) {
    EXPECT_NEAR(adapted.at(i), merged.at(i), 2e-6 * std::max(1.0, std::abs(merged.at(i)))) << i;
    EXPECT_NEAR(compiled.at(i), adapted.at(i), 1e-6 * std::max(1.0, std::abs(merged.at(i)))) << i;
    moved = std::max(moved, std::abs(adapted.at(i) - plain.at(i)));
  }
  EXPECT_GT(moved, 1e-2);
  const auto loss = [&](const std::string& file, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"eval", file, "--data", data, "--loss", "cross_entropy", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run_gcomp(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return json::parse(result.output).at("loss").get<double>();
  };
  EXPECT_NEAR(loss(model, {"--adapter", adapter}), loss(folder_ / "t.onnx", {}), 1e-6);
}

TEST_F(LoraCommand, AnyThreadsGiveTheSameBytes) {
  std::vector<std::string> written;
  for (const char* threads : {"1", "2", "2"}) {
    const CommandResult result =
        train("transformer", {"--lora", "*", "--steps", "5", "--threads", threads, "--out-adapter", folder_ / "a.safetensors"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    written.push_back(contents(folder_ / "t.onnx") + contents(folder_ / "a.safetensors"));
  }
  EXPECT_TRUE(written[0] == written[1]) << "one thread and two differ";
  EXPECT_TRUE(written[1] == written[2]) << "two runs differ";
}

/// From whatever a run leaves, the bytes that the run itself wrote.
TEST_F(LoraCommand, AConversionMergesAsTrainingDoes) {
  const std::string run = folder_ / "run", artifact = folder_ / "t.gcx", made = folder_ / "made.onnx";
  const std::vector<std::string> flags{"--lora",    "*",         "--lora-alpha",
                                       "6",         "--steps",   "6",
                                       "--lr",      "0.05",      "--ema",
                                       "0.5",       "--out-ema", folder_ / "ema.onnx",
                                       "--run-dir", run,         "--checkpoint-every",
                                       "3"};
  ASSERT_EQ(train("cnn", flags, "t.gcx").exit_code, 0);
  const std::string trained = contents(run + "/last.onnx"), averaged = contents(folder_ / "ema.onnx");
  ASSERT_TRUE(trained != averaged);
  const auto convert = [&](const std::string& in, const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"convert", in, out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run_gcomp(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result;
  };
  for (const std::string& in : {run + "/checkpoints", artifact}) {
    const CommandResult result = convert(in, made);
    EXPECT_NE((result.output + result.errors).find("the adapters of 3 weights are merged into them"), std::string::npos)
        << result.output << result.errors;
    EXPECT_TRUE(contents(made) == trained) << in;
    convert(in, made, {"--averages"});
    EXPECT_TRUE(contents(made) == averaged) << in;
    convert(in, folder_ / "w.safetensors");
    convert(folder_ / "w.safetensors", made, {"--model", lora_fixture("cnn.onnx")});
    EXPECT_TRUE(contents(made) == trained) << in << " by way of safetensors";
    convert(in, folder_ / "again");
    convert(folder_ / "again", made);
    EXPECT_TRUE(contents(made) == trained) << in << " by way of a checkpoint";
    std::filesystem::remove_all(folder_ / "again");
  }
  ASSERT_EQ(train("cnn", {"--lora", "*", "--lora-alpha", "60", "--ema", "0.5", "--steps", "1"}, "other.gcx").exit_code, 0);
  const CommandResult other = run_gcomp({"convert", run + "/checkpoints", folder_ / "n.gcx", "--model", folder_ / "other.gcx"});
  EXPECT_EQ(other.exit_code, 3);
  EXPECT_NE(other.errors.find("alpha was 6 and is 60 there"), std::string::npos) << other.errors;
}

/// The configuration of a run names the adapter's file, not what is in it.
TEST_F(LoraCommand, ARunGoesOnWithTheAdapterThatItBeganWith) {
  const std::string adapter = folder_ / "a.safetensors", config = folder_ / "adapter_config.json";
  ASSERT_EQ(train("mlp", {"--lora", "*", "--lora-alpha", "6", "--steps", "2", "--out-adapter", adapter}).exit_code, 0);
  const auto run = [&](const char* how, const char* steps) {
    return train("mlp", {"--adapter", adapter, "--steps", steps, "--run-dir", folder_ / "run", "--checkpoint-every", "1", how});
  };
  ASSERT_EQ(run("--overwrite", "2").exit_code, 0);
  json changed = json::parse(contents(config));
  changed["lora_alpha"] = 60;
  put(config, changed.dump());
  const CommandResult refused = run("--resume", "4");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.errors.find("its adapters are others: alpha was 6 and is 60"), std::string::npos) << refused.errors;
  changed["lora_alpha"] = 6;
  put(config, changed.dump());
  const CommandResult resumed = run("--resume", "4");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.errors;
}

TEST_F(LoraCommand, WhatIsThawedTrainsToo) {
  const std::vector<std::string> flags{"--lora", "0.weight", "--thaw", "2.*", "--steps", "3"};
  const CommandResult result = train("mlp", flags);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("trained: 4 parameters"), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("0.weight.lora_A"), std::string::npos) << result.errors;
  std::vector<std::string> with_file = flags;
  with_file.insert(with_file.end(), {"--out-adapter", folder_ / "a.safetensors"});
  const CommandResult refused = train("mlp", with_file);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.errors.find("'2.weight' trains beside the adapters (--thaw)"), std::string::npos) << refused.errors;
}

TEST_F(LoraCommand, NamesOfModulesMayBeGiven) {
  put(folder_ / "names.json", R"({"val_2": "layers.0.query", "head.weight": "lm_head"})");
  const std::vector<std::string> flags{"--name-map", folder_ / "names.json", "--steps", "2"};
  std::vector<std::string> first = flags;
  first.insert(first.end(), {"--lora", "layers.0.*, lm_head", "--out-adapter", folder_ / "a.safetensors"});
  const CommandResult result = train("transformer", first);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : runtime::read_safetensors(folder_ / "a.safetensors").tensors) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"base_model.model.layers.0.query.lora_A.weight",
                                             "base_model.model.layers.0.query.lora_B.weight",
                                             "base_model.model.lm_head.lora_A.weight", "base_model.model.lm_head.lora_B.weight"}));
  std::vector<std::string> second = flags;
  second.insert(second.end(), {"--adapter", folder_ / "a.safetensors"});
  EXPECT_EQ(train("transformer", second).exit_code, 0);
  put(folder_ / "names.json", R"({"val_2": "query", "layers.0.*": "*"})");
  const CommandResult no_beginning = train("transformer", {"--lora", "*", "--name-map", folder_ / "names.json", "--steps", "2"});
  EXPECT_EQ(no_beginning.exit_code, 2);
  EXPECT_NE(no_beginning.errors.find("no module of the model begins with 'layers.0.'"), std::string::npos) << no_beginning.errors;
  put(folder_ / "names.json", R"({"qu*": "layers.0.qu*", "head*": "lm_head*", "h*": "x*"})");
  EXPECT_EQ(train("transformer", second).exit_code, 0) << "beginnings of paths, of which the longest counts";
  put(folder_ / "names.json", R"({"qu*": "query"})");
  EXPECT_EQ(train("transformer", second).exit_code, 3) << "a beginning of paths is turned into one";
  const CommandResult without = train("transformer", {"--adapter", folder_ / "a.safetensors", "--steps", "2"});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_NE(without.errors.find("the model has no module 'layers.0.query' that takes an adapter"), std::string::npos)
      << without.errors;
}

}  // namespace
}  // namespace gcomp::test
