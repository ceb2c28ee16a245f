// The text of whole training steps, after every pass, reads back as the same graph; and lowering a step keeps its numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <random>

#include "frontend/onnx/import.h"
#include "ir/interpret.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "passes/pipeline.h"
#include "passes/training/training.h"

namespace gcomp::passes {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(GCOMP_SOURCE_DIR) / "tests/fixtures/models"))
    if (fs::exists(entry.path() / "recipe.json")) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Forward, loss, gradients and AdamW of a recorded model, in f64, with a batch of two.
frontend::ImportedModel training_step(const std::string& name) {
  const frontend::OnnxFile file =
      frontend::open_onnx((fs::path(GCOMP_SOURCE_DIR) / "tests/fixtures/models" / name / "model.onnx").string());
  frontend::ImportOptions options;
  options.training = true;
  options.float_type = DType::f64;
  for (const auto& input : file.inputs)
    for (const auto& dimension : input.dimensions)
      if (!dimension.symbol.empty()) options.dims[dimension.symbol] = 2;
  frontend::ImportedModel model = frontend::import_onnx(file, options);
  std::vector<std::string> trained;
  for (const auto& parameter : model.parameters)
    if (parameter.trained) trained.push_back(parameter.name);
  make_training_step(model.graph, parse_loss(name == "mlp" ? "bce" : "cross_entropy"), {}, trained);
  return model;
}

void expect_round_trip(const ir::Graph& graph, std::string_view after) {
  const std::string text = print(graph);
  const ir::Graph back = ir::parse(text);
  EXPECT_TRUE(back == graph) << "after " << after;
  EXPECT_TRUE(print(back) == text) << "after " << after;
}

class TextOfModels : public testing::TestWithParam<std::string> {};

TEST_P(TextOfModels, reads_back_after_every_pass) {
  frontend::ImportedModel model = training_step(GetParam());
  expect_round_trip(model.graph, "import");
  int passes = 0;
  PipelineOptions options;
  options.observer = [&](std::string_view pass, const ir::Graph& graph, bool, double) {
    expect_round_trip(graph, pass);
    ++passes;
  };
  const ir::MemoryPlan plan = lower(model.graph, options);
  EXPECT_GT(passes, 5);
  EXPECT_TRUE(ir::parse(print(model.graph, {.plan = &plan})) == model.graph) << "with a memory plan";
}

INSTANTIATE_TEST_SUITE_P(Fixtures, TextOfModels, testing::ValuesIn(model_names()), [](const auto& info) { return info.param; });

TEST(LoweredModel, computes_what_it_computed_before) {
  frontend::ImportedModel model = training_step("mlp");
  std::map<std::string, Tensor> values = model.weights.all();
  std::mt19937 random(1);
  for (const ir::Value* input : model.graph.inputs()) {
    Tensor tensor(input->type);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, std::uniform_real_distribution<double>(0.1, 0.9)(random));
    values.emplace(input->name, tensor);
  }
  const ir::InterpretResult before = interpret(model.graph, values);
  lower(model.graph);
  const ir::InterpretResult after = interpret(model.graph, values);
  EXPECT_NEAR(after.outputs[0].at(0), before.outputs[0].at(0), 1e-12);
  EXPECT_GT(before.states.size(), 10u);
  for (const auto& [name, tensor] : before.states)
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      ASSERT_NEAR(after.states.at(name).at(i), tensor.at(i), 1e-12 * std::max(1.0, std::abs(tensor.at(i))))
          << name << ", element " << i;
}

}  // namespace
}  // namespace gcomp::passes
