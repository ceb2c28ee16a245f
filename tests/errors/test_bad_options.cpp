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

TEST_F(BadOptions, UnknownOutputAsLoss) { expect_refused(train({"--loss", "output:loss"}), ExitCode::usage, {"output:loss"}); }

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

TEST_F(BadOptions, NoCommand) { expect_refused(run_gcomp({}), ExitCode::usage, {"no command", "'train', 'run', 'grad'"}); }

TEST_F(BadOptions, BatchBelowZero) {
  expect_refused(run_gcomp({"run", model_, "--inputs", data_, "--outputs", folder_ / "y.npz", "--batch", "-3"}), ExitCode::usage,
                 {"--batch -3"});
  expect_refused(run_gcomp({"compile", model_, "--batch", "-3", "-o", folder_ / "model.gcx"}), ExitCode::usage, {"--batch -3"});
}

TEST_F(BadOptions, UnknownPass) {
  expect_refused(run_gcomp({"compile", model_, "--dim", "batch=4", "--print-after=fusee"}), ExitCode::usage,
                 {"fusee", "did you mean 'fuse'?"});
  expect_refused(run_gcomp({"compile", model_, "--dim", "batch=4", "--disable=fusee", "--emit", "ir"}), ExitCode::usage,
                 {"fusee", "did you mean 'fuse'?"});
}

TEST_F(BadOptions, GlobThatMatchesNothing) { expect_refused(train({"--freeze", "encoder.*"}), ExitCode::usage, {"encoder.*"}); }

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

TEST_F(BadOptions, OptionsThatAnArtifactHasDecided) {
  const std::string artifact = folder_ / "step.gcx", trained = folder_ / "trained.gcx";
  ASSERT_EQ(run_gcomp({"compile", model_, "--train", "--loss", "cross_entropy", "--dim", "batch=4", "-o", artifact}).exit_code, 0);
  const auto train_further = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train", artifact, "--data", data_, "--steps", "2", "--out", trained};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  };
  const std::pair<const char*, const char*> decided[] = {{"--loss", "mse"}, {"--batch", "8"},     {"--lr", "1"},
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
