// Timed choices travel with a run: it goes on with the algorithms that it began with, whatever the cache and the clock then say,
// and says so where it cannot; several ranks compute as the first of them.
#include <gtest/gtest.h>

#include <filesystem>

#include "gcomp/driver/checkpoint.h"
#include "ir/base/error.h"
#include "runtime/comm/mpi_communicator.h"
#include "runtime/cpu/find_compiler.h"
#include "runtime/files/sha256.h"
#include "tests/cuda/cuda_run.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using runtime::test::contents;
using runtime::test::put;
using Settings = std::map<std::string, std::string>;
using Words = std::vector<std::string>;

/// Each algorithm has its own last digits.
Settings with_times(const char* times) { return {{"CUBLASLT_TIMES", times}, {"CUBLASLT_ORDERS", "1"}}; }

class CudaTunedRunsOnAnyGpu : public testing::Test {
 protected:
  CudaRun train(const std::string& run, std::int64_t steps, const Words& more, const Settings& settings) {
    Words words{"--run-dir", folder_ / run, "--checkpoint-every", "1"};
    words.insert(words.end(), more.begin(), more.end());
    const CudaRun done = folder_.train(model_, steps, {.emulated = settings}, words);
    EXPECT_EQ(done.result.exit_code, 0) << done.result.errors;
    EXPECT_TRUE(leaks(done).empty());
    return done;
  }
  std::string trained() const { return contents(folder_ / "trained.onnx"); }
  void forget_timings() const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "cache"))
      if (entry.is_regular_file() && contents(entry.path()).find("timed products of gcomp") != std::string::npos)
        fs::remove(entry.path());
  }
  fs::path newest(const std::string& run) const { return driver::find_latest(folder_ / run / "checkpoints")->path; }
  void put_manifest(const fs::path& checkpoint, const json& changed) const {
    const std::string text = changed.dump();
    put(checkpoint / "manifest.json", text);
    put(checkpoint / "manifest.json.sha256", runtime::sha256(text) + "  manifest.json\n");
  }
  static std::int64_t products(const CudaRun& run) { return run.cublaslt.at("counts").value("cublasLtMatmul", std::int64_t{0}); }

  const RecordedModel model_ = recorded_model("mlp");
  CudaFolder folder_;
};

class CudaTunedRuns : public CudaTunedRunsOnAnyGpu {
 protected:
  void SetUp() override {
    if (on_real_device()) GTEST_SKIP() << "only the emulated library has other digits at will";
  }
};

constexpr char kNotTaken[] = "its timed choices (--tune) are not taken: ";

/// A clock decides, and the second run begins as the first did only because the cache remembers.
TEST_F(CudaTunedRunsOnAnyGpu, GoOnToTheBit) {
  train("whole", 4, {"--tune"}, {});
  const std::string whole = trained();
  train("parts", 2, {"--tune"}, {});
  forget_timings();
  const CudaRun resumed = train("parts", 4, {"--resume"}, {});
  EXPECT_TRUE(trained() == whole);
  EXPECT_EQ(resumed.result.errors.find(kNotTaken), std::string::npos) << resumed.result.errors;
  EXPECT_NE(contents(newest("parts") / "manifest.json").find("\"timed_choices\": \"timed choices 1"), std::string::npos);
}

TEST_F(CudaTunedRuns, ARunGoesOnWithItsChoicesWhateverTheCacheHolds) {
  const std::int64_t untimed = products(train("untuned", 4, {}, with_times("20,10")));
  const std::string favourites = trained();
  train("whole", 4, {"--tune"}, with_times("20,10"));
  const std::string whole = trained();
  ASSERT_FALSE(whole == favourites) << "the algorithms have the same digits";

  // The other algorithm is the faster one now, as it might be on another day; --tune is the run's, and not given again.
  train("parts", 2, {"--tune"}, with_times("20,10"));
  forget_timings();
  const CudaRun resumed = train("parts", 4, {"--resume"}, with_times("10,20"));
  EXPECT_TRUE(trained() == whole);
  EXPECT_EQ(products(resumed), untimed) << "what is known was timed again";
  EXPECT_EQ(resumed.result.errors.find(kNotTaken), std::string::npos) << resumed.result.errors;

  // A cache of other choices changes nothing either, nor --tune on the command line.
  train("others", 2, {"--tune"}, with_times("20,10"));
  forget_timings();
  train("cached", 2, {"--tune"}, with_times("10,20"));
  train("others", 4, {"--resume", "--tune"}, with_times("10,20"));
  EXPECT_TRUE(trained() == whole);

  // Without them it is timed again, says so, and comes to something else.
  train("without", 2, {"--tune"}, with_times("20,10"));
  forget_timings();
  json manifest = json::parse(contents(newest("without") / "manifest.json"));
  ASSERT_EQ(manifest.erase("timed_choices"), 1U);
  put_manifest(newest("without"), manifest);
  const CudaRun anew = train("without", 4, {"--resume"}, with_times("10,20"));
  EXPECT_GT(products(anew), untimed);
  EXPECT_NE(anew.result.errors.find(concat(kNotTaken, "none are kept there; bits may differ from here on")), std::string::npos)
      << anew.result.errors;
  EXPECT_FALSE(trained() == whole);
}

