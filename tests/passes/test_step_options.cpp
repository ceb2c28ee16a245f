// What a step does beside loss and optimizer: what parameters are known as, and what it costs in launches.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "codegen/target.h"
#include "frontend/onnx/import.h"
#include "ir/builder.h"
#include "passes/attention/match_attention.h"
#include "passes/pipeline.h"
#include "passes/training/optimizers/parameter_kind.h"
#include "passes/training/training.h"

namespace gcomp::passes {
namespace {

frontend::ImportedModel import(const std::string& path) {
  const frontend::OnnxFile file = frontend::open_onnx(concat(GCOMP_SOURCE_DIR, "/tests/fixtures/", path));
  frontend::ImportOptions options;
  options.training = true;
  for (const auto& input : file.inputs)
    for (const auto& dimension : input.dimensions)
      if (!dimension.symbol.empty()) options.dims[dimension.symbol] = 8;
  return frontend::import_onnx(file, options);
}

std::vector<std::string> trained_of(const frontend::ImportedModel& model) {
  std::vector<std::string> names;
  for (const auto& parameter : model.parameters)
    if (parameter.trained) names.push_back(parameter.name);
  return names;
}

std::map<std::string, std::string> kinds_of(const frontend::ImportedModel& model) {
  const std::vector<ir::Value*> values = states_named(model.graph, trained_of(model));
  const std::vector<ParameterKind> kinds = parameter_kinds(model.graph, values);
  std::map<std::string, std::string> named;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto parameter = std::ranges::find(model.parameters, values[i]->name, &frontend::Parameter::name);
    named[parameter->likely_name.empty() ? parameter->name : parameter->likely_name] = name_of(kinds[i]);
  }
  return named;
}

TEST(ParameterKinds, OfATransformer) {
  EXPECT_EQ(kinds_of(import("training/transformer.onnx")), (std::map<std::string, std::string>{{"position", ""},
                                                                                               {"embedding.weight", "embedding"},
                                                                                               {"norm1.weight", "norm"},
                                                                                               {"norm1.bias", "norm"},
                                                                                               {"norm2.weight", "norm"},
                                                                                               {"norm2.bias", "norm"},
                                                                                               {"query.weight", "matrix"},
                                                                                               {"key.weight", "matrix"},
                                                                                               {"value.weight", "matrix"},
                                                                                               {"up.weight", "matrix"},
                                                                                               {"up.bias", "bias"},
                                                                                               {"down.weight", "matrix"},
                                                                                               {"down.bias", "bias"},
                                                                                               {"head.weight", "matrix"},
                                                                                               {"head.bias", "bias"}}));
}

/// The two biases of a recurrent layer are one operand there; a class token beside the tokens is no bias, whatever is added to
/// them.
TEST(ParameterKinds, OfWhatStandsSideBySide) {
  ir::Graph graph;
  ir::Builder b(graph);
  const auto parameter = [&](const char* name, Shape shape) {
    return b.wrap(graph.add_state({DType::f32, std::move(shape)}, name, ir::StateRole::parameter));
  };
  Var biases = b.concat({parameter("first", {3}), parameter("second", {3})}, 0);
  Var tokens = b.concat({parameter("token", {1, 1, 4}), b.input({DType::f32, {1, 2, 4}}, "tokens")}, 1);
  graph.outputs() = {(b.input({DType::f32, {2, 6}}, "x") + b.broadcast(biases, {2, 6}, {1})).value,
                     (tokens + b.input({DType::f32, {1, 3, 4}}, "y")).value};
  const std::vector<ir::Value*> values = states_named(graph, {"first", "second", "token"});
  EXPECT_EQ(parameter_kinds(graph, values), (std::vector{ParameterKind::bias, ParameterKind::bias, ParameterKind::other}));
}

TEST(ParameterKinds, OfConvolutionsAndBatchNorms) {
  EXPECT_EQ(kinds_of(import("training/bn.onnx")), (std::map<std::string, std::string>{{"0.weight", "matrix"},
                                                                                      {"1.weight", "norm"},
                                                                                      {"1.bias", "norm"},
                                                                                      {"3.weight", "matrix"},
                                                                                      {"3.bias", "bias"},
                                                                                      {"4.weight", "norm"},
                                                                                      {"4.bias", "norm"},
                                                                                      {"7.weight", "matrix"},
                                                                                      {"7.bias", "bias"}}));
}

/// A recurrent layer slices its matrices and adds up its biases.
TEST(ParameterKinds, OfRecordedModels) {
  std::map<std::string, int> lstm, gpt;
  for (const auto& [name, kind] : kinds_of(import("models/lstm_tiny/model.onnx"))) ++lstm[kind];
  for (const auto& [name, kind] : kinds_of(import("models/gpt_tiny/model.onnx"))) ++gpt[kind];
  EXPECT_EQ(lstm[""], 0) << "LSTM: weights are matrices, biases biases";
  EXPECT_GE(lstm["matrix"], 2);
  EXPECT_GE(lstm["bias"], 1);
  EXPECT_EQ(gpt["embedding"], 1);
  EXPECT_EQ(gpt[""], 1) << "positions: the exporter has gathered them, and they are added";
  EXPECT_GE(gpt["norm"], 2);
  EXPECT_GE(gpt["bias"], 2);
  EXPECT_GE(gpt["matrix"], 4);
}

/// As exporters without LayerNormalization write it: (x - mean) / sqrt(variance + e) * weight + bias; and a root mean square.
TEST(ParameterKinds, OfNormalisationsWrittenOut) {
  ir::Graph graph("written_out");
  ir::Builder b(graph);
  const TensorType rows{DType::f32, {4, 8}}, row{DType::f32, {8}};
  const auto parameter = [&](const TensorType& type, const std::string& name) {
    return b.wrap(graph.add_state(type, name, ir::StateRole::parameter));
  };
  ir::Var x = b.input(rows, "x");
  ir::Var scale = parameter(row, "scale"), shift = parameter(row, "shift"), root = parameter({DType::f32, {1, 8}}, "root"),
          bias = parameter(row, "bias"), matrix = parameter({DType::f32, {8, 8}}, "matrix"), position = parameter(rows, "position");
  const ir::Var centred = x - b.broadcast(b.mean(x, {1}, true), rows.shape);
  x = centred * b.broadcast(scale, rows.shape) + b.broadcast(shift, rows.shape) + position;
  x = b.matmul(x, matrix) + b.broadcast(bias, rows.shape);
  graph.add_output((x * b.broadcast(root, rows.shape)).value);
  const std::vector<ir::Value*> values{scale.value, shift.value, root.value, bias.value, matrix.value, position.value};
  using Kind = ParameterKind;
  EXPECT_EQ(parameter_kinds(graph, values),
            (std::vector{Kind::norm, Kind::norm, Kind::norm, Kind::bias, Kind::matrix, Kind::other}));
}

/// Launches of gpt_tiny's training step.
int launches_of(const runtime::Target& target, const StepOptions& step, const OptimizerSpec& optimizer) {
  frontend::ImportedModel model = import("models/gpt_tiny/model.onnx");
  PipelineOptions options;
  options.target = codegen::target_info(target);
  if (options.target.legal_composite) match_attention(model.graph, options.target.legal_composite);
  make_training_step(model.graph, parse_loss("cross_entropy"), optimizer, trained_of(model), {}, {}, step);
  lower(model.graph, options);
  return count_launches(model.graph);
}

/// Four groups that differ in rate, decay, betas and eps.
StepOptions everything(const std::string& optimizer, const std::vector<std::string>& groups) {
  StepOptions step{.clipping = {.norm = 1.0}, .average = 0.999};
  const frontend::ImportedModel model = import("models/gpt_tiny/model.onnx");
  for (const std::string& group : groups) step.groups.groups.push_back({OptimizerSpec(concat(optimizer, "(", group, ")")), 0.1});
  for (std::size_t i = 0; i < trained_of(model).size(); ++i)
    step.groups.of.push_back(static_cast<std::int64_t>(i % (groups.size() + 1)) - 1);
  return step;
}

TEST(StepOptions, AddAtMostFourLaunches) {
  for (const runtime::Target& target : {runtime::Target{runtime::TargetKind::cuda, "sm_90"}, runtime::Target{}}) {
    for (const auto& [optimizer, groups] : std::map<std::string, std::vector<std::string>>{
             {"adamw", {"weight_decay=0", "betas=[0.8, 0.95]", "eps=1e-6, weight_decay=0.1"}},
             {"adam", {"weight_decay=0.1", "betas=[0.8, 0.95]", "eps=1e-6"}},
             {"rmsprop", {"alpha=0.9", "eps=1e-6", "weight_decay=0.1"}},
             {"lion", {"weight_decay=0.1", "betas=[0.8, 0.95]", "weight_decay=0.2"}}}) {
      const OptimizerSpec base(optimizer);
      const int plain = launches_of(target, {}, base), all = launches_of(target, everything(optimizer, groups), base);
      EXPECT_LE(all, plain + 4) << optimizer << " for " << to_string(target) << ": " << plain << " launches";
      StepOptions skipping = everything(optimizer, groups);
      skipping.skip_non_finite = true;
      EXPECT_LE(launches_of(target, skipping, base), plain + 4) << optimizer << " for " << to_string(target) << ", skipping";
    }
  }
}

}  // namespace
}  // namespace gcomp::passes
