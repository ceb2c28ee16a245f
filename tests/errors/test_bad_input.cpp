// Whatever is wrong with model or options (data: test_bad_data.cpp) ends in one message that says what and where, the right exit
// code, and an untouched output file. An internal error fails every test here.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "ir/base/error.h"
#include "runtime/files/npz.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/errors/bad_files.h"
#include "tests/errors/bad_input.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using runtime::test::contents;
using runtime::test::put;

TEST_F(BadInput, TheUnspoiltModelTrains) {
  const CommandResult result = train();
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(contents(out_), "old contents");
}

TEST_F(BadInput, Precision) {
  expect_refused(train({"--precision", "b16"}), ExitCode::usage, {"--precision b16", "did you mean 'bf16'?"});
  expect_refused(train({"--loss-scale", "128"}), ExitCode::usage, {"--loss-scale", "--precision f16"});
  expect_refused(train({"--precision", "f16", "--loss-scale", "dynamik"}), ExitCode::usage, {"did you mean 'dynamic'?"});
  for (const char* scale : {"0", "1e-46", "1e39"})
    expect_refused(train({"--precision", "f16", "--loss-scale", scale}), ExitCode::usage,
                   {concat("--loss-scale ", scale), "above 0"});
}

// ---- the model file ----

TEST_F(BadInput, MissingModel) {
  std::filesystem::remove(model_);
  expect_refused(train(), ExitCode::invalid, {"model.onnx", "no such file"});
}

/// Opening one waits for a writer, who may never come.
TEST_F(BadInput, PipesAreRefusedAndNotWaitedFor) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_refused(train({"--eval-data", pipe}), ExitCode::invalid, {"pipe", "regular file"});
  std::filesystem::rename(pipe, data_);
  expect_refused(train(), ExitCode::invalid, {"data.npz", "regular file"});
  std::filesystem::rename(data_, model_);
  expect_refused(train(), ExitCode::invalid, {"model.onnx", "regular file"});
}

TEST_F(BadInput, ArchiveWhereAnOnnxFileBelongs) {
  expect_refused(run_gcomp({"train", data_, "--data", data_, "--loss", "mse", "--batch", "4", "--steps", "1", "--out", out_}),
                 ExitCode::invalid, {"data.npz", "zip archive", "ONNX"});
}

TEST_F(BadInput, AModelAtFaultIsNamedAndNotItsData) {
  write_linear_model(model_, [](onnx::ModelProto& model) { model.mutable_graph()->mutable_initializer(1)->set_raw_data("abc"); });
  const CommandResult result = run_gcomp({"run", model_, "--inputs", data_, "--outputs", folder_ / "y.npz"});
  expect_refused(result, ExitCode::invalid, {"model.onnx: tensor 'b': found 3 bytes", "wants 8"});
  EXPECT_EQ(result.errors.find("data.npz"), std::string::npos) << result.errors;
}

TEST_F(BadInput, InitializerOfAnUnsupportedDtype) {
  write_linear_model(model_, [](onnx::ModelProto& model) {
    model.mutable_graph()->mutable_initializer(1)->set_data_type(onnx::TensorProto::COMPLEX128);
  });
  expect_refused(train(), ExitCode::unsupported, {"model.onnx", "Gemm 'fc'", "'b'", "COMPLEX128"});
}

TEST_F(BadInput, TruncatedModel) {
  const std::string whole = contents(model_);
  put(model_, whole.substr(0, whole.size() / 2));
  expect_refused(train(), ExitCode::invalid, {"model.onnx"});
}

TEST_F(BadInput, NotOnnx) {
  put(model_, "this is a text file, no model at all");
  expect_refused(train(), ExitCode::invalid, {"model.onnx"});
}

TEST_F(BadInput, EmptyModel) {
  put(model_, "");
  expect_refused(train(), ExitCode::invalid, {"model.onnx"});
}

TEST_F(BadInput, UnknownOperator) {
  write_linear_model(model_, [](onnx::ModelProto& model) { append_node(model, "Frobnicate"); });
  expect_refused(train(), ExitCode::unsupported, {"Frobnicate", "'last'"});
}

