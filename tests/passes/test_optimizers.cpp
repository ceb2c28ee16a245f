// Every optimizer with its options against PyTorch and timm: the losses of 50 steps in float64, run by the interpreter, on a small
// MLP, CNN and transformer (tests/fixtures/training/record.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "frontend/onnx/import.h"
#include "ir/expand.h"
#include "ir/interpret.h"
#include "passes/training/training.h"
#include "runtime/files/npz.h"

namespace gcomp::passes {
namespace {

constexpr std::int64_t kRows = 6, kSteps = 50;
constexpr double kClose = 1e-9;

std::string fixture(const std::string& name) { return concat(GCOMP_SOURCE_DIR, "/tests/fixtures/training/", name); }

std::map<std::string, Tensor> arrays_of(const std::string& name) {
  std::map<std::string, Tensor> arrays;
  const runtime::NpzFile file(fixture(name));
  for (const std::string& array : file.names()) arrays.emplace(array, file.load(array));
  return arrays;
}

const std::map<std::string, Tensor>& record() {
  static const std::map<std::string, Tensor> kRecord = arrays_of("optimizers.npz");
  return kRecord;
}

std::vector<std::string> recorded_texts() {
  const Tensor& bytes = record().at("texts");
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()));
  std::vector<std::string> texts;
  for (std::string line; std::getline(lines, line);) texts.push_back(line);
  return texts;
}

Tensor rows_of(const Tensor& all, std::int64_t step, DType dtype) {
  TensorType type = all.type();
  type.shape[0] = kRows;
  type.dtype = dtype;
  Tensor part(type);
  for (std::int64_t i = 0; i < part.elements(); ++i) part.set(i, all.at(step * part.elements() + i));
  return part;
}

struct RecordedTraining {
  frontend::ImportedModel model;
  std::vector<std::string> trained;
};

RecordedTraining import(const std::string& name) {
  frontend::ImportOptions options;
  options.training = true;
  options.float_type = DType::f64;
  options.dims["batch"] = kRows;
  RecordedTraining made{frontend::import_onnx(frontend::open_onnx(fixture(name + ".onnx")), options), {}};
  for (const auto& parameter : made.model.parameters)
    if (parameter.trained) made.trained.push_back(parameter.name);
  return made;
}

/// The losses of the recorded steps, by the interpreter.
std::vector<double> losses_of(const std::string& name, const std::string& optimizer, const std::map<std::string, Tensor>& data) {
  RecordedTraining training = import(name);
  ir::Graph& graph = training.model.graph;
  const OptimizerSpec spec(optimizer);
  const Tensor& label = data.at("label");
  make_training_step(graph, parse_loss("cross_entropy"), spec, training.trained, rows_of(label, 0, DType::i64).type());
  std::map<std::string, Tensor> values;
  for (const ir::State& state : graph.states()) {
    const auto weight = training.model.weights.find(state.value->name);
    Tensor value = weight != training.model.weights.end() ? weight->second : Tensor(state.value->type);
    if (state.fill)
      for (std::int64_t i = 0; i < value.elements(); ++i) value.set(i, *state.fill);
    values.insert_or_assign(state.value->name, std::move(value));
  }
  Tensor rate(TensorType{DType::f64, {}});
  rate.set(0, spec.learning_rate());
  values.insert_or_assign("learning_rate", rate);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    for (ir::Value* input : graph.inputs())
      if (data.contains(input->name)) values.insert_or_assign(input->name, rows_of(data.at(input->name), step, input->type.dtype));
    ir::InterpretResult result = interpret(graph, values);
    losses.push_back(result.outputs[0].at(0));
    for (auto& [state, value] : result.states) values.insert_or_assign(state, std::move(value));
  }
  return losses;
}

class RecordedOptimizers : public testing::TestWithParam<std::tuple<const char*, const Definition*>> {};

TEST_P(RecordedOptimizers, TrainAsPyTorchDoes) {
  const std::string model = std::get<0>(GetParam());
  const std::map<std::string, Tensor> data = arrays_of(model + ".npz");
  const std::vector<std::string> texts = recorded_texts();
  const Tensor& wanted = record().at(model);
  ASSERT_EQ(wanted.shape(), (Shape{static_cast<std::int64_t>(texts.size()), kSteps}));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (&OptimizerSpec(texts[i]).definition() != std::get<1>(GetParam())) continue;
    const std::vector<double> losses = losses_of(model, texts[i], data);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      const double reference = wanted.at(static_cast<std::int64_t>(i) * kSteps + step);
      ASSERT_LE(std::abs(losses[static_cast<std::size_t>(step)] / reference - 1), kClose)
          << texts[i] << " at step " << step + 1 << ": " << losses[static_cast<std::size_t>(step)] << ", PyTorch has " << reference;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Models, RecordedOptimizers,
                         testing::Combine(testing::Values("mlp", "cnn", "transformer"),
                                          testing::ValuesIn(optimizer_definitions().begin(), optimizer_definitions().end())),
                         [](const auto& info) { return concat(std::get<0>(info.param), "_", std::get<1>(info.param)->name); });