/// So does an artifact: the note says where they are not taken.
TEST_F(CudaTunedRuns, AnArtifactGoesOnWithItsChoices) {
  train("whole", 4, {"--tune"}, with_times("20,10"));
  const std::string whole = trained(), half = folder_ / "half.gcx", rest = folder_ / "rest.onnx";
  const auto go_on = [&](const Words& more, const Settings& settings) {
    Words words{"train", half, "--data", model_.data(), "--steps", "2", "--no-shuffle", "--out", rest};
    words.insert(words.end(), more.begin(), more.end());
    const CudaRun run = folder_.run(words, {.emulated = settings});
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    return run;
  };
  const auto begin = [&](const Words& more) {
    Words words{"train", model_.model(), "--data", model_.data(), "--device", "cuda", "--steps", "2", "--out", half};
    for (const Words& options : {recipe_of(model_).train_options, more}) words.insert(words.end(), options.begin(), options.end());
    const CudaRun run = folder_.run(words, {.emulated = with_times("20,10")});
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    forget_timings();
  };
  begin({"--tune"});
  const CudaRun same = go_on({"--tune"}, with_times("10,20"));
  EXPECT_TRUE(contents(rest) == whole);
  EXPECT_EQ(same.result.errors.find("timed choices"), std::string::npos) << same.result.errors;

  const CudaRun untuned = go_on({}, with_times("10,20"));
  EXPECT_NE(untuned.result.errors.find(concat("half.gcx': ", kNotTaken, "they were made on Emulated GPU")), std::string::npos)
      << untuned.result.errors;
  EXPECT_NE(untuned.result.errors.find("and nothing is timed here; bits may differ"), std::string::npos);
  EXPECT_FALSE(contents(rest) == whole);

  begin({});
  EXPECT_EQ(go_on({"--tune"}, with_times("10,20")).result.errors.find("timed choices"), std::string::npos)
      << "an artifact of a training that timed nothing holds none";
}

/// What no timing decided is kept too: with more memory it would be timed.
TEST_F(CudaTunedRuns, AFavouriteForWantOfMemoryStays) {
  Settings little = with_times("20,10"), roomy = little;
  little["MEMORY"] = "3MiB";
  const std::int64_t untimed = products(train("untuned", 4, {}, roomy));
  const std::string favourites = trained();
  train("parts", 2, {"--tune"}, little);
  json manifest = json::parse(contents(newest("parts") / "manifest.json"));
  std::string choices = manifest.at("timed_choices");
  const std::size_t memory = choices.find("3.0 MiB");  // as of a GPU of the same kind, whose memory another process holds
  ASSERT_NE(memory, choices.npos) << choices;
  manifest["timed_choices"] = choices.replace(memory, 7, "8.0 GiB");
  put_manifest(newest("parts"), manifest);
  EXPECT_EQ(products(train("parts", 4, {"--resume"}, roomy)), untimed);
  EXPECT_TRUE(trained() == favourites);
}

TEST_F(CudaTunedRuns, ChoicesOfAnotherGpuOrLibraryAreRefused) {
  const auto goes_on = [&](const std::string& run, const char* setting, const char* value) {
    train(run, 2, {"--tune"}, with_times("20,10"));
    Settings other = with_times("20,10");
    other[setting] = value;
    return train(run, 3, {"--resume"}, other);
  };
  const std::int64_t untimed = products(train("untuned", 3, {}, with_times("20,10")));
  const std::string of =
      concat(kNotTaken, "they were made on Emulated GPU, sm_90, 8.0 GiB, driver of CUDA 13.0, cuBLASLt 13.0.0, and this is ");
  struct Other {
    const char *setting, *value, *is;
  };
  for (const Other& other :
       {Other{"GPU_NAME", "Another GPU", "Another GPU, sm_90, 8.0 GiB, driver of CUDA 13.0, cuBLASLt 13.0.0; bits may differ"},
        Other{"CUBLASLT", "13.1", "Emulated GPU, sm_90, 8.0 GiB, driver of CUDA 13.0, cuBLASLt 13.1.0; bits may differ"},
        Other{"DRIVER", "13.1", "Emulated GPU, sm_90, 8.0 GiB, driver of CUDA 13.1, cuBLASLt 13.0.0; bits may differ"}}) {
    const CudaRun run = goes_on(other.setting, other.setting, other.value);
    EXPECT_NE(run.result.errors.find(of + other.is), std::string::npos) << run.result.errors;
    EXPECT_GT(products(run), untimed) << "nothing was timed";
    EXPECT_NE(contents(newest(other.setting) / "manifest.json").find(other.value), std::string::npos)
        << "the new ones are not kept";
  }
}

