// A model that one file of ONNX has no room for, with a limit of 4 KiB: its weights lie beside it, where all that reads models
// finds them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "gcomp/arrays.h"
#include "gcomp/driver/onnx_output.h"
#include "gcomp/driver/training.h"
#include "gcomp/initialize.h"
#include "tests/checkpoint/training_course.h"
#include "tests/drive/command.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using runtime::test::user_error;

class WeightsBeside : public testing::Test {
 protected:
  WeightsBeside() {
    write_course_model(model_, 512);
    write_course_data(data_);
    trained_trainer(model_, 4096).save(split_);
    trained_trainer(model_).save(whole_);
  }

  static driver::TrainOptions options(std::uintmax_t largest) {
    TrainOptions options;
    options.loss = "cross_entropy";
    options.batch = 8;
    options.device = DeviceRequest::cpu;
    driver::TrainOptions all = driver::train_options(options);
    all.largest_onnx = largest;
    return all;
  }

  /// After two steps.
  Trainer trained_trainer(const fs::path& model, std::uintmax_t largest = frontend::kLargestOnnxFile) const {
    Trainer trainer = driver::make_trainer(Model::load(model.string()), options(largest));
    take_steps(trainer);
    return trainer;
  }

  void take_steps(Trainer& trainer) const {
    for (int i = 0; i < 2; ++i) {
      for (const auto& [name, tensor] : gcomp::read_npz(data_))
        std::ranges::copy_n(tensor.bytes().begin(), std::ssize(trainer.input(name)), trainer.input(name).begin());
      trainer.step();
    }
  }

