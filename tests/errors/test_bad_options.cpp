// Options that are unknown, misspelt, contradict each other or would do nothing; the message says what there is.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/errors/bad_input.h"

namespace gcomp::test {
namespace {

class BadOptions : public BadInput {};

TEST_F(BadOptions, UnknownLoss) {
  expect_refused(train({"--loss", "cros_entropy"}), ExitCode::usage, {"unknown loss", "did you mean 'cross_entropy'?"});
}

TEST_F(BadOptions, OutputThatIsNoLoss) {
  expect_refused(train({"--loss", "output:loss"}), ExitCode::usage, {"the model has no output 'loss', it has 'y'"});
  expect_refused(train({"--loss", "output:y"}), ExitCode::usage,
                 {"output 'y' is f32[4,2], wanted a floating-point scalar", "--output y"});
}

TEST_F(BadOptions, UnknownOutput) {
  expect_refused(train({"--output", "yy"}), ExitCode::usage, {"--output yy", "it has 'y'", "did you mean 'y'?"});
  expect_refused(train({"--loss", "output:y", "--output", "y"}), ExitCode::usage,
                 {"--output y", "'output:y' names its output itself"});
}

TEST_F(BadOptions, AFileAsOutput) {
  expect_refused(train({"--output", "t.onnx"}), ExitCode::usage, {"no output of that name", "a file is named by --out"});
  expect_refused(
      run_gcomp({"train", model_, "--data", data_, "--batch", "4", "--steps", "2", "--loss", "mse", "--output", "t.onnx"}),
      ExitCode::usage, {"--out is missing; --output names an output of the model, not a file"});
  expect_refused(run_gcomp({"grad", model_, "--inputs", data_, "--loss", "mse", "--output", "g.npz"}), ExitCode::usage,
                 {"--outputs is missing; --output names an output of the model, not a file"});
}

TEST_F(BadOptions, BothForms) {
  expect_refused(run_gcomp({"run", model_, "--inputs", data_, "--outputs", folder_ / "y.npz", "--training", "--inference"}),
                 ExitCode::usage, {"--training and --inference"});
  expect_refused(run_gcomp({"compile", model_, "--train", "--loss", "mse", "--training", "-o", folder_ / "m.gcx"}), ExitCode::usage,
                 {"--training", "--train"});
}

TEST_F(BadOptions, UnknownOptimizer) {
  expect_refused(train({"--optimizer", "adamq"}), ExitCode::usage, {"unknown optimizer", "did you mean 'adam'?"});
}

TEST_F(BadOptions, OptionThatTheOptimizerLacks) {
  expect_refused(train({"--optimizer", "adam", "--momentum", "0.9"}), ExitCode::usage, {"--momentum", "adam"});
}

TEST_F(BadOptions, UnknownFlag) {
  expect_refused(train({"--leraning-rate", "1"}), ExitCode::usage, {"unknown option --leraning-rate"});
}

TEST_F(BadOptions, MisspeltFlagNamesTheNearest) {
  expect_refused(train({"--momentun", "1"}), ExitCode::usage, {"did you mean '--momentum'?"});
}

TEST_F(BadOptions, UnknownCommand) { expect_refused(run_gcomp({"trian"}), ExitCode::usage, {"did you mean 'train'?"}); }

TEST_F(BadOptions, NoCommand) { expect_refused(run_gcomp({}), ExitCode::usage, {"no command", "'train', 'run', 'eval', 'grad'"}); }

TEST_F(BadOptions, BatchBelowZero) {
  expect_refused(run_gcomp({"run", model_, "--inputs", data_, "--outputs", folder_ / "y.npz", "--batch", "-3"}), ExitCode::usage,
                 {"--batch -3"});
  expect_refused(run_gcomp({"compile", model_, "--batch", "-3", "-o", folder_ / "model.gcx"}), ExitCode::usage, {"--batch -3"});
  const auto train_in = [&](const std::vector<std::string>& batch) {
    std::vector<std::string> arguments{"train", model_, "--data", data_, "--loss", "cross_entropy", "--steps", "1"};
    arguments.insert(arguments.end(), {"--out", folder_ / "t.onnx"});
    arguments.insert(arguments.end(), batch.begin(), batch.end());
    return run_gcomp(arguments);
  };
  expect_refused(train_in({"--batch", "-3"}), ExitCode::usage, {"--batch -3: wanted 1 or more"});
  expect_refused(train_in({}), ExitCode::usage, {"--batch is missing: give the rows of a step"});
}

TEST_F(BadOptions, EmptyValues) {
  expect_refused(run_gcomp({"train", model_, "--data", data_, "--loss", "mse", "--batch", "4", "--steps", "1", "--out", ""}),
                 ExitCode::usage, {"--out is empty"});
  for (const char* option : {"--recompute", "--max-time", "--run-dir", "--eval-data", "--schedule"})
    expect_refused(train({option, ""}), ExitCode::usage, {concat(option, " is empty: wanted ")});
  expect_refused(train({"--freeze", ""}), ExitCode::usage, {"--freeze '' matches no initializer"});
}

TEST_F(BadOptions, UnknownPass) {
  expect_refused(run_gcomp({"compile", model_, "--dim", "batch=4", "--print-after=fusee"}), ExitCode::usage,
                 {"fusee", "did you mean 'fuse'?"});
  expect_refused(run_gcomp({"compile", model_, "--dim", "batch=4", "--disable=fusee", "--emit", "ir"}), ExitCode::usage,
                 {"fusee", "did you mean 'fuse'?"});
}

TEST_F(BadOptions, PassThatCannotBeLeftOut) {
  for (const char* pass : {"differentiate", "expand", "plan_memory"})
    expect_refused(run_gcomp({"compile", model_, "--dim", "batch=4", "--disable", pass, "--emit", "ir"}), ExitCode::usage,
                   {std::string("--disable ") + pass + ": that pass cannot be left out: "});
}

TEST_F(BadOptions, GlobThatMatchesNothing) {
  for (const char* flag : {"--freeze", "--thaw", "--tie", "--untie"})
    expect_refused(train({flag, "encoder.*"}), ExitCode::usage,
                   {std::string(flag) + " encoder.* matches no initializer; there are 'w' and 'b'"});
  const auto rename = [](onnx::ModelProto& model) {
    onnx::GraphProto& graph = *model.mutable_graph();
    for (const auto& [i, name] : {std::pair(0, "encoder.layer.weight"), std::pair(1, "encoder.layer.bias")}) {
      graph.mutable_initializer(i)->set_name(name);
      graph.mutable_node(0)->set_input(i + 1, name);
    }
  };
  write_linear_model(model_, rename);
  expect_refused(train({"--freeze", "encoder.layers.w*"}), ExitCode::usage,
                 {"matches no initializer; the nearest are 'encoder.layer.weight' and 'encoder.layer.bias'"});
}

TEST_F(BadOptions, AdaptersWhereNothingCanHaveOne) {
  write_linear_model(model_, [](onnx::ModelProto& model) {
    onnx::GraphProto& graph = *model.mutable_graph();
    graph.mutable_initializer(0)->mutable_dims()->Clear();
    for (const int size : {1, 3}) graph.mutable_initializer(0)->add_dims(size);
    graph.mutable_initializer(0)->mutable_raw_data()->resize(3 * sizeof(float));
    graph.mutable_initializer()->RemoveLast();
    graph.mutable_node(0)->set_op_type("Mul");
    graph.mutable_node(0)->mutable_input()->RemoveLast();
    graph.mutable_output(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(1)->set_dim_value(3);
  });
  expect_refused(train({"--lora", "*"}), ExitCode::usage, {"--lora * matches nothing that can have an adapter", "; nothing can"});
}

TEST_F(BadOptions, NumbersWithASuffix) {
  struct Case {
    std::vector<std::string> options;
    const char* message;
  };
  const Case cases[] = {
      {{"--seed", "3k"}, "--seed 3k: wanted a whole number from 0 to 2^64 - 1, found 'k' after 3"},
      {{"--threads", "2t"}, "--threads 2t: wanted a whole number, found 't' after 2"},
      {{"--threads", "99999999999"}, "--threads 99999999999: wanted a whole number from -2147483648 to 2147483647"},
      {{"--epochs", "1e3"}, "--epochs 1e3: wanted a whole number, found 'e3' after 1"},
      {{"--epochs", "many"}, "--epochs many: wanted a whole number"},
      {{"--lr", "1e-3x"}, "--lr 1e-3x: wanted a number, found 'x' after 1e-3"},
      {{"--lr", "1e999"}, "--lr 1e999: wanted a number of at most"},
      {{"--eps", "1u"}, "--eps 1u: wanted a number, found 'u' after 1"},
      {{"--weight-decay", "0,1"}, "--weight-decay 0,1: wanted a number, found ',1' after 0"},
      {{"--betas", "0.9,0.99k"}, "--betas 0.9,0.99k: wanted a number, found 'k' after 0.99"},
      {{"--betas", "0.9,"}, "--betas 0.9,: wanted a number, found nothing"},
      {{"--dim", "batch=64k"}, "--dim batch=64k: wanted a whole number, found 'k' after 64"},
      {{"--shapes", "x:3kx1"}, "--shapes x:3kx1: wanted a whole number, found 'k' after 3"},
  };
  for (const Case& test : cases) expect_refused(train(test.options), ExitCode::usage, {test.message});
  expect_refused(run_gcomp({"train", model_, "--data", data_, "--batch", "64k", "--out", out_}), ExitCode::usage,
                 {"gcomp train: --batch 64k: wanted a whole number, found 'k' after 64"});
  expect_refused(run_gcomp({"bench", model_, "--data", data_, "--batch", "4", "--warmup", "1s"}), ExitCode::usage,
                 {"gcomp bench: --warmup 1s: wanted a whole number, found 's' after 1"});
}

TEST_F(BadOptions, NumbersAreDecimal) {
  for (const char* seed : {"010", "+10"}) {
    const CommandResult made = train({"--seed", seed});
    EXPECT_EQ(made.exit_code, 0) << made.errors;
    EXPECT_NE(made.output.find("seed 10,"), std::string::npos) << made.output;
    runtime::test::put(out_, "old contents");
  }
  expect_refused(train({"--seed", "0x10"}), ExitCode::usage, {"--seed 0x10", "found 'x10' after 0"});
}

TEST_F(BadOptions, WhatIsMissingIsNamedAtOnce) {
  expect_refused(run_gcomp({"train"}), ExitCode::usage, {"gcomp train: MODEL, --data and --out are missing"});
  expect_refused(run_gcomp({"train", model_, "--out", out_}), ExitCode::usage, {"gcomp train: --data is missing"});
}

TEST_F(BadOptions, ValuesWhereNoneIsTakenAndNoneWhereOneIs) {
  expect_refused(train({"--threads"}), ExitCode::usage, {"gcomp train: --threads needs a value: --threads N"});
  expect_refused(train({"--json=5"}), ExitCode::usage, {"gcomp train: --json takes no value"});
  expect_refused(train({"--tune=ful"}), ExitCode::usage,
                 {"--tune=ful: wanted --tune alone, or with one of 'equal', 'on', 'full' and 'off'; did you mean 'full'?"});
  expect_refused(run_gcomp({"cache", "lst"}), ExitCode::usage,
                 {"ACTION lst: wanted one of 'list' and 'clear'; did you mean 'list'?"});
}

TEST_F(BadOptions, EverythingFrozen) { expect_refused(train({"--freeze", "*"}), ExitCode::invalid, {"nothing to train"}); }

TEST_F(BadOptions, OptionGivenTwice) {
  expect_refused(train({"--batch", "8"}), ExitCode::usage, {"--batch is given more than once"});
}

TEST_F(BadOptions, SeedThatIsNoSeed) {
  for (const char* seed : {"-1", "99999999999999999999", "1.5"})
    expect_refused(train({"--seed", seed}), ExitCode::usage, {"--seed", seed});
}

TEST_F(BadOptions, OptionsOfTrainingWithoutTraining) {
  for (const char* flag : {"--loss", "--optimizer", "--momentum"})
    expect_refused(run_gcomp({"compile", model_, "--dim", "batch=4", flag, "0.5", "-o", folder_ / "model.gcx"}), ExitCode::usage,
                   {flag, "--train"});
}

TEST_F(BadOptions, OptionsOfTrainingForAForwardPass) {
  const auto bench = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"bench", model_, "--data", data_, "--batch", "4", "--steps", "2", "--inference"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  };
  const std::vector<std::string> options[] = {{"--loss", "cross_entropy"}, {"--optimizer", "sgd"}, {"--lr", "0.1"},
                                              {"--momentum", "0.9"},       {"--nesterov"},         {"--weight-decay", "0"},
                                              {"--micro-batches", "2"},    {"--output", "y"},      {"--betas", "0.9,0.99"},
                                              {"--loss-scale", "dynamic"}};
  for (const std::vector<std::string>& given : options)
    expect_refused(bench(given), ExitCode::usage,
                   {"gcomp bench: " + given[0] + " has no meaning with --inference, which trains nothing"});
  expect_refused(bench({"--warmup", "-1"}), ExitCode::usage, {"--warmup: 0 or more"});
  EXPECT_EQ(bench({}).exit_code, 0);
}

TEST_F(BadOptions, OptionsThatAnArtifactHasDecided) {
  const std::string artifact = folder_ / "step.gcx", trained = folder_ / "trained.gcx";
  ASSERT_EQ(run_gcomp({"compile", model_, "--train", "--loss", "cross_entropy", "--dim", "batch=4", "-o", artifact}).exit_code, 0);
  const auto train_further = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train", artifact, "--data", data_, "--steps", "2", "--out", trained};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  };
  const std::pair<const char*, const char*> decided[] = {{"--loss", "mse"}, {"--batch", "8"},     {"--momentum", "1"},
                                                         {"--freeze", "b"}, {"--dim", "batch=8"}, {"--precision", "f64"}};
  for (const auto& [flag, value] : decided)
    expect_refused(train_further({flag, value}), ExitCode::usage, {flag, "step.gcx", "gcomp compile"});
  expect_refused(train_further({"--device", "cuda"}), ExitCode::usage, {"--device cuda", "step.gcx", "compiled for cpu"});
  const CommandResult predicted =
      run_gcomp({"run", artifact, "--inputs", data_, "--outputs", folder_ / "y.npz", "--precision", "f64"});
  expect_refused(predicted, ExitCode::usage, {"--precision", "step.gcx"});
  EXPECT_FALSE(std::filesystem::exists(trained));
  EXPECT_EQ(train_further({"--seed", "3", "--no-shuffle"}).exit_code, 0);
}

TEST_F(BadOptions, EpochsAndStepsTogether) { expect_refused(train({"--epochs", "2"}), ExitCode::usage, {"--epochs", "--steps"}); }

}  // namespace
}  // namespace gcomp::test
