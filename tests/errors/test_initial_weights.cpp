// gcomp train --init: what does not fit is listed, and nothing is written.
#include "runtime/files/safetensors.h"
#include "tests/errors/bad_input.h"

namespace gcomp::test {
namespace {

class InitialWeights : public BadInput {
 protected:
  void write_weights(const std::map<std::string, Tensor>& tensors) { runtime::write_safetensors(weights_, {tensors, {}}); }

  const std::string weights_ = folder_ / "w.safetensors";
};

TEST_F(InitialWeights, AreListedWhereTheyDiffer) {
  write_weights({{"w", Tensor(DType::f32, {3, 5})}, {"c", Tensor(DType::f32, {5})}});
  expect_refused(train({"--init", weights_}), ExitCode::invalid,
                 {"--init", weights_, "3 weights differ", "'w' is f32[3,5] there, wanted f32[3,2]", "'b' is not there",
                  "'c' is not in the model", "--partial"});
  expect_refused(train({"--init", weights_, "--partial"}), ExitCode::invalid, {"nothing that fits"});
}

TEST_F(InitialWeights, OfWhichSomeFitAreTakenInPart) {
  write_weights({{"w", Tensor(DType::f32, {3, 5})}, {"b", Tensor::of(DType::f32, {2}, {5, -5})}});
  const CommandResult result = train({"--init", weights_, "--partial", "--lr", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("1 weight is taken, 1 differs:\n"), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("  'w' is f32[3,5] there, wanted f32[3,2]\n"), std::string::npos) << result.errors;
}

TEST_F(InitialWeights, AreWhatTrains) {
  const std::string other = folder_ / "other.onnx", wanted = folder_ / "wanted.onnx";
  write_linear_model(other, [](onnx::ModelProto& model) {
    for (onnx::TensorProto& tensor : *model.mutable_graph()->mutable_initializer())
      for (float& value : *tensor.mutable_float_data()) value += 1;
  });
  ASSERT_EQ(train({"--init", other}).exit_code, 0);
  ASSERT_EQ(run_gcomp({"train", other, "--data", data_, "--batch", "4", "--steps", "2", "--loss", "cross_entropy", "--out", wanted})
                .exit_code,
            0);
  EXPECT_EQ(runtime::test::contents(out_), runtime::test::contents(wanted));
}

TEST_F(InitialWeights, OptionsThatMeanNothingAreRefused) {
  expect_refused(train({"--partial"}), ExitCode::usage, {"--partial", "--init FILE"});
  expect_refused(train({"--init", folder_ / "none.onnx"}), ExitCode::invalid, {"none.onnx", "no such file"});
  expect_refused(train({"--init", data_}), ExitCode::usage, {data_, ".safetensors, .onnx or .gcx"});
  write_weights({{"w", Tensor(DType::f32, {3, 2})}});
  runtime::test::put(weights_, "not safetensors");
  expect_refused(train({"--init", weights_}), ExitCode::invalid, {weights_});
  expect_refused(train({"--init", out_}), ExitCode::usage, {"--out", "file of initial weights"});
}

}  // namespace
}  // namespace gcomp::test