TEST_F(BadInput, OperatorOfAnUnknownDomain) {
  write_linear_model(model_, [](onnx::ModelProto& model) {
    append_node(model, "FusedThing", "com.example");
    auto& opset = *model.add_opset_import();
    opset.set_domain("com.example");
    opset.set_version(1);
  });
  expect_refused(train(), ExitCode::unsupported, {"FusedThing", "com.example"});
}

TEST_F(BadInput, UnsupportedDtype) {
  write_linear_model(model_, [](onnx::ModelProto& model) {
    model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::COMPLEX64);
  });
  expect_refused(train(), ExitCode::unsupported, {"'x'", "COMPLEX64"});
}

TEST_F(BadInput, AllNodesThatCannotBeTrainedThroughStandInOneReport) {
  const std::string model = trap("not_differentiable.onnx");
  ASSERT_FALSE(model.empty());
  const CommandResult result = run_gcomp(
      {"compile", model, "--train", "--loss", "mse", "--optimizer", "sgd", "--dim", "batch=4", "-o", folder_ / "model.gcx"});
  expect_refused(result, ExitCode::unsupported, {"NonZero", "Unique", "Greater", "Round", "Floor", "ArgMax"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "model.gcx"));
}

// ---- shapes ----

TEST_F(BadInput, UnboundDimensionNamesTheFlag) {
  expect_refused(run_gcomp({"compile", model_, "--train", "--loss", "mse", "-o", folder_ / "model.gcx"}), ExitCode::invalid,
                 {"input x", "--dim batch=N", "--shapes x:Nx3"});
}

TEST_F(BadInput, UnknownDimension) {
  expect_refused(run_gcomp({"compile", model_, "--dim", "bathc=4", "-o", folder_ / "model.gcx"}), ExitCode::usage,
                 {"bathc", "did you mean 'batch'?"});
}

TEST_F(BadInput, UnknownInputInShapes) {
  expect_refused(run_gcomp({"compile", model_, "--shapes", "xx:4x3", "-o", folder_ / "model.gcx"}), ExitCode::usage,
                 {"'x'", "did you mean 'x'?"});
}

TEST_F(BadInput, ShapeThatTheFileRefuses) {
  expect_refused(run_gcomp({"compile", model_, "--shapes", "x:4x5", "-o", folder_ / "model.gcx"}), ExitCode::invalid,
                 {"dimension 1 at 3", "--shapes x gives 5"});
}

TEST_F(BadInput, ProgramsForAnotherDeviceThanTheirTarget) {
  expect_refused(run_gcomp({"compile", model_, "--dim", "batch=4", "--device", "cuda", "-o", folder_ / "model.gcx"}),
                 ExitCode::usage, {"--device cuda: '", "model.gcx' is compiled for cpu"});
  expect_refused(
      run_gcomp({"compile", model_, "--dim", "batch=4", "--device", "cpu", "--target", "cuda:sm_90", "-o", folder_ / "model.gcx"}),
      ExitCode::usage, {"--device cpu: '", "model.gcx' is compiled for cuda"});
}

TEST_F(BadInput, SizesBeyondSixtyFourBits) {
  expect_refused(run_gcomp({"compile", model_, "--dim", "batch=1152921504606846976", "-o", folder_ / "model.gcx"}),
                 ExitCode::invalid, {"1152921504606846976", "input 'x' is too large"});
}

/// Neither is an error, but both would be silent guesses.
TEST_F(BadInput, WhatTheLossTakesAndHowRowsAreSplitIsSaid) {
  write_linear_model(model_, [](onnx::ModelProto& model) {
    append_node(model, "Relu");
    *model.mutable_graph()->add_output() = model.graph().output(0);
    model.mutable_graph()->mutable_output(1)->set_name("y");
  });
  const CommandResult trained = train();
  EXPECT_EQ(trained.exit_code, 0) << trained.errors;
  EXPECT_NE(trained.errors.find("cross_entropy of 'z', the first of 2 outputs: 'z' f32[4,2], 'y' f32[4,2] (--output NAME"),
            std::string::npos)
      << trained.errors;
  const CommandResult predicted = run_gcomp({"run", model_, "--inputs", data_, "--outputs", folder_ / "y.npz", "--batch", "3"});
  EXPECT_EQ(predicted.exit_code, 0) << predicted.errors;
  EXPECT_NE(predicted.errors.find("8 rows, which run in batches of 3"), std::string::npos) << predicted.errors;
}

