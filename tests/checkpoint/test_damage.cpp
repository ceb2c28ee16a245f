// Checkpoints that are damaged, of another model or of another format: what is said, and what is taken instead.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gcomp/driver/fit/run_settings.h"
#include "runtime/files/safetensors.h"
#include "runtime/files/sha256.h"
#include "tests/checkpoint/training_course.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using runtime::test::user_error;

class Damaged : public testing::Test {
 protected:
  Damaged() {
    write_course_model(options_.model);
    Course course(options_);
    driver::CheckpointWriter writer({.folder = checkpoints_, .keep = 0});
    for (int i = 0; i < 3; ++i) {
      course.step();
      writer.write(course.trainer(), course.state());
    }
    writer.finish();
  }

  json manifest() const { return json::parse(contents(newest_ / "manifest.json")); }
  /// With a digest that fits, as somebody who edits it would.
  void put_manifest(const json& changed) const {
    const std::string text = changed.dump();
    put(newest_ / "manifest.json", text);
    put(newest_ / "manifest.json.sha256", runtime::sha256(text) + "  manifest.json\n");
  }
  /// Writes a file of tensors of the newest anew, and its digest into the manifest.
  void put_tensors(const std::string& file, const runtime::Safetensors& tensors) const {
    runtime::write_safetensors(newest_ / file, tensors);
    json changed = manifest();
    changed["files"][file] = {{"bytes", fs::file_size(newest_ / file)}, {"sha256", runtime::sha256_of_file(newest_ / file)}};
    put_manifest(changed);
  }
  std::string restored() const {
    Course course(options_);
    const std::vector<NamedTensor> before = states_of(course.trainer());
    const std::string error = user_error([&] { course.restore(driver::open_checkpoint(newest_)); });
    EXPECT_TRUE(states_of(course.trainer()) == before) << "a checkpoint that was refused changed the trainer";
    return error;
  }
  static void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }

  TemporaryDirectory folder_;
  const fs::path checkpoints_ = folder_ / "checkpoints", newest_ = checkpoints_ / "step-00000003";
  CourseOptions options_{.model = folder_ / "m.onnx"};
};

TEST_F(Damaged, OneBitOfAnyFileIsFoundAndTheOneBeforeIsTaken) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(newest_)) files.push_back(entry.path());
  ASSERT_EQ(files.size(), 7U);
  for (const fs::path& file : files) {
    const std::string good = contents(file);
    for (std::size_t at = 0; at < good.size(); at += 1 + good.size() / 40) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 4);
      put(file, bad);
      const auto found = driver::find_latest(checkpoints_);
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(found->path.filename(), "step-00000002") << file << " byte " << at;
      expect_parts(found->passed_over, {newest_.string()});
    }
    put(file, good);
  }
  EXPECT_EQ(driver::find_latest(checkpoints_)->path, newest_);
}

TEST_F(Damaged, TruncatedAndMissingFilesAreNamed) {
  const fs::path file = newest_ / "moments.safetensors";
  const std::string good = contents(file);
  put(file, good.substr(0, good.size() / 2));
  expect_parts(driver::find_latest(checkpoints_)->passed_over, {file.string(), "wanted " + std::to_string(good.size())});
  fs::remove(file);
  expect_parts(driver::find_latest(checkpoints_)->passed_over, {newest_.string(), "'moments.safetensors' is missing"});
  put(file, good);
  fs::remove(newest_ / "manifest.json");
  expect_parts(driver::find_latest(checkpoints_)->passed_over, {newest_.string(), "it has no manifest.json"});
}

TEST_F(Damaged, WhereAllAreThatIsAnErrorAndNoNewStart) {
  for (const auto& entry : fs::directory_iterator(checkpoints_))
    if (entry.is_directory()) put(entry.path() / "manifest.json", "{}");
  expect_parts(user_error([&] { driver::find_latest(checkpoints_); }), {"3 checkpoints, and all are damaged", newest_.string()});
}

TEST_F(Damaged, NothingThereIsANewStart) {
  EXPECT_FALSE(driver::find_latest(folder_ / "none").has_value());
  fs::create_directories(folder_ / "empty" / "other");
  EXPECT_FALSE(driver::find_latest(folder_ / "empty").has_value());
}

TEST_F(Damaged, AnotherFormatIsNoDamage) {
  json changed = manifest();
  changed["format"] = 7;
  put_manifest(changed);
  expect_parts(user_error([&] { driver::find_latest(checkpoints_); }), {newest_.string(), "format 7", "reads format 1"});
}

