// gcomp convert: what is the same model comes out as the same file, whichever way it went.
#include <gtest/gtest.h>

#include <fstream>

#include "frontend/onnx/import.h"
#include "runtime/files/safetensors.h"
#include "tests/checkpoint/training_course.h"
#include "tests/drive/command.h"
#include "tests/onnx/model_builder.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;

class Converting : public testing::Test {
 protected:
  Converting() {
    write_course_model(options_.model);
    Course course(options_);
    course.trainer().save(step_);
    for (int i = 0; i < 5; ++i) course.step();
    course.trainer().set_data_position(course.state().position);
    course.trainer().save(trained_);
    course.trainer().save(averaged_, Weights::averaged);
    course.trainer().save(artifact_);
    fs::create_directories(folder_ / "checkpoints");
    driver::write_checkpoint(checkpoint_, driver::snapshot(course.trainer(), course.state()));
    states_ = states_of(course.trainer());
  }

  void convert(const fs::path& in, const fs::path& out, const std::vector<std::string>& more = {}) const {
    const CommandResult result = run(in, out, more);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_NE(result.output.find("wrote '" + out.string() + "'"), std::string::npos) << result.output;
  }
  CommandResult run(const fs::path& in, const fs::path& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"convert", in, out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }
  void expect_refused(const CommandResult& result, ExitCode code, const std::vector<std::string>& parts) const {
    EXPECT_EQ(result.exit_code, static_cast<int>(code)) << result.errors;
    for (const std::string& part : parts)
      EXPECT_NE(result.errors.find(part), std::string::npos) << "no '" << part << "' in: " << result.errors;
    EXPECT_EQ(result.errors.find("internal error"), std::string::npos) << result.errors;
    EXPECT_FALSE(fs::exists(folder_ / "n.onnx"));
    EXPECT_FALSE(fs::exists(folder_ / "n.gcx"));
    EXPECT_FALSE(fs::exists(folder_ / "n"));
  }

  TemporaryDirectory folder_;
  const fs::path step_ = folder_ / "step.gcx", trained_ = folder_ / "t.onnx", averaged_ = folder_ / "a.onnx",
                 artifact_ = folder_ / "t.gcx", checkpoint_ = folder_ / "checkpoints" / "step-00000005",
                 weights_ = folder_ / "w.safetensors", out_ = folder_ / "out.onnx";
  const CourseOptions options_{.model = folder_ / "m.onnx"};
  std::vector<NamedTensor> states_;
};

TEST_F(Converting, ToOnnxGivesWhatTheTrainerWrites) {
  const std::string trained = contents(trained_), averaged = contents(averaged_);
  ASSERT_NE(trained, averaged);
  for (const fs::path& in : {artifact_, checkpoint_, folder_ / "checkpoints", fs::path(folder_.path())}) {
    convert(in, out_);
    EXPECT_TRUE(contents(out_) == trained) << in;
    convert(in, out_, {"--averages"});
    EXPECT_TRUE(contents(out_) == averaged) << in;
    convert(in, weights_);
    convert(weights_, out_, {"--model", options_.model});
    EXPECT_TRUE(contents(out_) == trained) << in << " by way of safetensors";
    convert(weights_, out_, {"--model", artifact_});
    EXPECT_TRUE(contents(out_) == trained) << in << " by way of safetensors and .gcx";
  }
  convert(trained_, weights_);
  convert(weights_, out_, {"--model", options_.model});
  EXPECT_TRUE(contents(out_) == trained);
  convert(trained_, out_, {"--model", options_.model});
  EXPECT_TRUE(contents(out_) == trained);
}

TEST_F(Converting, TheModelIsFoundWhereItIsToldToBe) {
  fs::create_directories(folder_ / "elsewhere");
  fs::rename(options_.model, folder_ / "elsewhere" / "m.onnx");
  expect_refused(run(checkpoint_, folder_ / "n.onnx"), ExitCode::invalid, {options_.model.string(), "not there"});
  convert(checkpoint_, out_, {"--model", folder_ / "elsewhere" / "m.onnx"});
  EXPECT_TRUE(contents(out_) == contents(trained_));
  write_course_model(folder_ / "other.onnx", 8, 5);
  expect_refused(run(checkpoint_, folder_ / "n.onnx", {"--model", folder_ / "other.onnx"}), ExitCode::invalid,
                 {"another model", "SHA-256"});
}