/// A scalar per row first, then what the labels are of.
void add_narrow_output(onnx::ModelProto& model) {
  onnx::GraphProto& graph = *model.mutable_graph();
  onnx::NodeProto& mean = *graph.add_node();
  mean.set_op_type("ReduceMean");
  mean.add_input(graph.output(0).name());
  mean.add_output("mean");
  onnx::AttributeProto& axes = *mean.add_attribute();
  axes.set_name("axes");
  axes.set_type(onnx::AttributeProto::INTS);
  axes.add_ints(1);
  *graph.add_output() = graph.output(0);
  graph.mutable_output(0)->set_name("mean");
  graph.mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
}

TEST_F(BadInput, LabelsThatFitAnotherOutputNameIt) {
  write_linear_model(model_, add_narrow_output);
  expect_refused(train(), ExitCode::invalid, {"label 1, wanted 0 to 0", "the labels fit output 'y', f32[4,2]: --output y"});
  expect_refused(run_gcomp({"grad", model_, "--inputs", data_, "--loss", "cross_entropy", "--outputs", folder_ / "g.npz"}),
                 ExitCode::invalid, {"label 1, wanted 0 to 0", "the labels fit output 'y', f32[8,2]: --output y"});
  write_data({{"x", Tensor(DType::f32, {8, 3})}, {"label", Tensor(DType::f32, {8, 2})}});
  expect_refused(train({"--loss", "mse"}), ExitCode::invalid,
                 {"output 'mean': mse: label is f32[4,2]", "the labels fit output 'y', f32[4,2]: --output y"});
}