TEST_F(Damaged, ManifestsThatSayWhatCannotBeAreRefused) {
  const json good = manifest();
  const auto refused = [&](const std::function<void(json&)>& change) {
    json bad = good;
    change(bad);
    put_manifest(bad);
    return user_error([&] { driver::open_checkpoint(newest_); });
  };
  const auto piece = [](json& bad) -> json& { return bad["tensors"]["fc1.weight"]["pieces"][0]; };
  expect_parts(refused([&](json& bad) { piece(bad)["offset"] = 1; }), {"fc1.weight", "begins at element 1"});
  expect_parts(refused([&](json& bad) { piece(bad)["length"] = 47; }), {"fc1.weight", "end at element 47 of 48"});
  expect_parts(refused([&](json& bad) { piece(bad)["length"] = 49; }), {"fc1.weight", "more than its 48 elements"});
  expect_parts(refused([&](json& bad) { piece(bad)["file"] = "other.safetensors"; }), {"other.safetensors", "no file"});
  expect_parts(refused([&](json& bad) { bad["files"]["../x.safetensors"] = bad["files"]["counters.safetensors"]; }), {"../x"});
  expect_parts(refused([&](json& bad) { bad["tensors"]["fc1.weight"]["dtype"] = "f33"; }), {"fc1.weight", "f33"});
  expect_parts(refused([&](json& bad) { bad["config"]["steps"] = 31; }), {"config_sha256"});
  expect_parts(refused([&](json& bad) { bad["surplus"] = 1; }), {"unknown member 'surplus'"});
  expect_parts(refused([&](json& bad) { bad["timed_choices"] = 1; }), {"'timed_choices' is 1, wanted text"});
  expect_parts(refused([&](json& bad) { bad.erase("position"); }), {"'position' is missing"});
  expect_parts(refused([&](json& bad) { bad["tensors"]["fc1.weight"]["shape"] = {1ull << 62, 1ull << 62}; }), {"fc1.weight"});
}

TEST_F(Damaged, TensorsThatTheManifestDoesNotSayAreNamed) {
  runtime::Safetensors tensors = runtime::read_safetensors(newest_ / "statistics.safetensors");
  tensors.tensors.emplace("surplus", Tensor(DType::f32, {2}));
  put_tensors("statistics.safetensors", tensors);
  expect_parts(restored(), {"statistics.safetensors", "'surplus'"});
  tensors.tensors.erase("surplus");
  tensors.tensors.erase("bn.running_mean");
  put_tensors("statistics.safetensors", tensors);
  expect_parts(restored(), {"statistics.safetensors", "lacks 'bn.running_mean'"});
}

TEST_F(Damaged, AnotherModelIsNamedByItsTensor) {
  write_course_model(options_.model, 9);
  expect_parts(restored(), {"another model", "f32[8]", "wanted f32[9]", "others differ"});
}

TEST_F(Damaged, AnotherFileOfTheSameTensorsIsAnotherModel) {
  write_course_model(options_.model, 8, 2);
  expect_parts(restored(), {"another model", "its tensors fit", "SHA-256"});
}

TEST_F(Damaged, AnotherOptimizerLacksOrLeavesTensors) {
  options_.optimizer = "adamw(lr=0.01, amsgrad=true)";
  expect_parts(restored(), {"it lacks", "max_exp_avg_sq"});
  options_.optimizer = "sgd(lr=0.01)";
  expect_parts(restored(), {"it has", "exp_avg", "which the training step has not"});
}

TEST_F(Damaged, TheFieldOfTheConfigurationThatDiffersIsNamed) {
  const std::string before = R"({"lr": 0.1, "optimizer": {"name": "adam", "betas": [0.9, 0.999]}, "threads": 2, "seed": 3})";
  const std::string now = R"({"lr": 0.1, "optimizer": {"name": "adam", "betas": [0.9, 0.99]}, "threads": 4, "loss": "mse"})";
  EXPECT_EQ(
      to_string(driver::config_differences(before, now, {"threads"})),
      "'loss' was not there and is \"mse\", 'optimizer.betas' was [0.9,0.999] and is [0.9,0.99], 'seed' was 3 and is not there");
  EXPECT_TRUE(driver::config_differences(before, before).empty());
}