TEST(Optimizers, EachOptionOfEachIsRecorded) {
  const std::vector<std::string> texts = recorded_texts();
  const auto is_recorded = [&](const Definition& definition, const std::string& part) {
    return std::ranges::any_of(texts, [&](const std::string& text) {
      return text.starts_with(concat(definition.name, "(")) && text.find(part) != text.npos;
    });
  };
  for (const Definition* definition : optimizer_definitions()) {
    EXPECT_EQ(std::ranges::count(texts, definition->name), 1) << definition->name << " alone";
    for (const OptionDef& option : definition->options)
      EXPECT_TRUE(is_recorded(*definition, concat(option.name, "="))) << definition->name << " " << option.name;
  }
}

TEST(Optimizers, TextsReadBackAndDefaultsFit) {
  for (const std::string& text : recorded_texts())
    EXPECT_EQ(OptimizerSpec(text).text(), OptimizerSpec(OptimizerSpec(text).text()).text());
  for (const Definition* definition : optimizer_definitions())
    for (const OptionDef& option : definition->options)
      EXPECT_NO_THROW(Options(*definition).has(option.name)) << definition->name << " " << option.name;
}

TEST(Optimizers, TheDocumentHasThemAll) {
  std::ifstream in(concat(GCOMP_SOURCE_DIR, "/docs/training.md"));
  const std::string document{std::istreambuf_iterator<char>(in), {}};
  for (const Definition* definition : optimizer_definitions())
    EXPECT_NE(document.find(describe(*definition)), std::string::npos) << "docs/training.md lacks\n" << describe(*definition);
}

/// The message of a wrong text.
std::string refusal(const std::string& text) {
  try {
    OptimizerSpec(text).check("--optimizer");
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

TEST(Optimizers, WrongTextsAreRefusedWhereTheyAreWrong) {
  EXPECT_NE(refusal("adm").find("did you mean 'adam'?"), std::string::npos) << refusal("adm");
  EXPECT_EQ(refusal("adam(betas=[0.9])"),
            "--optimizer: betas: found [0.9], wanted a list of 2 numbers of at least 0 and below 1, at column 12: "
            "adam(betas=>>>[0.9]<<<)");
  EXPECT_NE(refusal("sgd(momentun=2)").find("did you mean 'momentum'?"), std::string::npos);
  EXPECT_NE(refusal("sgd(0.9)").find("options are written NAME=VALUE"), std::string::npos);
  EXPECT_NE(refusal("sgd(lr=0.1, lr=0.2)").find("'lr' is given twice"), std::string::npos);
  EXPECT_NE(refusal("sgd(lr=0.1").find("found the end, wanted ')'"), std::string::npos) << refusal("sgd(lr=0.1");
  EXPECT_NE(refusal("sgd(lr=0.1))").find("found ')', wanted an operator or the end"), std::string::npos);
  EXPECT_NE(refusal("sgd(lr=1e)").find("no number"), std::string::npos) << refusal("sgd(lr=1e)");
  EXPECT_NE(refusal("sgd + adam").find("wanted the name of one optimizer"), std::string::npos);
  EXPECT_NE(refusal("muon(ns_steps=2.5)").find("wanted a whole number"), std::string::npos);
  EXPECT_NE(refusal("muon(adjust_lr_fn=orignal)").find("'original', 'match_rms_adamw' and 'spectral_unclamped'"),
            std::string::npos);
  EXPECT_NE(refusal("sgd(nesterov=true)").find("nesterov needs a momentum"), std::string::npos);
  EXPECT_NE(refusal("adam(eps=none)").find("wanted a number"), std::string::npos);
  EXPECT_NE(refusal(std::string(100000, '(')).find("nests deeper than"), std::string::npos);
  EXPECT_NE(refusal(std::string(100000, '-')).find("nests deeper than"), std::string::npos);
}

}  // namespace
}  // namespace gcomp::passes
