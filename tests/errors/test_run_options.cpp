// Options of a run that do not fit: each one clear error, and nothing written or lost.
#include "tests/errors/bad_input.h"

namespace gcomp::test {
namespace {

using runtime::test::put;
using RunOptions = BadInput;

TEST_F(RunOptions, ThatDoNotGoTogetherAreRefused) {
  struct Case {
    std::vector<std::string> options;
    const char* message;
  };
  const std::string run = folder_ / "run";
  const Case cases[] = {
      {{"--resume"}, "--resume: there is no --run-dir DIR"},
      {{"--overwrite"}, "--overwrite: there is no --run-dir DIR"},
      {{"--checkpoint-every", "5"}, "--checkpoint-every: there is no --run-dir DIR"},
      {{"--save-best", "loss"}, "--save-best: there is no --run-dir DIR"},
      {{"--keep", "2"}, "--keep: there is no --run-dir DIR"},
      {{"--log-every", "0"}, "--log-every 0: wanted 1 or more"},
      {{"--metric", "mae"}, "--metric: nothing is evaluated; --eval-data or --split says on which rows"},
      {{"--run-dir", run, "--resume", "--overwrite"}, "--resume and --overwrite"},
      {{"--run-dir", run, "--checkpoint-every", "0"}, "--checkpoint-every 0: wanted 1 or more steps, or a time such as 10m"},
      {{"--run-dir", run, "--checkpoint-every", "10x"}, "--checkpoint-every 10x: wanted a time above 0 with its unit"},
      {{"--run-dir", run, "--keep", "-1"}, "--keep -1: wanted 0 or more"},
      {{"--run-dir", run, "--save-best", "loss"}, "--save-best loss: there is no --eval-data"},
      {{"--early-stop", "loss:3"}, "--early-stop loss:3: there is no --eval-data"},
      {{"--eval-every", "3"}, "--eval-every 3: there is no --eval-data"},
      {{"--eval-data", data_, "--early-stop", "loss"}, "--early-stop loss: wanted METRIC:N"},
      {{"--eval-data", data_, "--early-stop", "acuracy:3"}, "did you mean 'accuracy'?"},
      {{"--max-time", "2"}, "--max-time 2: wanted a time above 0 with its unit, such as 30s, 10m or 2h"},
      {{"--max-time", "-2h"}, "--max-time -2h: wanted a time above 0 with its unit"},
      {{"--log-every", "-1"}, "--log-every -1: wanted 1 or more"},
      {{"--warmup-steps", "-1"}, "--warmup-steps -1: wanted 0 or more"},
      {{"--eval-data", data_, "--eval-every", "0"}, "--eval-every 0: wanted 1 or more"},
      {{"--eval-augment", "noise(x, 1)"}, "--eval-augment: nothing is evaluated; --eval-data or --split says on which rows"},
      {{"--eval-data", data_, "--metric", "accuracy", "--metric", "accuracy"}, "--metric accuracy is given twice"},
      {{"--workers", "-1"}, "--workers -1: wanted 0 to 256"},
      {{"--workers", "257"}, "--workers 257: wanted 0 to 256"},
      {{"--overlap", "--no-overlap"}, "--overlap and --no-overlap: exchanges go on beside the computing, or they do not"},
      {{"--ranks", "0"}, "--ranks 0: wanted 1 or more"},
      {{"--ranks", "1"}, "--batch 4: ranks share a batch that is cut into 8 equal parts"},
      {{"--threads", "-2"}, "--threads -2: wanted 1 or more, or 0 for one on each processor"},
      {{"--tune=foo"}, "gcomp train: --tune=foo: wanted --tune alone"},
      {{"--map", "x=x", "--map", "x=label"}, "--map x=label: 'x' is mapped to 'x' before"},
      {{"--loss", "cross_entropy(weight=[1,2,3])"}, "--loss: cross_entropy(weight=[1, 2, 3]): weight: found 3 numbers, wanted 2"},
      {{"--drop-last", "no"}, "--drop-last no: wanted one of 'true' and 'false'"},
      {{"--skip-spikes", "0"}, "--skip-spikes 0: wanted a number above 0"},
      {{"--schedule", "plateau(factor=1)"}, "a number of at least 0 and below 1"},
      {{"--schedule", "plateau(metric=accuracy)"}, "there is no --eval-data"},
  };
  for (const Case& test : cases) expect_refused(train(test.options), ExitCode::usage, {test.message});
  EXPECT_FALSE(std::filesystem::exists(run)) << "nothing began there";
}

TEST_F(RunOptions, OneOfThemSaysWhereTheModelGoes) {
  expect_refused(run_gcomp({"train", model_, "--data", data_, "--loss", "cross_entropy", "--batch", "4", "--steps", "2"}),
                 ExitCode::usage, {"--out is missing"});
}

TEST_F(RunOptions, ABadConfigurationIsRefused) {
  const std::string file = folder_ / "c.json";
  const auto refused = [&](const char* content, ExitCode code, const std::string& part) {
    put(file, content);
    expect_refused(train({"--config", file}), code, {part});
  };
  refused("[1]", ExitCode::invalid, "it is no JSON object");
  refused("{", ExitCode::invalid, "it is no JSON object");
  refused(R"({"optimiser": "sgd"})", ExitCode::usage, "'optimiser' is no option of this command; did you mean 'optimizer'?");
  refused(R"({"lr": [1]})", ExitCode::usage, "'lr' is [1], wanted a number");
  refused(R"({"nesterov": 1})", ExitCode::usage, "'nesterov' is 1, wanted true or false");
  refused(R"({"freeze": "a*"})", ExitCode::usage, "'freeze' is \"a*\", wanted a list");
  refused(R"({"lr": "much"})", ExitCode::usage, "--lr much: wanted a number");
  expect_refused(train({"--config", folder_ / "none.json"}), ExitCode::invalid, {"none.json"});
}

TEST_F(RunOptions, AnArtifactHasOneBatchSize) {
  const std::string artifact = folder_ / "step.gcx";
  const CommandResult made =
      run_gcomp({"train", model_, "--data", data_, "--loss", "cross_entropy", "--batch", "3", "--steps", "2", "--out", artifact});
  ASSERT_EQ(made.exit_code, 0) << made.errors;
  expect_refused(run_gcomp({"train", artifact, "--data", data_, "--steps", "2", "--drop-last", "false", "--out", out_}),
                 ExitCode::usage, {"2 rows of each epoch fill no batch", "holds the step of one batch size; train from the .onnx"});
}

TEST_F(RunOptions, PartsThatTheLastRowsDoNotHaveAreRefusedBeforeCompiling) {
  const CommandResult refused = run_gcomp({"train", model_, "--data", data_, "--loss", "cross_entropy", "--batch", "6", "--steps",
                                           "2", "--drop-last", "false", "--micro-batches", "6", "--out", out_});
  expect_refused(refused, ExitCode::usage,
                 {"the last 2 rows of each epoch, of 8, fill no batch of 6, and --micro-batches 6 does not divide them",
                  "leave --drop-last out, or give --micro-batches 2"});
  EXPECT_EQ(refused.errors.find("compiling"), std::string::npos) << refused.errors;
}

}  // namespace
}  // namespace gcomp::test