  std::string done(const std::vector<std::string>& arguments) const {
    const CommandResult result = run_gcomp(arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments[0] << ": " << result.errors;
    return result.output;
  }
  void expect_refused(const std::vector<std::string>& arguments, ExitCode code, const std::vector<std::string>& parts) const {
    const CommandResult result = run_gcomp(arguments);
    EXPECT_EQ(result.exit_code, static_cast<int>(code)) << result.errors;
    for (const std::string& part : parts)
      EXPECT_NE(result.errors.find(part), std::string::npos) << "no '" << part << "' in: " << result.errors;
  }
  /// What training from `model` writes to `out`, a name in the folder.
  std::vector<std::string> training(const fs::path& model, const std::string& out) const {
    return {"train", model.string(), "--data", data_,   "--loss",     "cross_entropy", "--batch",
            "8",     "--steps",      "3",      "--out", folder_ / out};
  }

  TemporaryDirectory folder_;
  const fs::path model_ = folder_ / "m.onnx", split_ = folder_ / "t.onnx", beside_ = folder_ / "t.onnx.data",
                 whole_ = folder_ / "w.onnx";
  const std::string data_ = folder_ / "d.npz";
};

TEST_F(WeightsBeside, TheyAreNamedAfterTheModel) {
  EXPECT_TRUE(fs::exists(beside_));
  EXPECT_FALSE(fs::exists(folder_ / "w.onnx.data"));
  EXPECT_EQ(driver::data_beside("folder/a:b.onnx"), fs::path("folder/a_b.onnx.data")) << "ONNX takes no colon in a location";
  Trainer trainer = trained_trainer(model_, 4096);
  trainer.save(folder_ / "o.onnx");
  EXPECT_EQ(driver::written_beside(trainer), (folder_ / "o.onnx.data").string());
  trainer.save(folder_ / "o.gcx");
  EXPECT_EQ(driver::written_beside(trainer), "");
}

TEST_F(WeightsBeside, EveryCommandReadsThem) {
  for (const fs::path& model : {split_, whole_}) {
    const std::string name = model.stem().string();
    done({"convert", model, folder_ / (name + ".safetensors")});
    done({"run", model, "--inputs", data_, "--outputs", folder_ / (name + ".npz")});
    done(training(model, name + "2.onnx"));
  }
  EXPECT_TRUE(contents(folder_ / "t.safetensors") == contents(folder_ / "w.safetensors"));
  EXPECT_TRUE(gcomp::read_npz(folder_ / "t.npz") == gcomp::read_npz(folder_ / "w.npz"));
  EXPECT_TRUE(contents(folder_ / "t2.onnx") == contents(folder_ / "w2.onnx")) << "a small model is written in one file again";
  EXPECT_NE(done({"inspect", split_}).find("t.onnx.data"), std::string::npos);
  const auto evaluated = [&](const fs::path& model) {
    const std::string text = done({"eval", model, "--data", data_, "--loss", "cross_entropy", "--batch", "8"});
    return text.substr(text.find("loss"));
  };
  EXPECT_EQ(evaluated(split_), evaluated(whole_));
}

TEST_F(WeightsBeside, AnArtifactRefersToThem) {
  done(training(split_, "t.gcx"));
  const std::vector<std::string> on{"train", folder_ / "t.gcx", "--data", data_, "--steps", "3", "--out", folder_ / "on.onnx"};
  done(on);
  done(training(whole_, "w.gcx"));
  done({"train", folder_ / "w.gcx", "--data", data_, "--steps", "3", "--out", folder_ / "won.onnx"});
  EXPECT_TRUE(contents(folder_ / "on.onnx") == contents(folder_ / "won.onnx"));
  put(beside_, std::string(fs::file_size(beside_), '\0'));
  expect_refused(on, ExitCode::invalid, {"external data", "t.onnx.data", "SHA-256"});
}

TEST_F(WeightsBeside, EarlierFilesAreReplacedTogether) {
  const std::string before = contents(split_), data_before = contents(beside_);
  Trainer trainer = trained_trainer(model_, 4096);
  trainer.save(split_);
  EXPECT_TRUE(contents(split_) == before && contents(beside_) == data_before);
  take_steps(trainer);
  trainer.save(split_);
  EXPECT_EQ(fs::file_size(beside_), data_before.size());
  EXPECT_FALSE(contents(beside_) == data_before);
}

TEST_F(WeightsBeside, NothingIsReplacedThatIsRead) {
  const std::string before = contents(split_), data_before = contents(beside_);
  Trainer trainer = trained_trainer(split_, 4096);
  EXPECT_NE(user_error([&] { trainer.save(split_); }).find("are read from there; give another name"), std::string::npos);
  const fs::path renamed = folder_ / "renamed.onnx";
  fs::copy_file(split_, renamed);
  expect_refused(training(renamed, "t.onnx"), ExitCode::usage, {"the weights beside --out", "t.onnx.data", "would replace"});
  std::vector<std::string> arguments = training(split_, "o.onnx");
  arguments.insert(arguments.end(), {"--metrics", folder_ / "o.onnx.data"});
  expect_refused(arguments, ExitCode::usage, {"--metrics", "o.onnx.data", "the same file"});
  EXPECT_TRUE(contents(split_) == before && contents(beside_) == data_before);
  EXPECT_FALSE(fs::exists(folder_ / "o.onnx"));
}

TEST_F(WeightsBeside, ALinkIsNoPlaceForThem) {
  fs::create_symlink("elsewhere", folder_ / "l.onnx.data");
  Trainer trainer = trained_trainer(model_, 4096);
  EXPECT_NE(user_error([&] { trainer.save(folder_ / "l.onnx"); }).find("symbolic link"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "l.onnx"));
}

TEST_F(WeightsBeside, AnArtifactThatCannotKeepThemIsRefusedBeforeAnyStep) {
  driver::TrainOptions whole = options(4096);
  whole.keep_model = KeepModel::whole;
  for (const fs::path& model : {model_, split_}) {
    const std::string error = user_error([&] { driver::make_trainer(Model::load(model.string()), whole); });
    EXPECT_NE(error.find("cannot keep the model inside (--embed-model)"), std::string::npos) << error;
    EXPECT_NE(error.find("at most 4096"), std::string::npos) << error;
  }
  Trainer trainer = driver::make_trainer(Model::load(split_.string()), options(4096));
  user_error([&] { trainer.set_keep_model(KeepModel::whole); });
}

TEST_F(WeightsBeside, OfOtherWeightsThanTheFilesItIsKnownWhatNoArtifactKeeps) {
  const Model other = with_weights(Model::load(model_.string()), whole_);
  EXPECT_NE(driver::why_not_exported_later(driver::make_trainer(other, options(4096))).find("at most 4096"), std::string::npos);
  EXPECT_EQ(driver::why_not_exported_later(driver::make_trainer(other, options(frontend::kLargestOnnxFile))), "");
  EXPECT_EQ(driver::why_not_exported_later(driver::make_trainer(Model::load(model_.string()), options(4096))), "");
}

TEST_F(WeightsBeside, TheyBelongToARun) {
  std::vector<std::string> arguments = training(model_, "");
  arguments.resize(arguments.size() - 2);
  arguments.insert(arguments.end(), {"--run-dir", folder_ / "run"});
  done(arguments);
  put(folder_.path() / "run" / "last.onnx.data", "of the earlier run");
  arguments.push_back("--overwrite");
  done(arguments);
  EXPECT_FALSE(fs::exists(folder_.path() / "run" / "last.onnx.data"));
}

}  // namespace
}  // namespace gcomp::test