TEST(Settings, WhatAnEarlierVersionDidNotHaveIsAsItWas) {
  const std::string saved = R"({"data": "d.npz", "lr": 0.1, "threads": 2})";
  const auto differing = [&](std::string_view config) { return to_string(driver::setting_differences(saved, config)); };
  EXPECT_EQ(differing(R"({"data": {"value": ["d.npz"], "from": "command line"}, "lr": {"value": 0.1, "from": "file"},
                          "augment": {"value": null, "from": "default"}, "workers": {"value": 2, "from": "command line"}})"),
            "");
  EXPECT_EQ(differing(R"({"data": {"value": ["d.npz", "e.npz"], "from": "command line"}, "lr": {"value": 0.1, "from": "default"},
                          "augment": {"value": "hflip", "from": "command line"}})"),
            "'augment' was not there and is \"hflip\", 'data' was \"d.npz\" and is [\"d.npz\",\"e.npz\"]");
  EXPECT_EQ(differing(R"({"data": "d.npz"})"), "'lr' was 0.1 and is not there");
}

TEST(Settings, WhatMeansTheSameIsAsItWas) {
  const std::string saved =
      R"({"eval-every": 0, "lr": null, "metric": [], "max-nodes": 9, "on-bad-sample": "stop", "device": "auto"})";
  const auto settings = [](const std::string& lr, const char* device) {
    return concat(R"({"eval-every": {"value": null, "from": "default"}, "lr": )", lr,
                  R"(, "metric": {"value": ["accuracy"], "from": "default"}, "max-nodes": {"value": 7, "from": "file"},
                       "on-bad-sample": {"value": "skip", "from": "file"}, "device": {"value": ")",
                  device, R"(", "from": "file"}})");
  };
  const std::string spelled = settings(R"({"value": 0.001, "from": "default"})", "auto");
  EXPECT_EQ(to_string(driver::setting_differences(saved, spelled)), "");
  const std::string given = settings(R"({"value": 0.001, "from": "file"})", "auto");
  EXPECT_EQ(to_string(driver::setting_differences(saved, given)), "'lr' was null and is 0.001") << "nobody knows what it was";
  const auto device = [&](const char* before, const char* now) {
    std::vector<driver::ConfigDifference> differences =
        driver::setting_differences(saved, settings(R"({"value": 0.001, "from": "default"})", "cpu"));
    driver::take_device(differences, before, now);
    return to_string(differences);
  };
  EXPECT_EQ(device("cpu, 2 threads (cpu: no CUDA driver)", "cpu, 8 threads (asked for)"), "");
  EXPECT_EQ(device("NVIDIA H200, sm_90", "cpu, 8 threads (asked for)"), "'device' was \"auto\" and is \"cpu\"");
  EXPECT_EQ(device("", "cpu, 8 threads (asked for)"), "'device' was \"auto\" and is \"cpu\"");
}

TEST_F(Damaged, ACheckpointWhileStepsArePendingIsRefused) {
  Course course(options_);
  course.trainer().start();
  expect_parts(user_error([&] { driver::snapshot(course.trainer(), course.state()); }), {"1 steps pending"});
}

/// As several ranks would write it, whatever their number.
TEST_F(Damaged, PiecesAreAssembled) {
  const driver::FoundCheckpoint whole = driver::open_checkpoint(newest_);
  const std::map<std::string, Tensor> tensors = driver::read_tensors(whole.path, whole.manifest);
  json changed = manifest();
  changed["files"] = json::object();
  constexpr std::int64_t kRanks = 3;
  std::vector<runtime::Safetensors> ranks(kRanks);
  for (const auto& [name, tensor] : tensors) {
    json pieces = json::array();
    for (std::int64_t rank = kRanks - 1; rank >= 0; --rank) {  // in no order of their offsets
      const std::int64_t count = tensor.elements(), first = count * rank / kRanks, length = count * (rank + 1) / kRanks - first;
      if (length == 0) continue;
      const TensorType type{tensor.dtype(), length == count ? tensor.shape() : Shape{length}};
      const std::size_t size = size_of(tensor.dtype());
      ranks[static_cast<std::size_t>(rank)].tensors.emplace(
          name, Tensor::of_bytes(
                    type, tensor.bytes().subspan(static_cast<std::size_t>(first) * size, static_cast<std::size_t>(length) * size)));
      pieces.push_back({{"file", "rank-" + std::to_string(rank) + ".safetensors"}, {"offset", first}, {"length", length}});
    }
    changed["tensors"][name]["pieces"] = pieces;
  }
  put_manifest(changed);
  for (std::int64_t rank = 0; rank < kRanks; ++rank)
    put_tensors("rank-" + std::to_string(rank) + ".safetensors", ranks[static_cast<std::size_t>(rank)]);
  const driver::FoundCheckpoint found = driver::open_checkpoint(newest_);
  EXPECT_TRUE(driver::read_tensors(found.path, found.manifest) == tensors);
  Course course(options_);
  course.restore(found);
  EXPECT_TRUE(course.trainer().read("fc1.weight") == tensors.at("fc1.weight"));
}

}  // namespace
}  // namespace gcomp::test