TEST_F(BadInput, OutputPicksWhatLossAndAccuracyLookAt) {
  const std::vector<std::string> evaluated{"--eval-data", data_, "--loss", "cross_entropy"};
  const CommandResult plain = train(evaluated);
  write_linear_model(model_, add_narrow_output);
  std::vector<std::string> picked = evaluated;
  picked.insert(picked.end(), {"--output", "y"});
  const CommandResult trained = train(picked);
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  EXPECT_NE(trained.errors.find("cross_entropy of 'y' of 2 outputs: 'mean' f32[4,1], 'y' f32[4,2]"), std::string::npos)
      << trained.errors;
  const auto measured = [](const CommandResult& result) { return result.output.substr(result.output.find("last loss")); };
  EXPECT_EQ(measured(trained), measured(plain)) << "the same loss, weights and accuracy as with that output alone";
  const CommandResult compiled = run_gcomp(
      {"compile", model_, "--train", "--loss", "cross_entropy", "--output", "y", "--batch", "4", "-o", folder_ / "m.gcx"});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.errors;
  const CommandResult resumed =
      run_gcomp({"train", folder_ / "m.gcx", "--data", data_, "--eval-data", data_, "--steps", "2", "--out", folder_ / "t.gcx"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  const auto accuracy = [](const CommandResult& result) { return result.output.substr(result.output.find("test accuracy")); };
  EXPECT_EQ(accuracy(resumed), accuracy(plain)) << "a .gcx remembers the output";
}

TEST_F(BadInput, FixedBatchNamesItself) {
  write_linear_model(model_, [](onnx::ModelProto& model) {
    for (auto* value : {model.mutable_graph()->mutable_input(0), model.mutable_graph()->mutable_output(0)})
      value->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(2);
  });
  expect_refused(train(), ExitCode::invalid, {"fixes dimension 0 at 2", "give --batch 2"});
}

// ---- options ----

TEST_F(BadInput, AParameterNamedAsTheLossOfItsGradients) {
  write_linear_model(model_, [](onnx::ModelProto& model) {
    model.mutable_graph()->mutable_initializer(0)->set_name("loss");
    model.mutable_graph()->mutable_node(0)->set_input(1, "loss");
  });
  const CommandResult result =
      run_gcomp({"grad", model_, "--inputs", data_, "--loss", "cross_entropy", "--outputs", folder_ / "g.npz"});
  expect_refused(result, ExitCode::invalid, {"'loss'", "freeze it"});
}

TEST_F(BadInput, RowsThatDependOnEachOtherInParts) {
  const std::string artifact = folder_ / "model.gcx", outputs = folder_ / "y.npz";
  const auto run_artifact = [&] {
    EXPECT_EQ(run_gcomp({"compile", model_, "--dim", "batch=4", "-o", artifact}).exit_code, 0);
    return run_gcomp({"run", artifact, "--inputs", data_, "--outputs", outputs});
  };
  EXPECT_EQ(run_artifact().exit_code, 0);
  write_linear_model(model_, [](onnx::ModelProto& model) {
    append_node(model, "Softmax");
    onnx::AttributeProto& axis = *model.mutable_graph()->mutable_node(1)->add_attribute();
    axis.set_name("axis");
    axis.set_type(onnx::AttributeProto::INT);
    axis.set_i(0);
  });
  expect_refused(run_artifact(), ExitCode::invalid, {"batches of 4 rows", "8", "'last'", "compile for 8 rows"});
  expect_refused(run_gcomp({"run", model_, "--inputs", data_, "--outputs", outputs, "--batch", "4"}), ExitCode::invalid,
                 {"'last'", "compile for 8 rows (gcomp run of the .onnx without --batch does)"});
  EXPECT_EQ(run_gcomp({"run", model_, "--inputs", data_, "--outputs", outputs}).exit_code, 0);
}

TEST_F(BadInput, NoDevice) {
  const CommandResult result = train({"--device", "cuda"});
  if (result.exit_code == 0) GTEST_SKIP() << "this machine has a usable CUDA device";
  expect_refused(result, ExitCode::no_device, {"cuda"});
}

TEST_F(BadInput, MissingCompiler) {
  expect_refused(train({"--compiler", "/nowhere/c++", "--no-cache"}), ExitCode::kernel_compile, {"/nowhere/c++"});
}

// ---- places that cannot be written ----

TEST_F(BadInput, MissingOutputDirectory) {
  expect_refused(run_gcomp({"train", model_, "--data", data_, "--loss", "cross_entropy", "--batch", "4", "--steps", "1", "--out",
                            folder_ / "none/trained.onnx"}),
                 ExitCode::invalid, {"none", "cannot write"});
}

TEST_F(BadInput, ReadOnlyDirectory) {
  // /proc takes no file from anybody, root included.
  expect_refused(run_gcomp({"train", model_, "--data", data_, "--loss", "cross_entropy", "--batch", "4", "--steps", "1", "--out",
                            "/proc/trained.onnx"}),
                 ExitCode::invalid, {"cannot write '/proc/trained.onnx'"});
}

TEST_F(BadInput, FullDisk) {
  // A limit on the size of files stands for a full disk: the write fails the same way.
  const RecordedModel cnn = recorded_model("mnist_cnn");
  const CommandResult result = run_gcomp({"train", cnn.model(), "--data", cnn.data(), "--loss", "cross_entropy", "--batch", "32",
                                          "--steps", "1", "--no-cache", "--out", out_},
                                         {.environment = {}, .limits = "trap '' XFSZ; ulimit -f 100"});
  if (result.exit_code == static_cast<int>(ExitCode::kernel_compile))
    GTEST_SKIP() << "the C++ compiler itself fails under this limit";
  expect_refused(result, ExitCode::invalid, {"cannot write", "trained.onnx"});
}

TEST_F(BadInput, FullStandardOutput) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const CommandResult result = run_gcomp({"inspect", model_}, {.environment = {}, .limits = "exec >/dev/full"});
  expect_refused(result, ExitCode::invalid, {"cannot write to standard output"});
}

TEST_F(BadInput, ClosedStandardOutput) {
  // Whatever is opened next would get its number.
  for (const char* json : {"--json", "--quiet"}) {
    const CommandResult result = run_gcomp({"run", model_, "--inputs", data_, "--outputs", folder_ / "y.npz", json},
                                           {.environment = {}, .limits = "exec >&-"});
    expect_refused(result, ExitCode::invalid, {"cannot write to standard output"});
  }
}

TEST_F(BadInput, AnEndlessNameIsCut) {
  write_data({{std::string(60000, 'n'), Tensor(DType::f32, {8, 3})}});
  const CommandResult result = train();
  expect_refused(result, ExitCode::invalid, {"nnn...' (60000 characters)"});
  EXPECT_LT(result.errors.size(), 2000u);
}

/// Exit 0, or the reason as a failure.
void expect_done(const CommandResult& result) { EXPECT_EQ(result.exit_code, 0) << result.errors; }

TEST_F(BadInput, ArtifactsAreSignedCheckedAndRebuilt) {
  const std::string gcx = folder_ / "m.gcx", outputs = folder_ / "y.npz";
  const auto run = [&](const std::string& model, std::vector<std::string> more) {
    more.insert(more.begin(), {"run", model, "--inputs", data_, "--outputs", outputs});
    return run_gcomp(more);
  };
  expect_done(run_gcomp({"compile", model_, "--batch", "4", "-o", gcx}));
  expect_done(run_gcomp({"sign", "--new-key", folder_ / "mine"}));
  expect_done(run_gcomp({"sign", "--new-key", folder_ / "theirs"}));
  EXPECT_EQ(std::filesystem::status(folder_ / "mine.pem").permissions(), std::filesystem::perms(0600));
  expect_refused(run_gcomp({"sign", "--new-key", folder_ / "mine"}), ExitCode::invalid, {"mine", "never replaced"});
  const std::string mine = folder_ / "mine.pub.pem", theirs = folder_ / "theirs.pub.pem";
  expect_refused(run(gcx, {"--require-signature", mine}), ExitCode::invalid, {"m.gcx", "not signed"});
  expect_done(run_gcomp({"sign", gcx, "--key", folder_ / "mine.pem"}));
  expect_done(run(gcx, {"--require-signature", mine}));
  const std::string loaded = contents(outputs);
  expect_refused(run(gcx, {"--require-signature", theirs}), ExitCode::invalid, {"m.gcx", "signed by the key"});
  expect_refused(run(gcx, {"--require-signature", folder_ / "mine.pem"}), ExitCode::invalid, {"mine.pem", "no public"});
  expect_done(run(gcx, {"--rebuild"}));
  EXPECT_EQ(contents(outputs), loaded);
  expect_refused(run(gcx, {"--rebuild", "--no-cache", "--compiler", "/bin/false"}), ExitCode::kernel_compile, {"/bin/false"});
  expect_refused(run(model_, {"--rebuild"}), ExitCode::usage, {"--rebuild", "is no .gcx"});
  expect_refused(run_gcomp({"sign", gcx}), ExitCode::usage, {"--key"});
}

TEST_F(BadInput, MetricsOfARefusedRunStay) {
  put(folder_ / "m.jsonl", "older");
  expect_refused(train({"--metrics", folder_ / "m.jsonl", "--loss", "cros_entropy"}), ExitCode::usage, {"unknown loss"});
  EXPECT_EQ(contents(folder_ / "m.jsonl"), "older");
}

TEST_F(BadInput, UnwritableCacheIsSaidAndDoesNotStop) {
  const CommandResult result = train({}, {.environment = {"XDG_CACHE_HOME=/proc"}, .limits = {}});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("not cached"), std::string::npos) << result.errors;
}

/// Compilation, the first step and the writing of the model are interrupted too, whatever the moment.
TEST_F(BadInput, InterruptAtAnyTimeLeavesNoFileBeside) {
  const RecordedModel cnn = recorded_model("mnist_cnn");
  for (const char* marker : {"compiling", "device:", "step 1/1"}) {
    const CommandResult result = interrupt_gcomp({"train", cnn.model(), "--data", cnn.data(), "--loss", "cross_entropy", "--batch",
                                                  "32", "--steps", "1", "--no-cache", "--out", out_},
                                                 marker);
    if (result.exit_code == 0) put(out_, "old contents");  // the interrupt came when all was done
    else expect_refused(result, static_cast<ExitCode>(130), {"interrupted", "trained.onnx"});
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) files.push_back(entry.path().filename());
    std::ranges::sort(files);
    EXPECT_EQ(files, (std::vector<std::string>{"data.npz", "model.onnx", "trained.onnx"})) << marker;
  }
}

}  // namespace
}  // namespace gcomp::test