TEST_F(Converting, AllStatesGoFromACheckpointToAnArtifactAndBack) {
  convert(checkpoint_, folder_ / "c.gcx", {"--model", step_});
  Trainer made = Trainer::load(folder_ / "c.gcx");
  for (const auto& [name, value] : states_) EXPECT_TRUE(made.read(name) == value) << name;
  EXPECT_EQ(made.data_position().steps, 5);
  convert(folder_ / "c.gcx", folder_ / "again");
  convert(artifact_, folder_ / "once");
  convert(checkpoint_, folder_ / "copy");
  const auto tensors_in = [](const fs::path& path) {
    const driver::FoundCheckpoint found = driver::open_checkpoint(path);
    EXPECT_EQ(found.manifest.run.step, 5);
    EXPECT_EQ(found.manifest.run.position.steps, 5);
    return driver::read_tensors(found.path, found.manifest);
  };
  const std::map<std::string, Tensor> wanted(states_.begin(), states_.end());
  for (const char* name : {"again", "once", "copy"}) EXPECT_TRUE(tensors_in(folder_ / name) == wanted) << name;
  EXPECT_TRUE(contents(folder_ / "copy" / "manifest.json") == contents(checkpoint_ / "manifest.json"));
}

TEST_F(Converting, WeightsAloneStartATrainingAnew) {
  convert(trained_, folder_ / "w.gcx", {"--model", artifact_});
  convert(trained_, folder_ / "w", {"--model", step_});
  Trainer made = Trainer::load(folder_ / "w.gcx"), step = Trainer::load(step_);
  EXPECT_EQ(made.data_position().steps, 0);
  const auto file = frontend::float_initializers(frontend::open_onnx(trained_).source);
  for (const std::string& name : made.states())
    EXPECT_TRUE(made.read(name) == (file.contains(name) ? file.at(name) : step.read(name))) << name;
  const driver::FoundCheckpoint found = driver::open_checkpoint(folder_ / "w");
  for (const auto& [name, value] : driver::read_tensors(found.path, found.manifest)) EXPECT_TRUE(value == made.read(name)) << name;
}

TEST_F(Converting, WhatIsLackingIsAskedFor) {
  convert(trained_, weights_);
  expect_refused(run(weights_, folder_ / "n.onnx"), ExitCode::usage, {"holds no graph", "--model m.onnx"});
  expect_refused(run(weights_, folder_ / "n.gcx"), ExitCode::usage, {"no compiled training step", "--model m.gcx"});
  expect_refused(run(checkpoint_, folder_ / "n.gcx"), ExitCode::usage, {"no compiled training step", "--model m.gcx"});
  expect_refused(run(weights_, folder_ / "n"), ExitCode::usage, {"no compiled training step", "--model m.gcx"});
  expect_refused(run(trained_, folder_ / "n.onnx"), ExitCode::usage, {"is an .onnx file already"});
  expect_refused(run(artifact_, folder_ / "n.gcx"), ExitCode::usage, {"is a .gcx file already"});
  expect_refused(run(weights_, folder_ / "n.safetensors"), ExitCode::usage, {".safetensors"});
  expect_refused(run(trained_, folder_ / "n.safetensor"), ExitCode::usage, {"did you mean '.safetensors'?"});
  expect_refused(run(folder_ / "none.onnx", folder_ / "n.gcx"), ExitCode::invalid, {"no such file"});
  expect_refused(run(trained_, folder_ / "n.safetensors", {"--averages"}), ExitCode::invalid, {"holds no averages"});
  expect_refused(run(artifact_, folder_ / "n", {"--averages"}), ExitCode::usage, {"a checkpoint holds both"});
}

