// Models as classifiers of other libraries are exported: the predicted `label` beside what a loss looks at.
#include <map>

#include "tests/drive/recorded_model.h"
#include "tests/errors/bad_input.h"

namespace gcomp::test {
namespace {

using runtime::test::contents;

onnx::NodeProto& add_node(onnx::GraphProto& graph, const std::string& op, const std::vector<std::string>& inputs,
                          const std::string& output) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  node.set_name("make_" + output);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

/// Puts an output of integers in front of those that there are.
void add_first_output(onnx::GraphProto& graph, const std::string& name) {
  const onnx::ValueInfoProto last = graph.output(graph.output_size() - 1);
  *graph.add_output() = last;
  for (int i = graph.output_size() - 1; i > 0; --i) *graph.mutable_output(i) = graph.output(i - 1);
  onnx::ValueInfoProto& first = *graph.mutable_output(0);
  first.set_name(name);
  first.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT64);
  first.mutable_type()->mutable_tensor_type()->clear_shape();
}

/// Outputs `label`, the number of the largest of y, and y.
void predict_label(onnx::ModelProto& model) {
  add_node(*model.mutable_graph(), "ArgMax", {"y"}, "label");
  add_first_output(*model.mutable_graph(), "label");
}

/// The same, but `label` is looked up among the classes by an operator that gcomp lacks, as skl2onnx writes it.
void look_up_label(onnx::ModelProto& model) {
  onnx::GraphProto& graph = *model.mutable_graph();
  add_node(graph, "ArgMax", {"y"}, "position");
  add_node(graph, "ArrayFeatureExtractor", {"classes", "position"}, "label").set_domain("ai.onnx.ml");
  add_first_output(graph, "label");
  onnx::TensorProto& classes = *graph.add_initializer();
  classes.set_name("classes");
  classes.set_data_type(onnx::TensorProto::INT64);
  classes.add_dims(2);
  for (const std::int64_t number : {7, 9}) classes.add_int64_data(number);
  onnx::OperatorSetIdProto& opset = *model.add_opset_import();
  opset.set_domain("ai.onnx.ml");
  opset.set_version(1);
}

constexpr const char* kLeftOut =
    "note: output 'label' is left out of training: ai.onnx.ml::ArrayFeatureExtractor 'make_label' (opset 1): operator not "
    "supported; "
    "the exported file keeps it\n";

class ClassifierOutputs : public BadInput {
 protected:
  /// From "last loss" on: losses, weights, and accuracy where there is evaluation data.
  static std::string measured(const CommandResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    const std::size_t at = result.output.find("last loss");
    EXPECT_NE(at, std::string::npos) << result.output;
    return result.output.substr(std::min(at, result.output.size()));
  }
  CommandResult grad() {
    return run_gcomp(
        {"grad", model_, "--inputs", data_, "--loss", "cross_entropy", "--output", "y", "--outputs", folder_ / "g.npz"});
  }
  CommandResult compile() {
    return run_gcomp(
        {"compile", model_, "--train", "--loss", "cross_entropy", "--output", "y", "--batch", "4", "-o", folder_ / "m.gcx"});
  }
};

TEST_F(ClassifierOutputs, AnOutputCalledLabelIsNotTheDatasLabel) {
  const std::string plain = measured(train({"--eval-data", data_}));
  write_linear_model(model_, predict_label);
  EXPECT_EQ(measured(train({"--eval-data", data_, "--output", "y"})), plain);
  EXPECT_EQ(measured(train({"--eval-data", data_})), plain) << "the first output of floats";
  EXPECT_EQ(grad().exit_code, 0);
  EXPECT_EQ(compile().exit_code, 0);
  EXPECT_EQ(measured(run_gcomp({"train", folder_ / "m.gcx", "--data", data_, "--eval-data", data_, "--steps", "2", "--out", out_})),
            plain);
}

TEST_F(ClassifierOutputs, WhatTheLossDoesNotNeedIsLeftOutOfTraining) {
  const std::string plain = measured(train({"--eval-data", data_}));
  write_linear_model(model_, look_up_label);
  for (const std::vector<std::string>& choice : {std::vector<std::string>{}, {"--output", "y"}}) {
    std::vector<std::string> options{"--eval-data", data_};
    options.insert(options.end(), choice.begin(), choice.end());
    const CommandResult trained = train(options);
    EXPECT_EQ(measured(trained), plain);
    EXPECT_NE(trained.errors.find(kLeftOut), std::string::npos) << trained.errors;
    EXPECT_NE(trained.errors.find("cross_entropy of 'y' f32[4,2], the only output that can be computed"), std::string::npos)
        << trained.errors;
  }
  onnx::ModelProto exported;
  ASSERT_TRUE(exported.ParseFromString(contents(out_)));
  ASSERT_EQ(exported.graph().output_size(), 2);
  EXPECT_EQ(exported.graph().output(0).name(), "label");
  EXPECT_EQ(exported.graph().node(2).op_type(), "ArrayFeatureExtractor");
}

TEST_F(ClassifierOutputs, GradAndCompileLeaveThemOutToo) {
  const std::string plain = measured(train({"--eval-data", data_}));
  write_linear_model(model_, look_up_label);
  for (const CommandResult& result : {grad(), compile()}) {
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_NE(result.errors.find(kLeftOut), std::string::npos) << result.errors;
  }
  const std::string artifact = folder_ / "m.gcx";
  EXPECT_EQ(measured(run_gcomp({"train", artifact, "--data", data_, "--eval-data", data_, "--steps", "2", "--out", out_})), plain);
  const CommandResult predicted = run_gcomp({"run", artifact, "--inputs", data_, "--outputs", folder_ / "y.npz"});
  EXPECT_EQ(predicted.output.substr(0, predicted.output.find('\n')), "y: f32[8,2]") << predicted.errors;
}

TEST_F(ClassifierOutputs, WhatTheLossNeedsIsRefusedAndNamedAlone) {
  write_linear_model(model_, [](onnx::ModelProto& model) {
    look_up_label(model);
    onnx::GraphProto& graph = *model.mutable_graph();
    add_node(graph, "NoSuchOperator", {"y"}, "other");
    graph.add_output()->CopyFrom(graph.output(1));
    graph.mutable_output(2)->set_name("other");
  });
  const CommandResult refused = train({"--output", "other"});
  EXPECT_EQ(refused.exit_code, static_cast<int>(ExitCode::unsupported));
  EXPECT_NE(refused.errors.find("1 node is not supported in training:\n  NoSuchOperator 'make_other'"), std::string::npos)
      << refused.errors;
  const CommandResult trained = train({"--output", "y"});
  EXPECT_NE(trained.errors.find("outputs 'label' and 'other' are left out of training: ai.onnx.ml::ArrayFeatureExtractor "
                                "'make_label' (opset 1): operator not supported (and 1 more); the exported file keeps them"),
            std::string::npos)
      << trained.errors;
}

/// A forward pass has all outputs of the file.
TEST_F(ClassifierOutputs, InferenceNeedsThemAll) {
  write_linear_model(model_, look_up_label);
  const std::vector<std::string> reason{"1 node is not supported:", "ArrayFeatureExtractor 'make_label'"};
  expect_refused(run_gcomp({"run", model_, "--inputs", data_, "--outputs", folder_ / "y.npz"}), ExitCode::unsupported, reason);
  expect_refused(run_gcomp({"compile", model_, "--batch", "4", "-o", folder_ / "m.gcx"}), ExitCode::unsupported, reason);
}

TEST_F(ClassifierOutputs, AnInnerValueOrTheLossesOutputMayBeCalledLabel) {
  const std::string plain = measured(train());
  write_linear_model(model_, [](onnx::ModelProto& model) {
    onnx::GraphProto& graph = *model.mutable_graph();
    graph.mutable_node(0)->set_output(0, "label");
    add_node(graph, "Mul", {"label", "one"}, "y");
    onnx::TensorProto& one = *graph.add_initializer();
    one.set_name("one");
    one.set_data_type(onnx::TensorProto::FLOAT);
    one.add_float_data(1);
  });
  EXPECT_EQ(measured(train({"--freeze", "one"})), plain);
  write_linear_model(model_, [](onnx::ModelProto& model) {
    model.mutable_graph()->mutable_node(0)->set_output(0, "label");
    model.mutable_graph()->mutable_output(0)->set_name("label");
  });
  EXPECT_EQ(measured(train({"--output", "label"})), plain);
}

TEST_F(ClassifierOutputs, AnInputOrInitializerCalledLabelIsRefused) {
  write_linear_model(model_, [](onnx::ModelProto& model) {
    model.mutable_graph()->mutable_input(0)->set_name("label");
    model.mutable_graph()->mutable_node(0)->set_input(0, "label");
  });
  const std::vector<std::string> reason{"has an input named 'label', the name of the loss's own input", "output:NAME"};
  for (const CommandResult& result : {train(), grad(), compile()}) expect_refused(result, ExitCode::invalid, reason);
  write_linear_model(model_, [](onnx::ModelProto& model) {
    model.mutable_graph()->mutable_initializer(0)->set_name("label");
    model.mutable_graph()->mutable_node(0)->set_input(1, "label");
  });
  for (const CommandResult& result : {train(), grad(), compile()})
    expect_refused(result, ExitCode::invalid, {"has an initializer named 'label'", "rename it"});
}

TEST_F(ClassifierOutputs, ProbabilitiesUnderALossOfScoresAreNoted) {
  for (const auto& [op, loss] : {std::pair("Softmax", "cross_entropy"), std::pair("Sigmoid", "bce_with_logits")}) {
    write_linear_model(model_, [op = op](onnx::ModelProto& model) { append_node(model, op); });
    write_linear_data(data_);
    std::map<std::string, Tensor> arrays = load_arrays(data_);
    const bool classes = loss == std::string("cross_entropy");
    write_data({{"x", arrays.at("x")}, {"label", arrays.at(classes ? "label" : "target")}});
    const CommandResult result = train({"--loss", loss});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_NE(
        result.errors.find(std::string("note: the loss takes scores, and output 'z' is a ") + (classes ? "softmax" : "sigmoid")),
        std::string::npos)
        << result.errors;
  }
  write_linear_model(model_);
  write_linear_data(data_);
  EXPECT_EQ(train().errors.find("takes scores"), std::string::npos);
}

/// The learning rate is known by its role, whatever its name.
TEST_F(ClassifierOutputs, AnInputCalledAsTheLearningRateIsAnInput) {
  const std::string plain = measured(train());
  write_linear_model(model_, [](onnx::ModelProto& model) {
    model.mutable_graph()->mutable_input(0)->set_name("learning_rate");
    model.mutable_graph()->mutable_node(0)->set_input(0, "learning_rate");
  });
  std::map<std::string, Tensor> arrays = load_arrays(data_);
  write_data({{"learning_rate", arrays.at("x")}, {"label", arrays.at("label")}});
  EXPECT_EQ(measured(train()), plain);
}

}  // namespace
}  // namespace gcomp::test
