// What a command writes never takes the place of what it reads, of another output, or of a kind of file that gcomp does not write.
#include <filesystem>
#include <fstream>

#include "tests/errors/bad_input.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using runtime::test::contents;
using runtime::test::put;

class OutputFiles : public BadInput {
 protected:
  /// gcomp train with these outputs.
  CommandResult train_to(const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"train",   model_, "--data",  data_, "--loss", "cross_entropy",
                                       "--batch", "4",    "--steps", "1",   "--out",  out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }
};

TEST_F(OutputFiles, UnknownEndingsAreRefusedWithTheKnownOnes) {
  for (const char* name : {"o.pt", "o", "o.ONNX", ".onnx"}) {
    const std::string path = folder_ / name;
    expect_refused(train_to(path), ExitCode::usage, {"--out " + path, ".onnx or .gcx"});
    EXPECT_FALSE(fs::exists(path));
  }
  expect_refused(train_to(folder_ / "o.pt"), ExitCode::usage, {"unknown ending '.pt'"});
  const std::string array = folder_ / "y.npy";
  expect_refused(run_gcomp({"run", model_, "--inputs", data_, "--outputs", array}), ExitCode::usage,
                 {"--outputs " + array, ".npz"});
  expect_refused(run_gcomp({"grad", model_, "--inputs", data_, "--loss", "cross_entropy", "--outputs", array}), ExitCode::usage,
                 {"--outputs " + array, ".npz"});
  expect_refused(run_gcomp({"compile", model_, "--dim", "batch=4", "-o", folder_ / "o.pt"}), ExitCode::usage, {"o.pt", "NAME.gcx"});
  expect_refused(train({"--metrics", folder_ / "m.onnx"}), ExitCode::usage, {"--metrics", "m.onnx", "belongs to a model"});
}

TEST_F(OutputFiles, TheModelIsNotReplacedByWhateverPath) {
  const std::string before = contents(model_);
  fs::create_symlink(model_, folder_ / "link.onnx");
  fs::create_symlink(folder_.path(), folder_ / "elsewhere");
  fs::create_hard_link(model_, folder_ / "second.onnx");
  for (const char* name : {"model.onnx", "./model.onnx", "link.onnx", "elsewhere/model.onnx", "second.onnx"}) {
    expect_refused(train_to((folder_ / name).string()), ExitCode::usage, {"--out", name, "the model", "would replace"});
    EXPECT_EQ(contents(model_), before) << name;
  }
}

TEST_F(OutputFiles, LinksAreFollowedToFilesThatAreNotThereYet) {
  fs::create_symlink("there.onnx", folder_ / "link.onnx");
  EXPECT_EQ(train_to(folder_ / "link.onnx").exit_code, 0);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.onnx"));
  EXPECT_TRUE(fs::is_regular_file(folder_ / "there.onnx"));
  fs::create_symlink("/nowhere/m.onnx", folder_ / "lost.onnx");
  expect_refused(train_to(folder_ / "lost.onnx"), ExitCode::invalid, {"lost.onnx", "no directory '/nowhere'"});
  fs::create_symlink("b.onnx", folder_ / "a.onnx");
  fs::create_symlink("a.onnx", folder_ / "b.onnx");
  expect_refused(train_to(folder_ / "a.onnx"), ExitCode::invalid, {"a.onnx", "Too many levels of symbolic links"});
}

TEST_F(OutputFiles, CompilingReplacesNothingTrained) {
  const std::vector<std::string> compile{"compile", model_, "--train", "--loss",         "cross_entropy",
                                         "--batch", "4",    "-o",      folder_ / "m.gcx"};
  ASSERT_EQ(run_gcomp(compile).exit_code, 0);
  EXPECT_EQ(run_gcomp(compile).exit_code, 0) << "what is only compiled may be compiled again";
  fs::rename(folder_ / "m.gcx", folder_ / "start.gcx");
  ASSERT_EQ(run_gcomp({"train", folder_ / "start.gcx", "--data", data_, "--steps", "2", "--out", folder_ / "m.gcx"}).exit_code, 0);
  const std::string trained = contents(folder_ / "m.gcx");
  expect_refused(run_gcomp(compile), ExitCode::usage, {"m.gcx", "the weights of 2 trained steps", "give another name"});
  EXPECT_EQ(contents(folder_ / "m.gcx"), trained);
}

TEST_F(OutputFiles, NoInputIsReplacedByAnyOutput) {
  const std::string model = contents(model_), data = contents(data_), eval = folder_ / "eval.npz";
  fs::copy_file(data_, eval);
  fs::create_symlink(model_, folder_ / "model.jsonl");
  fs::create_symlink(data_, folder_ / "data.jsonl");
  fs::create_symlink(eval, folder_ / "eval.jsonl");
  fs::create_symlink(model_, folder_ / "model.npz");
  fs::create_symlink(model_, folder_ / "model.gcx");
  expect_refused(train({"--metrics", folder_ / "model.jsonl"}), ExitCode::usage, {"--metrics", "the model", model_});
  expect_refused(train({"--metrics", folder_ / "data.jsonl"}), ExitCode::usage, {"--metrics", "the data", data_});
  expect_refused(train({"--eval-data", eval, "--metrics", folder_ / "eval.jsonl"}), ExitCode::usage, {"the evaluation data"});
  for (const std::string& path : {data_, std::string(folder_ / "model.npz")}) {
    expect_refused(run_gcomp({"run", model_, "--inputs", data_, "--outputs", path}), ExitCode::usage, {"--outputs " + path});
    expect_refused(run_gcomp({"grad", model_, "--inputs", data_, "--loss", "cross_entropy", "--outputs", path}), ExitCode::usage,
                   {"--outputs " + path});
  }
  expect_refused(run_gcomp({"compile", model_, "--dim", "batch=4", "-o", folder_ / "model.gcx"}), ExitCode::usage, {"the model"});
  EXPECT_EQ(contents(model_), model);
  EXPECT_EQ(contents(data_), data);
}