/// The library is of the same version, but does not offer what was chosen.
TEST_F(CudaTunedRuns, AnAlgorithmThatIsNotOfferedIsTimedAgain) {
  train("run", 2, {"--tune"}, with_times("20,10"));
  json manifest = json::parse(contents(newest("run") / "manifest.json"));
  std::string choices = manifest.at("timed_choices");
  choices[choices.size() - 2] = choices[choices.size() - 2] == 'f' ? 'e' : 'f';  // a digit of the last one
  manifest["timed_choices"] = choices;
  put_manifest(newest("run"), manifest);
  const CudaRun run = train("run", 3, {"--resume"}, with_times("20,10"));
  EXPECT_NE(run.result.errors.find(concat(kNotTaken, "1 of ")), std::string::npos) << run.result.errors;
}

TEST_F(CudaTunedRuns, ARunKeepsToTheTuningThatItBeganWith) {
  const auto refused = [&](const std::string& run, const Words& more) {
    Words words{"--run-dir", folder_ / run, "--checkpoint-every", "1", "--resume"};
    words.insert(words.end(), more.begin(), more.end());
    const CudaRun done = folder_.train(model_, 3, {.emulated = with_times("20,10")}, words);
    EXPECT_EQ(done.result.exit_code, 2) << done.result.errors;
    return done.result.errors;
  };
  train("tuned", 2, {"--tune"}, with_times("20,10"));
  train("untuned", 2, {}, with_times("20,10"));
  EXPECT_NE(refused("tuned", {"--tune=off"}).find("'tune' was true and is false"), std::string::npos);
  EXPECT_NE(refused("tuned", {"--tune=full"}).find("'tune' was true and is \"full\""), std::string::npos);
  EXPECT_NE(refused("untuned", {"--tune"}).find("'tune' was false and is true"), std::string::npos);
  train("full", 2, {"--tune=full"}, with_times("20,10,5"));
  const json before = json::parse(contents(newest("full") / "manifest.json")).at("timed_choices");
  train("full", 3, {"--resume"}, with_times("20,10,5"));
  const json after = json::parse(contents(newest("full") / "manifest.json"));
  EXPECT_EQ(after.at("timed_choices"), before);
  EXPECT_EQ(after.at("config").at("tune"), json("full"));
}

/// Cuts a step in eight, as ranks do.
TEST_F(CudaTunedRuns, RanksComputeAsTheFirstOfThem) {
  try {
    runtime::comm::find_mpi();
  } catch (const Error& error) { GTEST_SKIP() << error.what(); }
  if (runtime::cpu::find_program("mpirun").empty()) GTEST_SKIP() << "there is no mpirun";
  Settings settings = with_times("20,10");
  settings["GPUS"] = "2";
  const Words eight{"--micro-batches", "8", "--eval-data", model_.data(), "--no-cache"};
  const auto run = [&](Words more, std::int64_t steps = 2) {
    more.insert(more.end(), eight.begin(), eight.end());
    const CudaRun done = folder_.train(model_, steps, {.emulated = settings}, more);
    EXPECT_EQ(done.result.exit_code, 0) << done.result.errors;
  };
  run({"--tune"});
  const std::string one = trained(), evaluation = contents(folder_ / "m.jsonl");
  run({"--ranks", "2", "--tune"});
  EXPECT_TRUE(trained() == one);
  EXPECT_TRUE(contents(folder_ / "m.jsonl") == evaluation);
  EXPECT_GT(folder_.reports_of_rank(0).count("memsets beyond the cache"), 0) << "the first rank timed nothing";
  EXPECT_EQ(folder_.reports_of_rank(1).count("memsets beyond the cache"), 0) << "the second rank timed for itself";
  run({"--ranks", "2", "--tune", "--run-dir", folder_ / "run", "--checkpoint-every", "1"}, 1);
  settings["CUBLASLT_TIMES"] = "10,20";
  run({"--ranks", "2", "--run-dir", folder_ / "run", "--checkpoint-every", "1", "--resume"});
  EXPECT_TRUE(trained() == one) << "the ranks do not go on with the choices of the run";
  run({"--ranks", "2"});
  EXPECT_FALSE(trained() == one) << "the algorithms have the same digits";
}

}  // namespace
}  // namespace gcomp::test
