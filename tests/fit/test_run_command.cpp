// gcomp train --run-dir: the same run by the command, its configuration, and what a signal leaves.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "runtime/files/npy.h"
#include "runtime/files/npz.h"
#include "tests/drive/command.h"
#include "tests/drive/hanging_compiler.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using runtime::test::contents;
using runtime::test::put;
using runtime::test::TemporaryDirectory;

class RunCommand : public testing::Test {
 protected:
  static std::vector<std::string> words(const std::vector<std::string>& more) {
    const RecordedModel mlp = recorded_model("mlp");
    std::vector<std::string> arguments{"train", mlp.model(), "--data", mlp.data(), "--loss", "bce", "--batch", "32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static CommandResult train(const std::vector<std::string>& more) { return run_gcomp(words(more)); }
  json read(const std::string& name) const { return json::parse(contents(folder_ / "run" / name)); }

  TemporaryDirectory folder_;
  const std::string run_ = folder_ / "run";
};

TEST_F(RunCommand, LeavesTheFilesOfTheRun) {
  const CommandResult plain = train({"--steps", "12", "--out", folder_ / "plain.onnx"});
  const CommandResult result = train({"--steps", "12", "--run-dir", run_, "--eval-data", recorded_model("mlp").data(),
                                      "--eval-every", "5", "--save-best", "loss", "--metrics", folder_ / "m.jsonl"});
  ASSERT_EQ(plain.exit_code, 0) << plain.errors;
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(contents(folder_ / "run" / "last.onnx"), contents(folder_ / "plain.onnx"));
  for (const char* file : {"best.onnx", "config.json", "run.json", "metrics.jsonl", "metrics.csv", "log.txt", "lock"})
    EXPECT_TRUE(fs::exists(folder_ / "run" / file)) << file;
  EXPECT_FALSE(fs::exists(folder_ / "run" / "checkpoints")) << "nobody asked for any";
  EXPECT_EQ(read("config.json").at("steps"), (json{{"value", 12}, {"from", "command line"}}));
  EXPECT_EQ(read("config.json").at("optimizer"), (json{{"value", "adamw"}, {"from", "default"}}));
  for (const char* part : {"model", "data", "eval_data"})
    EXPECT_NE(read("run.json").at(part).dump().find("\"sha256\""), std::string::npos) << part;
  const std::string log = contents(folder_ / "run" / "log.txt");
  for (const char* part : {"device: ", "step 5: test loss ", "trained 12 steps", "best loss "})
    EXPECT_NE(log.find(part), std::string::npos) << part << " is not in\n" << log;
  EXPECT_EQ(step_losses(folder_ / "m.jsonl"), step_losses(folder_ / "run" / "metrics.jsonl"));
}

TEST_F(RunCommand, ASignalEndsARunThatGoesOn) {
  const std::vector<std::string> more{"--epochs", "40", "--run-dir", run_, "--schedule", "cosine", "--seed", "3"};
  const CommandResult whole = train({"--epochs", "40", "--run-dir", folder_ / "whole", "--schedule", "cosine", "--seed", "3"});
  ASSERT_EQ(whole.exit_code, 0) << whole.errors;
  const CommandResult ended = interrupt_gcomp(words(more), "step 1/", SIGTERM);
  ASSERT_EQ(ended.exit_code, 75) << ended.errors;
  EXPECT_NE(ended.errors.find("interrupted by SIGTERM after step "), std::string::npos) << ended.errors;
  EXPECT_NE(ended.errors.find("to go on: "), std::string::npos) << ended.errors;
  EXPECT_NE(ended.errors.find(concat("--run-dir ", run_, " --schedule cosine --seed 3 --resume")), std::string::npos)
      << ended.errors;
  EXPECT_TRUE(fs::exists(folder_ / "run" / "last.onnx"));
  EXPECT_EQ(read("run.json").at("state"), "interrupted");
  std::vector<std::string> resuming = more;
  resuming.push_back("--resume");
  const CommandResult resumed = train(resuming);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_NE(resumed.errors.find("resumed from "), std::string::npos) << resumed.errors;
  EXPECT_EQ(contents(folder_ / "run" / "last.onnx"), contents(folder_ / "whole" / "last.onnx"));
  EXPECT_EQ(step_losses(folder_ / "run" / "metrics.jsonl"), step_losses(folder_ / "whole" / "metrics.jsonl"));
}

TEST_F(RunCommand, AnOlderCheckpointIsTakenWithAWarning) {
  std::vector<std::string> more{"--steps", "8", "--run-dir", run_, "--checkpoint-every", "4", "--quiet"};
  ASSERT_EQ(train(more).exit_code, 0);
  fs::resize_file(folder_ / "run" / "checkpoints" / "step-00000008" / "parameters.safetensors", 100);
  more.push_back("--resume");
  const CommandResult resumed = train(more);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_NE(resumed.errors.find("step-00000008/parameters.safetensors' has 100 bytes"), std::string::npos) << resumed.errors;
}

/// What a longer run would have done before is what the shorter one did, or it is refused.
TEST_F(RunCommand, ARunCanBeMadeLonger) {
  const auto run = [&](const std::string& name, const std::string& steps, const std::string& schedule, bool resumes) {
    std::vector<std::string> more{"--steps", steps, "--run-dir", folder_ / name, "--checkpoint-every", "5", "--schedule", schedule};
    if (resumes) more.push_back("--resume");
    return train(more);
  };
  const std::string free = "step(step_size=4, gamma=0.5)";
  ASSERT_EQ(run("whole", "12", free, false).exit_code, 0);
  ASSERT_EQ(run("run", "7", free, false).exit_code, 0);
  const CommandResult longer = run("run", "12", free, true);
  ASSERT_EQ(longer.exit_code, 0) << longer.errors;
  EXPECT_NE(longer.errors.find("was to end after 7 steps, and now ends after 12"), std::string::npos) << longer.errors;
  EXPECT_EQ(contents(folder_ / "run" / "last.onnx"), contents(folder_ / "whole" / "last.onnx"));
  EXPECT_EQ(step_losses(folder_ / "run" / "metrics.jsonl"), step_losses(folder_ / "whole" / "metrics.jsonl"));
  const CommandResult shorter = run("run", "6", free, true);
  EXPECT_EQ(shorter.exit_code, 2);
  EXPECT_NE(shorter.errors.find("12 steps are done, and the run is to end after 6"), std::string::npos) << shorter.errors;
  ASSERT_EQ(run("bound", "7", "cosine", false).exit_code, 0);
  const CommandResult bound = run("bound", "12", "cosine", true);
  EXPECT_EQ(bound.exit_code, 2);
  EXPECT_NE(bound.errors.find("--schedule cosine takes its length from that"), std::string::npos) << bound.errors;
}

/// With no time at all a process does one step.
TEST_F(RunCommand, OneStepAProcessIsOneRun) {
  const std::vector<std::string> more{"--steps",      "9",     "--eval-data", recorded_model("mlp").data(),
                                      "--eval-every", "2",     "--save-best", "loss",
                                      "--ema",        "0.9",   "--schedule",  "one_cycle",
                                      "--drop-last",  "false", "--precision", "f16"};
  const auto run = [&](const std::string& name, std::vector<std::string> others) {
    others.insert(others.begin(), more.begin(), more.end());
    others.insert(others.end(), {"--run-dir", folder_ / name});
    const CommandResult result = train(others);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
  };
  run("whole", {});
  for (int process = 0; process < 9; ++process) run("parts", {"--resume", "--max-time", "0.000001s"});
  EXPECT_EQ(step_losses(folder_ / "parts" / "metrics.jsonl").size(), 9u);
  EXPECT_EQ(step_losses(folder_ / "parts" / "metrics.jsonl"), step_losses(folder_ / "whole" / "metrics.jsonl"));
  for (const char* file : {"last.onnx", "best.onnx"})
    EXPECT_EQ(contents(folder_ / "parts" / file), contents(folder_ / "whole" / file)) << file;
}

/// 70 rows are two steps of 32 and one of 6.
TEST_F(RunCommand, LastRowsAreResumedToo) {
  write_batch(recorded_model("mlp"), 70, folder_ / "rows.npz");
  const auto run = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train",       recorded_model("mlp").model(),
                                       "--data",      folder_ / "rows.npz",
                                       "--loss",      "bce",
                                       "--batch",     "32",
                                       "--epochs",    "2",
                                       "--drop-last", "false",
                                       "--run-dir",   folder_ / name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run_gcomp(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
  };
  run("whole", {});
  for (int process = 0; process < 6; ++process) run("parts", {"--resume", "--max-time", "0.000001s"});
  EXPECT_EQ(step_losses(folder_ / "whole" / "metrics.jsonl").size(), 6u);
  EXPECT_EQ(step_losses(folder_ / "parts" / "metrics.jsonl"), step_losses(folder_ / "whole" / "metrics.jsonl"));
  EXPECT_EQ(contents(folder_ / "parts" / "last.onnx"), contents(folder_ / "whole" / "last.onnx"));
}

TEST_F(RunCommand, ALossThatIsNotFiniteIsOnRecord) {
  const CommandResult result = train({"--steps", "20", "--optimizer", "sgd", "--lr", "1e38", "--run-dir", run_});
  EXPECT_EQ(result.exit_code, 8) << result.errors;
  EXPECT_NE(result.errors.find("last.onnx' is not written"), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("the weights from before the step that failed are no longer there, and there is no checkpoint"),
            std::string::npos)
      << result.errors;
  EXPECT_EQ(read("run.json").at("state"), "failed");
  EXPECT_FALSE(fs::exists(folder_ / "run" / "last.onnx"));
  EXPECT_NE(contents(folder_ / "run" / "log.txt").find("is not written"), std::string::npos);
}

/// What means the same in other words is no other configuration.
TEST_F(RunCommand, GoesOnWithOtherWords) {
  const fs::path data = fs::path(recorded_model("mlp").data());
  const std::string elsewhere = (data.parent_path() / "." / data.filename()).string(), linked = folder_ / "linked.npz";
  fs::create_symlink(fs::absolute(data), linked);
  ASSERT_EQ(train({"--steps", "2", "--run-dir", run_, "--checkpoint-every", "1"}).exit_code, 0);
  const std::vector<std::vector<std::string>> cases{
      {"--lr", "0.001"},        {"--precision", "f32"},   {"--weight-decay", "0.01"}, {"--schedule", "constant"},
      {"--max-kernels", "999"}, {"--max-nodes", "99999"}, {"--eps", "1e-8"},          {"--on-bad-sample", "skip"}};
  for (std::vector<std::string> more : cases) {
    const std::string word = more.front();
    more.insert(more.end(), {"--steps", "2", "--run-dir", run_, "--checkpoint-every", "1", "--resume"});
    const CommandResult result = train(more);
    EXPECT_EQ(result.exit_code, 0) << word << ": " << result.errors;
  }
  if (!on_another_device()) {
    EXPECT_EQ(train({"--steps", "2", "--run-dir", run_, "--resume", "--device", "cpu", "--on-bad-sample", "skip"}).exit_code, 0);
  }
  for (const std::string& path : {elsewhere, linked}) {
    const CommandResult result = run_gcomp({"train", recorded_model("mlp").model(), "--data", path, "--loss", "bce", "--batch",
                                            "32", "--steps", "3", "--run-dir", run_, "--resume", "--on-bad-sample", "skip"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
  }
  const CommandResult other = train({"--steps", "3", "--run-dir", run_, "--resume", "--lr", "0.002"});
  EXPECT_EQ(other.exit_code, 2) << other.errors;
  EXPECT_NE(other.errors.find("'lr' was 0.001 and is 0.002"), std::string::npos) << other.errors;
}

/// Under the name that they had.
TEST_F(RunCommand, OtherDataAreNoContinuation) {
  const std::string data = folder_ / "rows.npz", eval = folder_ / "eval.npz";
  write_batch(recorded_model("mlp"), 64, data);
  write_batch(recorded_model("mlp"), 32, eval);
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train",
                                       recorded_model("mlp").model(),
                                       "--data",
                                       data,
                                       "--eval-data",
                                       eval,
                                       "--loss",
                                       "bce",
                                       "--batch",
                                       "32",
                                       "--steps",
                                       "4",
                                       "--run-dir",
                                       run_,
                                       "--checkpoint-every",
                                       "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  };
  ASSERT_EQ(run({}).exit_code, 0);
  for (const auto& [changed, flag] : {std::pair(data, "--data '"), std::pair(eval, "--eval-data '")}) {
    const std::string before = contents(changed);
    std::map<std::string, Tensor> arrays = load_arrays(changed);
    std::vector<runtime::NamedTensor> others;
    for (auto& [name, array] : arrays) {
      if (is_float(array.dtype())) array.set(0, array.at(0) + 1);
      others.emplace_back(name, array);
    }
    runtime::write_npz(changed, others);
    const CommandResult result = run({"--resume"});
    EXPECT_EQ(result.exit_code, 3) << result.errors;
    for (const std::string& part :
         {std::string(flag) + changed + "' is not what the run began with: its SHA-256 was", std::string("--init")})
      EXPECT_NE(result.errors.find(part), std::string::npos) << part << " is not in " << result.errors;
    put(changed, before);
    EXPECT_EQ(run({"--resume"}).exit_code, 0);
  }
}

/// Steps 9 to 12 of 12, by the rates that they have.
TEST_F(RunCommand, SaysTheRatesOfWhatIsLeft) {
  const std::vector<std::string> more{"--steps", "12",       "--schedule",         "linear", "--lr", "1", "--run-dir",
                                      run_,      "--resume", "--checkpoint-every", "8"};
  std::vector<std::string> plan = more;
  plan.push_back("--plan-only");
  ASSERT_EQ(train(more).exit_code, 0);
  fs::remove_all(folder_ / "run" / "checkpoints" / "step-00000012");
  const CommandResult planned = train(plan);
  ASSERT_EQ(planned.exit_code, 0) << planned.errors;
  EXPECT_NE(planned.output.find("step 9 to 12"), std::string::npos) << planned.output;
  EXPECT_NE(planned.output.find("plan: 12 steps of 32 rows"), std::string::npos) << planned.output;
  EXPECT_NE(planned.output.find(", 8 of them done"), std::string::npos) << planned.output;
  const CommandResult resumed = train(more);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  for (const char* part :
       {"learning rate 0.333333 at step 9, 0.25 at step 10, 0.0833333 at step 12\n", ", learning rate 0.333333\n"})
    EXPECT_NE(resumed.errors.find(part), std::string::npos) << part << " is not in " << resumed.errors;
}

/// A run that is interrupted while it compiles goes on too.
TEST_F(RunCommand, ASignalBeforeTheFirstStepLeavesARunThatGoesOn) {
  if (on_another_device()) GTEST_SKIP() << "no C++ compiler there";
  const HangingCompiler compiler(folder_.path());
  const auto end_it = [&](pid_t child) { compiler.end(child); };
  const auto run = [&](const std::string& how) {
    compiler.forget();
    std::vector<std::string> more{"--steps", "4", "--run-dir", run_, "--compiler", compiler.path(), "--no-cache"};
    if (!how.empty()) more.push_back(how);
    return run_gcomp_until(words(more), "compiling", end_it);
  };
  for (const char* how : {"", "--resume"}) {
    const CommandResult result = run(how);
    EXPECT_EQ(result.exit_code, 75) << result.errors;
    for (const char* part : {"interrupted by SIGTERM before the first step; to go on: ", "--no-cache --resume\n"})
      EXPECT_NE(result.errors.find(part), std::string::npos) << result.errors;
  }
  EXPECT_EQ(run("--overwrite").exit_code, 128 + SIGTERM) << "--resume would go on with the run that was to be replaced";
}

/// A file that is cut while it is read: what was trained is written, and the error is the error.
TEST_F(RunCommand, AnErrorKeepsWhatWasTrained) {
  const auto run = [&](const std::vector<std::string>& more) {
    fs::create_directories(folder_ / "rows");
    write_batch(recorded_model("mlp"), 32, folder_ / "rows.npz");
    for (const auto& [name, array] : load_arrays(folder_ / "rows.npz")) {
      TensorType type = array.type();
      type.shape[0] = 20000;
      runtime::write_npy(folder_ / "rows" / (name + ".npy"), Tensor(type));
    }
    std::vector<std::string> arguments{
        "train",    recorded_model("mlp").model(), "--data", folder_ / "rows", "--loss", "bce", "--batch", "32", "--steps",
        "100000000"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp_until(arguments, "step 1/", [&](pid_t) {
      for (const fs::directory_entry& file : fs::directory_iterator(folder_ / "rows")) fs::resize_file(file, 1000);
    });
  };
  const CommandResult kept = run({"--run-dir", run_});
  EXPECT_EQ(kept.exit_code, 3) << kept.errors;
  for (const std::string& part :
       {"; what was trained up to there is in '" + run_ + "/last.onnx'; once the cause is gone, to go on: ",
        std::string("an error ends the run after step "), std::string("--resume\n")})
    EXPECT_NE(kept.errors.find(part), std::string::npos) << part << " is not in " << kept.errors;
  EXPECT_TRUE(fs::exists(folder_ / "run" / "last.onnx"));
  EXPECT_FALSE(fs::is_empty(folder_ / "run" / "checkpoints"));
  EXPECT_NE(contents(folder_ / "run" / "log.txt").find("an error ends the run after step "), std::string::npos);
  const CommandResult alone = run({"--out", folder_ / "t.onnx"});
  EXPECT_EQ(alone.exit_code, 3) << alone.errors;
  EXPECT_NE(alone.errors.find("what was trained up to there is in '" + (folder_ / "t.onnx").string() + "'\n"), std::string::npos)
      << alone.errors;
  EXPECT_TRUE(fs::exists(folder_ / "t.onnx"));
}

TEST_F(RunCommand, AConfigurationIsReadAgain) {
  put(folder_ / "c.json", R"({"lr": 0.125, "optimizer": "sgd", "steps": 7, "freeze": ["nothing*"], "no-shuffle": true})");
  const CommandResult printed = train({"--config", folder_ / "c.json", "--steps", "9", "--print-config", "--out", "x.onnx"});
  ASSERT_EQ(printed.exit_code, 0) << printed.errors;
  const json config = json::parse(printed.output);
  EXPECT_EQ(config.at("lr"), (json{{"value", 0.125}, {"from", "file"}}));
  EXPECT_EQ(config.at("steps"), (json{{"value", 9}, {"from", "command line"}}));
  EXPECT_EQ(config.at("freeze"), (json{{"value", {"nothing*"}}, {"from", "file"}}));
  EXPECT_EQ(config.at("no-shuffle"), (json{{"value", true}, {"from", "file"}}));
  EXPECT_EQ(config.at("warmup-steps"), (json{{"value", 0}, {"from", "default"}}));
  EXPECT_FALSE(fs::exists("x.onnx"));

  ASSERT_EQ(train({"--steps", "6", "--lr", "0.01", "--run-dir", run_}).exit_code, 0);
  // The run's own config.json has model and data too.
  const CommandResult again = run_gcomp({"train", "--config", folder_ / "run" / "config.json", "--run-dir", folder_ / "again"});
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_EQ(contents(folder_ / "again" / "last.onnx"), contents(folder_ / "run" / "last.onnx"));
}

TEST_F(RunCommand, AModeIsAFlagOrAWord) {
  const auto tuning = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--print-config", "--steps", "1", "--out", "x.onnx"});
    const CommandResult printed = train(words);
    EXPECT_EQ(printed.exit_code, 0) << printed.errors;
    return json::parse(printed.output).at("tune").at("value");
  };
  EXPECT_EQ(tuning({}), json("equal"));
  EXPECT_EQ(tuning({"--tune"}), json(true));
  EXPECT_EQ(tuning({"--tune=on"}), json(true));
  EXPECT_EQ(tuning({"--tune=off"}), json("off"));
  EXPECT_EQ(tuning({"--tune=full"}), json("full"));
  put(folder_ / "c.json", R"({"tune": "full"})");
  EXPECT_EQ(tuning({"--config", folder_ / "c.json"}), json("full"));
  EXPECT_EQ(tuning({"--config", folder_ / "c.json", "--tune=off"}), json("off"));
  put(folder_ / "c.json", R"({"tune": true})");
  EXPECT_EQ(tuning({"--config", folder_ / "c.json"}), json(true));
  put(folder_ / "c.json", R"({"tune": "off"})");
  EXPECT_EQ(tuning({"--config", folder_ / "c.json"}), json("off"));
  put(folder_ / "c.json", R"({"tune": false})");  // of a gcomp that knew no other default
  EXPECT_EQ(tuning({"--config", folder_ / "c.json"}), json("equal"));
}

TEST_F(RunCommand, APlanRunsNothing) {
  const CommandResult plan = train({"--epochs", "3", "--schedule", "linear", "--warmup-steps", "4", "--plan-only", "--run-dir",
                                    run_, "--out", folder_ / "t.onnx"});
  ASSERT_EQ(plan.exit_code, 0) << plan.errors;
  for (const char* part :
       {"plan: ", "memory of a step: ", "learning rate: linear after 4 steps of warm-up", "| ****", "nothing was run"})
    EXPECT_NE(plan.output.find(part), std::string::npos) << plan.output;
  EXPECT_FALSE(fs::exists(run_));
  EXPECT_FALSE(fs::exists(folder_ / "t.onnx"));
  const auto memory = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--epochs", "3", "--plan-only", "--json", "--out", folder_ / "t.onnx"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return nlohmann::json::parse(train(arguments).output).at("plan").at("memory");
  };
  // With micro-batches the gradients are states, and a micro-batch's activations are a part of the batch's.
  const nlohmann::json whole = memory({}), in_parts = memory({"--micro-batches", "4"});
  EXPECT_GT(in_parts.at("states"), whole.at("states"));
  EXPECT_LT(in_parts.at("arena"), whole.at("arena"));
  EXPECT_GT(in_parts.at("arena"), 0);
  for (const nlohmann::json& one : {whole, in_parts}) {
    std::int64_t sum = 0;
    for (const char* part : {"states", "arena", "constants", "inputs_and_outputs", "workspace"})
      sum += one.at(part).get<std::int64_t>();
    EXPECT_EQ(one.at("total"), sum);
    EXPECT_GT(one.at("workspace"), 0) << "products on the CPU pack their operands";
  }
  EXPECT_NE(train({"--epochs", "3", "--schedule", "step", "--plan-only", "--out", folder_ / "t.onnx"}).exit_code, 0);
}

TEST_F(RunCommand, TwoProcessesDoNotShareAFolder) {
  CommandResult second;
  const CommandResult first = run_gcomp_until(words({"--steps", "100000000", "--run-dir", run_}), "step 1/", [&](pid_t child) {
    second = train({"--steps", "1", "--run-dir", run_, "--overwrite"});
    kill(child, SIGKILL);
  });
  EXPECT_EQ(first.exit_code, 128 + SIGKILL);
  EXPECT_EQ(second.exit_code, 3) << second.errors;
  EXPECT_NE(second.errors.find("another process trains there"), std::string::npos) << second.errors;
  // A killed run leaves no lock behind.
  EXPECT_EQ(train({"--steps", "1", "--run-dir", run_, "--overwrite"}).exit_code, 0);
}

TEST_F(RunCommand, TheLastLinesSayWhyItEnded) {
  const CommandResult early = train({"--steps", "500", "--lr", "0", "--run-dir", run_, "--eval-data", recorded_model("mlp").data(),
                                     "--eval-every", "2", "--early-stop", "loss:2"});
  ASSERT_EQ(early.exit_code, 0) << early.errors;
  EXPECT_NE(early.output.find("stopped early after step 6 of 500: --early-stop loss:2"), std::string::npos) << early.output;
  const CommandResult timed = train({"--steps", "100000000", "--max-time", "0.2s", "--out", folder_ / "t.onnx"});
  ASSERT_EQ(timed.exit_code, 0) << timed.errors;
  EXPECT_NE(timed.output.find("of 100000000: --max-time 0.2s has passed"), std::string::npos) << timed.output;
}

}  // namespace
}  // namespace gcomp::test