TEST_F(OutputFiles, ExternalDataIsNotReplaced) {
  write_linear_model(model_, [&](onnx::ModelProto& model) {
    onnx::TensorProto& w = *model.mutable_graph()->mutable_initializer(0);
    put(folder_ / "w.bin", w.raw_data());
    w.clear_raw_data();
    w.set_data_location(onnx::TensorProto::EXTERNAL);
    onnx::StringStringEntryProto& location = *w.add_external_data();
    location.set_key("location");
    location.set_value("w.bin");
  });
  const std::string before = contents(folder_ / "w.bin");
  expect_refused(train({"--metrics", folder_ / "w.bin"}), ExitCode::usage, {"--metrics", "w.bin", "external data"});
  EXPECT_EQ(contents(folder_ / "w.bin"), before);
  EXPECT_EQ(train().exit_code, 0);
}

TEST_F(OutputFiles, TwoOutputsAreTwoFiles) {
  fs::create_symlink(out_, folder_ / "m.jsonl");
  expect_refused(train({"--metrics", folder_ / "m.jsonl"}), ExitCode::usage, {"--out", "--metrics", "the same file"});
  EXPECT_EQ(train({"--metrics", "/dev/null"}).exit_code, 0);
}

/// --overwrite removes a run, and --resume replaces its weights: neither may take what the new run reads.
TEST_F(OutputFiles, ARunRemovesNothingThatItReads) {
  const std::string run = folder_ / "run";
  const auto train_in_run = [&](const std::string& model, const std::string& data, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train",   model, "--data",  data, "--loss",    "cross_entropy",
                                       "--batch", "4",   "--steps", "1",  "--run-dir", run};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  };
  ASSERT_EQ(train_in_run(model_, data_, {"--checkpoint-every", "1"}).exit_code, 0);
  const std::string last = run + "/last.onnx", config = run + "/config.json", before = contents(last);
  fs::create_directory_symlink(run, folder_ / "link");
  const std::string linked = folder_ / "link" / "last.onnx";
  for (const char* how : {"--overwrite", "--resume"}) {
    expect_refused(train_in_run(last, data_, {how}), ExitCode::usage, {"--run-dir", "the model '" + last, "which this run reads"});
    expect_refused(train_in_run(linked, data_, {how}), ExitCode::usage, {"the model '" + linked});
    for (const std::string& init : {run, last, run + "/checkpoints", run + "/checkpoints/step-00000001"})
      expect_refused(train_in_run(model_, data_, {how, "--init", init}), ExitCode::usage, {"file of initial weights '" + init});
    expect_refused(train_in_run(model_, run + "/metrics.csv", {how}), ExitCode::usage, {"the data '"});
    expect_refused(train_in_run(model_, data_, {how, "--eval-data", run + "/metrics.csv"}), ExitCode::usage, {"evaluation data"});
  }
  expect_refused(train_in_run(model_, data_, {"--overwrite", "--config", config}), ExitCode::usage, {"the configuration"});
  EXPECT_EQ(contents(last), before);
  EXPECT_TRUE(fs::exists(run + "/checkpoints/step-00000001"));
  EXPECT_EQ(train_in_run(model_, data_, {"--resume", "--config", config}).exit_code, 0);
  EXPECT_EQ(train_in_run(model_, data_, {"--overwrite"}).exit_code, 0);
}

TEST_F(OutputFiles, NoOutputIsOneOfTheRunsOwnFiles) {
  const std::string run = folder_ / "run";
  for (const char* name : {"config.json", "metrics.jsonl", "log.txt"})
    expect_refused(train({"--run-dir", run, "--metrics", run + "/./" + name}), ExitCode::usage,
                   {"--metrics", std::string("and '") + name + "' of --run-dir"});
  expect_refused(train({"--run-dir", run, "--ema", "0.9", "--out-ema", run + "/best.onnx"}), ExitCode::usage,
                 {"--out-ema", "'best.onnx' of --run-dir"});
  EXPECT_FALSE(fs::exists(run));
}

TEST_F(OutputFiles, EmittedFilesReplaceNoModel) {
  fs::copy_file(model_, folder_ / "forward.gir");
  const std::string before = contents(folder_ / "forward.gir");
  expect_refused(run_gcomp({"compile", folder_ / "forward.gir", "--dim", "batch=4", "--emit", "ir", "-o", folder_.path()}),
                 ExitCode::usage, {"-o", "forward.gir", "the model"});
  EXPECT_EQ(contents(folder_ / "forward.gir"), before);
}

}  // namespace
}  // namespace gcomp::test