TEST_F(Converting, WhatDoesNotFitIsNamed) {
  write_course_model(folder_ / "other.onnx", 9);
  convert(trained_, weights_);
  expect_refused(run(weights_, folder_ / "n.onnx", {"--model", folder_ / "other.onnx"}), ExitCode::invalid,
                 {"f32[8]", "wanted f32[9]", "other.onnx"});
  runtime::Safetensors tensors = runtime::read_safetensors(weights_);
  tensors.tensors.emplace("surplus", Tensor(DType::f32, {2}));
  runtime::write_safetensors(weights_, tensors);
  expect_refused(run(weights_, folder_ / "n.onnx", {"--model", options_.model}), ExitCode::invalid, {"'surplus'"});
  expect_refused(run(weights_, folder_ / "n.gcx", {"--model", step_}), ExitCode::invalid, {"'surplus'"});
  tensors.tensors.erase("surplus");
  tensors.tensors.erase("fc1.bias");
  runtime::write_safetensors(weights_, tensors);
  expect_refused(run(weights_, folder_ / "n.gcx", {"--model", step_}), ExitCode::invalid, {"lacks 'fc1.bias'"});
}

TEST_F(Converting, NothingIsWrittenOver) {
  fs::create_directories(folder_ / "taken");
  const CommandResult result = run(artifact_, folder_ / "taken");
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::invalid));
  EXPECT_NE(result.errors.find("exists, and nothing is written over"), std::string::npos) << result.errors;
  const std::string before = contents(artifact_);
  EXPECT_EQ(run(artifact_, artifact_).exit_code, static_cast<int>(ExitCode::usage));
  EXPECT_TRUE(contents(artifact_) == before);
}

/// A file of weights alone does not say what is tied: it has both.
TEST(ConvertingTies, GoByWayOfSafetensors) {
  const TemporaryDirectory folder;
  const std::string model = folder / "m.onnx", artifact = folder / "t.gcx", weights = folder / "w.safetensors",
                    out = folder / "o.onnx";
  tests::ModelBuilder m(17);
  m.input("x", {"6", "2"}).floats("a", {2, 2}, {1, 2, 3, 5}).floats("b", {2, 2}, {1, 3, 2, 5});
  m.node("MatMul", {"x", "a"}, {"h"}).node("Tanh", {"h"}, {"t"}).node("MatMul", {"t", "b"}, {"y"}).output("y");
  std::ofstream(model, std::ios::binary) << m.bytes();
  const auto convert = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "convert");
    const CommandResult result = run_gcomp(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
  };
  TrainOptions options{.loss = "mse", .learning_rate = 0.1, .batch = 6, .device = DeviceRequest::cpu};
  options.graph.tie = {"a"};
  Trainer trainer(Model::load(model), options);
  Tensor x(DType::f32, {6, 2}), target(DType::f32, {6, 2});
  for (std::int64_t i = 0; i < 12; ++i) x.set(i, 0.1 * static_cast<double>(i));
  trainer.train_step({{"x", x}, {"label", target}});
  trainer.save(artifact);
  trainer.save(folder / "t.onnx");
  convert({artifact, weights});
  runtime::Safetensors held = runtime::read_safetensors(weights);
  ASSERT_TRUE(held.tensors.contains("b"));
  EXPECT_NE(held.tensors.at("b").at(0), 1) << "it has trained";
  EXPECT_EQ(held.tensors.at("b").at(1), held.tensors.at("a").at(2)) << "transposed";
  for (const std::string& by : {model, artifact}) {
    convert({weights, out, "--model", by});
    EXPECT_TRUE(contents(out) == contents(folder / "t.onnx")) << by;
  }
  convert({weights, folder / "again.gcx", "--model", artifact});
  held.tensors.at("b").set(0, 7);
  runtime::write_safetensors(weights, held);
  for (const std::string& to : {std::string(folder / "n.onnx"), std::string(folder / "n.gcx")}) {
    const CommandResult refused = run_gcomp({"convert", weights, to, "--model", artifact});
    EXPECT_EQ(refused.exit_code, 3);
    EXPECT_NE(refused.errors.find("'b' is not what 'a' is"), std::string::npos) << refused.errors;
  }
}

}  // namespace
}  // namespace gcomp::test
