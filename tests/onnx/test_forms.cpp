// BatchNormalization and Dropout in training form: what import makes of them, and how they are written.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ir/interpret.h"
#include "tests/onnx/model_builder.h"

namespace gcomp::tests {
namespace {

/// y = Dropout(BatchNormalization(x)) in training form; the updated mean is an output too.
ModelBuilder network_in_training_form(std::int64_t opset) {
  ModelBuilder m(opset);
  m.input("x", {"4", "1"})
      .floats("bn.weight", {1}, {2})
      .floats("bn.bias", {1}, {1})
      .floats("bn.running_mean", {1}, {0.5})
      .floats("bn.running_var", {1}, {4})
      .floats("ratio", {}, {0.5});
  m.initializer("live", {}, ::onnx::TensorProto::BOOL)->add_int32_data(1);
  std::vector<OnnxAttribute> attributes{{"epsilon", 0.0f}};
  if (opset >= 14) attributes.emplace_back("training_mode", 1);
  std::vector<std::string> outputs{"h", "mean", "variance"};
  if (opset < 14) outputs.insert(outputs.end(), {"saved_mean", "saved_variance"});
  m.node("BatchNormalization", {"x", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}, outputs, attributes);
  m.node("Dropout", {"h", "ratio", "live"}, {"y"});
  return m.output("y").output("mean");
}

std::vector<std::vector<double>> outputs_of(const frontend::ImportedModel& model) {
  std::map<std::string, Tensor> values = model.weights.all();
  values["x"] = Tensor::of(DType::f32, {4, 1}, {0.5, 2.5, 4.5, -1.5});
  std::vector<std::vector<double>> outputs;
  for (const Tensor& output : ir::interpret(model.graph, values).outputs) outputs.push_back(output.to_doubles());
  return outputs;
}

double variance_after_a_step(const frontend::OnnxFile& file) {
  const frontend::ImportedModel model = frontend::import_onnx(file, {.training = true, .float_type = DType::f64});
  std::map<std::string, Tensor> values = model.weights.all();
  values["x"] = Tensor::of(DType::f64, {4, 1}, {0, 1, 2, 3});
  return ir::interpret(model.graph, values).states.at("bn.running_var").at(0);
}

TEST(Forms, ImportIsInInferenceFormAndCountsWhatTheFileHas) {
  for (const std::int64_t opset : {13, 17}) {
    const frontend::ImportedModel model = network_in_training_form(opset).import();
    EXPECT_EQ(outputs_of(model), (std::vector<std::vector<double>>{{1, 3, 5, -1}, {0.5}})) << "opset " << opset;
    EXPECT_EQ(model.forms.training.batch_norms, 1);
    EXPECT_EQ(model.forms.training.dropouts, 1);
    EXPECT_EQ(model.forms.inference.batch_norms + model.forms.inference.dropouts, 0);
  }
}

TEST(Forms, TrainingFormWithoutTrainingNormalisesByTheBatchAndDrops) {
  const std::vector<double> y = outputs_of(network_in_training_form(17).import({.training_form = true, .seed = 3}))[0];
  const double r = 4 / std::sqrt(5.0);  // the batch 0.5, 2.5, 4.5, -1.5: mean 1.5, variance 5; what is kept is doubled
  const std::vector<double> whole{2 - r, 2 + r, 2 + 3 * r, 2 - 3 * r};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_TRUE(y[i] == 0 || std::abs(y[i] - whole[i]) < 1e-5) << i << ": " << y[i];
}

TEST(Forms, AreWrittenInInferenceForm) {
  for (const std::int64_t opset : {13, 17}) {
    ::onnx::ModelProto written;
    ASSERT_TRUE(written.ParseFromString(frontend::export_onnx_bytes(network_in_training_form(opset).import(), {})));
    const auto& nodes = written.graph().node();
    ASSERT_EQ(nodes.size(), 3);
    EXPECT_EQ(nodes[0].output_size(), 1);
    EXPECT_EQ(nodes[0].attribute_size(), 1) << "training_mode is gone";
    EXPECT_EQ(nodes[1].op_type(), "Identity") << "the mean, which is an output, is the one that the node is given";
    EXPECT_EQ(nodes[1].input(0), "bn.running_mean");
    EXPECT_EQ(nodes[1].output(0), "mean");
    EXPECT_EQ(nodes[2].input_size(), 2) << "the ratio stays, training_mode goes";
    for (const auto& initializer : written.graph().initializer()) EXPECT_NE(initializer.name(), "live");
    const frontend::OnnxFile file = frontend::open_onnx_bytes(written.SerializeAsString(), "written.onnx");
    EXPECT_EQ(outputs_of(frontend::import_onnx(file, {.as_written = true})),
              (std::vector<std::vector<double>>{{1, 3, 5, -1}, {0.5}}));
  }
}

TEST(Forms, KeepTheRuleOfTheRunningVariance) {
  // Batch 0, 1, 2, 3: population variance 1.25, the rule from opset 14; unbiased 5/3 before.
  for (const auto& [opset, variance] : {std::pair<std::int64_t, double>{13, 5.0 / 3}, {17, 1.25}}) {
    const ModelBuilder m = network_in_training_form(opset);
    EXPECT_NEAR(variance_after_a_step(m.open()), 0.9 * 4 + 0.1 * variance, 1e-12) << "opset " << opset;
    const frontend::OnnxFile once = frontend::open_onnx_bytes(frontend::export_onnx_bytes(m.import(), {}), "once.onnx");
    EXPECT_NEAR(variance_after_a_step(once), 0.9 * 4 + 0.1 * variance, 1e-12) << "opset " << opset;
    const std::string twice = frontend::export_onnx_bytes(frontend::import_onnx(once), {});
    EXPECT_NEAR(variance_after_a_step(frontend::open_onnx_bytes(twice, "twice.onnx")), 0.9 * 4 + 0.1 * variance, 1e-12);
  }
}

TEST(Forms, AreWrittenAsTheyCameOnRequest) {
  const ModelBuilder m = network_in_training_form(17);
  EXPECT_EQ(frontend::export_onnx_bytes(m.import(), {}, frontend::ExportForm::as_written), m.bytes());
}

TEST(Forms, ADropoutThatSaysItIsOffStaysAsItIs) {
  ModelBuilder m(17);
  m.input("x", {"4"}).floats("ratio", {}, {0.5});
  m.initializer("live", {}, ::onnx::TensorProto::BOOL)->add_int32_data(0);
  m.node("Dropout", {"x", "ratio", "live"}, {"y"}).output("y");
  EXPECT_EQ(frontend::export_onnx_bytes(m.import(), {}), m.bytes());
}

}  // namespace
}  // namespace gcomp::tests
