// Every loss with its options against PyTorch: the losses of 50 steps in float64, run by the interpreter, on small models of an
// MLP, a CNN and a transformer with a head for each kind of loss (tests/fixtures/training/record_losses.py); and what evaluations
// sum up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "ir/base/integers.h"
#include "ir/interpret.h"
#include "passes/pipeline.h"
#include "passes/training/metrics/metric.h"
#include "passes/training/training.h"
#include "tests/passes/recorded_models.h"

namespace gcomp::passes {
namespace {

constexpr double kCloseLoss = 1e-9;

const std::map<std::string, Tensor>& loss_record() {
  static const std::map<std::string, Tensor> kRecord = arrays_of("losses.npz");
  return kRecord;
}

std::vector<std::string> loss_texts() { return texts_of(loss_record().at("texts")); }

/// Types of the arrays but the model's input, for batches of `rows`.
std::map<std::string, TensorType> types_of_batch(const std::map<std::string, Tensor>& data, std::int64_t rows) {
  std::map<std::string, TensorType> types;
  for (const auto& [name, array] : data) {
    if (name == "x") continue;
    types.emplace(name, array.type()).first->second.shape[0] = rows;
  }
  return types;
}

std::vector<double> losses_with(const std::string& name, const std::string& loss, const std::map<std::string, Tensor>& data,
                                std::int64_t chunks = 1) {
  RecordedModel training = import_recorded("heads_" + name);
  const TrainingRequest request{.loss = parse_loss(loss),
                                .optimizer = OptimizerSpec("sgd"),
                                .trained = training.trained,
                                .arrays = types_of_batch(data, kRecordedRows),
                                .loss_chunks = chunks};
  prepare(training.graph(), {}, &request);
  return run_recorded(training, 0.05, data);
}

/// Equal to 1e-9 of itself; a loss of 0 is 0.
bool is_close(double x, double reference) { return reference == 0 ? x == 0 : std::abs(x / reference - 1) <= kCloseLoss; }

/// The loss that a text begins with; "" for sums and outputs.
std::string first_loss(const std::string& text) {
  const std::string name = text.substr(0, text.find('('));
  const bool is_one = text == name || text.ends_with(")");
  return find_definition(loss_definitions(), name) && is_one && text.find('*') == text.npos ? name : "";
}

std::vector<std::string> kinds_of_losses() {
  std::vector<std::string> names{"sums"};
  for (const Definition* definition : loss_definitions()) names.emplace_back(definition->name);
  return names;
}

class RecordedLosses : public testing::TestWithParam<std::tuple<const char*, std::string>> {};

TEST_P(RecordedLosses, TrainAsPyTorchDoes) {
  const std::string model = std::get<0>(GetParam()), kind = std::get<1>(GetParam());
  const std::map<std::string, Tensor> data = arrays_of("heads_" + model + ".npz");
  const std::vector<std::string> texts = loss_texts();
  const Tensor& wanted = loss_record().at(model);
  int compared = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (first_loss(texts[i]) != (kind == "sums" ? "" : kind)) continue;
    ++compared;
    const std::vector<double> losses = losses_with(model, texts[i], data);
    for (std::int64_t step = 0; step < kRecordedSteps; ++step) {
      const double reference = wanted.at(static_cast<std::int64_t>(i) * kRecordedSteps + step);
      ASSERT_TRUE(is_close(losses[static_cast<std::size_t>(step)], reference))
          << texts[i] << " at step " << step + 1 << ": " << losses[static_cast<std::size_t>(step)] << ", PyTorch has " << reference;
    }
  }
  EXPECT_GT(compared, 0) << "no record of " << kind;
}
INSTANTIATE_TEST_SUITE_P(Models, RecordedLosses,
                         testing::Combine(testing::Values("mlp", "cnn", "transformer"), testing::ValuesIn(kinds_of_losses())),
                         [](const auto& info) { return concat(std::get<0>(info.param), "_", std::get<1>(info.param)); });

/// Losses of a product that are cut by rows are what they are whole; what a convolution or attention makes cannot be cut.
class LossesInParts : public testing::TestWithParam<std::tuple<const char*, std::string>> {};

TEST_P(LossesInParts, TrainAsPyTorchDoes) {
  const std::string model = std::get<0>(GetParam()), kind = std::get<1>(GetParam());
  const std::int64_t parts = model == "mlp" ? 2 : 3;
  const std::map<std::string, Tensor> data = arrays_of("heads_" + model + ".npz");
  const std::vector<std::string> texts = loss_texts();
  const Tensor& wanted = loss_record().at(model);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string& text = texts[i];
    if (first_loss(text) != (kind == "sums" ? "" : kind)) continue;
    const auto has = [&](const char* word) { return text.find(word) != text.npos; };
    if (has("(maps") || has("(parts")) {
      EXPECT_THROW(losses_with(model, text, data, parts), UserError) << text;
      continue;
    }
    const std::vector<double> losses = losses_with(model, text, data, parts);
    for (std::int64_t step = 0; step < kRecordedSteps; ++step)
      ASSERT_TRUE(is_close(losses[at(step)], wanted.at(static_cast<std::int64_t>(i) * kRecordedSteps + step)))
          << text << " in " << parts << " parts, at step " << step + 1;
  }
}
INSTANTIATE_TEST_SUITE_P(Models, LossesInParts,
                         testing::Combine(testing::Values("mlp", "transformer"), testing::ValuesIn(kinds_of_losses())),
                         [](const auto& info) { return concat(std::get<0>(info.param), "_", std::get<1>(info.param)); });

/// Sums of all batches of seven, of which the last has six rows, are what PyTorch has of all rows at once.
class EvaluatedLosses : public testing::TestWithParam<const char*> {};

double evaluated(const std::string& name, const LossSpec& loss, const std::map<std::string, Tensor>& data, EvaluationPlan& plan) {
  constexpr std::int64_t kBatch = 7;
  RecordedModel model = import_recorded("heads_" + name, kBatch);
  plan = attach_evaluation(model.graph(), loss, {}, types_of_batch(data, kBatch));
  std::map<std::string, Tensor> values = first_states(model);
  std::vector<double> sums(plan.term_is_sum.size()), counts(sums.size());
  const std::int64_t rows = data.at("x").shape()[0];
  for (std::int64_t first = 0; first < rows; first += kBatch) {
    const std::int64_t count = std::min(kBatch, rows - first);
    for (ir::Value* input : model.graph().inputs()) {
      Tensor value(input->type);
      if (input->name == "rows") value.set(0, static_cast<double>(count));
      else
        for (std::int64_t i = 0, n = value.elements() / kBatch; i < n * kBatch; ++i)
          value.set(i, i < n * count ? data.at(input->name).at(first * n + i) : 1e30);  // what does not count may be anything
      values.insert_or_assign(input->name, std::move(value));
    }
    const ir::InterpretResult result = interpret(model.graph(), values);
    std::size_t output = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += result.outputs[output++].at(0) * (plan.term_is_sum[i] ? 1 : static_cast<double>(count));
      counts[i] += plan.term_is_sum[i] ? result.outputs[output++].at(0) : static_cast<double>(count);
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] /= counts[i];
  return combine_terms(loss, sums);
}

TEST_P(EvaluatedLosses, AreThoseOfAllRowsAtOnce) {
  const std::string model = GetParam();
  const std::map<std::string, Tensor> data = arrays_of(concat("heads_", model, ".npz"));
  const std::vector<std::string> texts = loss_texts();
  const Tensor& wanted = loss_record().at("evaluated_" + model);
  int compared = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EvaluationPlan plan;
    const LossSpec loss = parse_loss(texts[i]);
    const bool whole =
        texts[i].find("sum)") != texts[i].npos || texts[i].find("dice") != texts[i].npos || texts[i].find("total") != texts[i].npos;
    if (whole) continue;  // no mean over elements: averaged over batches, which PyTorch has no record of
    const double value = evaluated(model, loss, data, plan);
    EXPECT_TRUE(plan.takes_parts) << texts[i];
    EXPECT_NEAR(value / wanted.at(static_cast<std::int64_t>(i)), 1, 1e-12) << texts[i];
    ++compared;
  }
  EXPECT_GT(compared, 10);
}
INSTANTIATE_TEST_SUITE_P(Models, EvaluatedLosses, testing::Values("mlp", "cnn"));

/// The sums of all batches of seven, of which the last has six rows.
Tensor measured(const std::string& text) {
  constexpr std::int64_t kBatch = 7;
  static const std::map<std::string, Tensor> kData = arrays_of("heads_mlp.npz");
  const MetricSpec metric = parse_metric(text);
  RecordedModel model = import_recorded("heads_mlp", kBatch);
  const EvaluationPlan plan = attach_evaluation(model.graph(), parse_loss("output:total"), {metric}, types_of_batch(kData, kBatch));
  EXPECT_FALSE(plan.takes_parts) << "the loss is a mean";
  std::map<std::string, Tensor> values = first_states(model);
  std::vector<Tensor> sums;
  std::vector<std::vector<double>> rows_kept(static_cast<std::size_t>(plan.metric_outputs[0]));
  const std::int64_t rows = kData.at("x").shape()[0];
  for (std::int64_t first = 0; first < rows; first += kBatch) {
    const std::int64_t count = std::min(kBatch, rows - first);
    for (ir::Value* input : model.graph().inputs()) {
      Tensor value(input->type);
      if (input->name == "rows") value.set(0, static_cast<double>(count));
      else
        for (std::int64_t i = 0, n = value.elements() / kBatch; i < n * count; ++i)
          value.set(i, kData.at(input->name).at(first * n + i));
      values.insert_or_assign(input->name, std::move(value));
    }
    const ir::InterpretResult result = interpret(model.graph(), values);
    for (std::size_t k = 0; k < rows_kept.size(); ++k) {
      const Tensor& part = result.outputs[k + 1];
      if (keeps_rows(metric))
        for (std::int64_t i = 0; i < part.elements() / kBatch * count; ++i) rows_kept[k].push_back(part.at(i));
      else if (first == 0) sums.push_back(part);
      else
        for (std::int64_t i = 0; i < part.elements(); ++i) sums[k].set(i, sums[k].at(i) + part.at(i));
    }
  }
  if (keeps_rows(metric))
    for (const std::vector<double>& kept : rows_kept) {
      Tensor all(DType::f64, {rows, static_cast<std::int64_t>(kept.size()) / rows});
      for (std::size_t i = 0; i < kept.size(); ++i) all.set(static_cast<std::int64_t>(i), kept[i]);
      sums.push_back(std::move(all));
    }
  return metric_value(metric, sums);
}

TEST(Metrics, AreScikitLearns) {
  const std::map<std::string, Tensor> recorded = arrays_of("metrics.npz");
  const std::vector<std::string> texts = texts_of(recorded.at("texts"));
  for (std::size_t i = 0; i < texts.size(); ++i)
    // The record's outputs are onnxruntime's, in f32.
    EXPECT_NEAR(measured(texts[i]).at(0), recorded.at("values").at(static_cast<std::int64_t>(i)), 1e-5) << texts[i];
  EXPECT_EQ(measured("confusion(logits, label)"), recorded.at("confusion"));
}

TEST(Metrics, AucOfAScoreThatIsNaNIsNaN) {
  const MetricSpec auc = parse_metric("auc(probs, yes)");
  const Tensor right = Tensor::of(DType::f64, {4, 1}, {0, 1, 0, 1});
  EXPECT_EQ(metric_value(auc, std::vector{Tensor::of(DType::f64, {4, 1}, {1, 2, 3, 4}), right}).at(0), 0.75);
  for (const int at : {0, 1, 3}) {
    std::vector<double> scores{1, 2, 3, 4};
    scores[static_cast<std::size_t>(at)] = std::nan("");
    EXPECT_TRUE(std::isnan(metric_value(auc, std::vector{Tensor::of(DType::f64, {4, 1}, scores), right}).at(0))) << at;
  }
}

TEST(Metrics, EachOptionOfEachIsRecorded) {
  std::vector<std::string> texts = texts_of(arrays_of("metrics.npz").at("texts"));
  for (const Definition* definition : metric_definitions()) {
    if (definition->name == "confusion") continue;  // counts decisions as accuracy does
    const auto is_recorded = [&](const std::string& part) {
      return std::ranges::any_of(texts, [&](const std::string& text) {
        return text.starts_with(concat(definition->name, "(")) && text.find(part) != text.npos;
      });
    };
    EXPECT_TRUE(is_recorded("(")) << definition->name;
    for (const OptionDef& option : definition->options)
      EXPECT_TRUE(is_recorded(concat(option.name, "="))) << definition->name << " " << option.name;
  }
}

TEST(Losses, EachOptionOfEachIsRecorded) {
  const std::vector<std::string> texts = loss_texts();
  for (const Definition* definition : loss_definitions()) {
    const auto is_recorded = [&](const std::string& part) {
      return std::ranges::any_of(texts, [&](const std::string& text) {
        return text.starts_with(concat(definition->name, "(")) && text.find(part) != text.npos;
      });
    };
    EXPECT_TRUE(is_recorded("(")) << definition->name;
    for (const OptionDef& option : definition->options)
      EXPECT_TRUE(is_recorded(concat(option.name, "="))) << definition->name << " " << option.name;
  }
}

TEST(Losses, TheDocumentHasThemAll) {
  std::ifstream in(concat(GCOMP_SOURCE_DIR, "/docs/training.md"));
  const std::string document{std::istreambuf_iterator<char>(in), {}};
  for (const auto table : {loss_definitions(), metric_definitions()})
    for (const Definition* definition : table)
      EXPECT_NE(document.find(describe(*definition)), std::string::npos) << "docs/training.md lacks\n" << describe(*definition);
}

/// The message of a text that is wrong, or that does not fit the model of heads.
std::string loss_refusal(const std::string& text) {
  try {
    const LossSpec loss = parse_loss(text);
    static const std::map<std::string, Tensor> kData = arrays_of("heads_mlp.npz");
    RecordedModel model = import_recorded("heads_mlp");
    attach_loss(model.graph(), loss, types_of_batch(kData, kRecordedRows));
  } catch (const UserError& error) { return error.what(); }
  return "accepted";
}

TEST(Losses, WrongTextsAreRefusedWhereTheyAreWrong) {
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(loss_refusal(text).find(part), std::string::npos) << text << ": " << loss_refusal(text);
  };
  expect("mes", "unknown loss 'mes'");
  expect("mes", "did you mean 'mse'?");
  expect("0.5*mse(values, target) + hubr(values, target)", "at column 27: 0.5*mse(values, target) + >>>hubr<<<(values, target)");
  expect("mse(value, target)", "the model has no output 'value'");
  expect("mse(value, target)", "did you mean 'values'?, at column 5: mse(>>>value<<<, target)");
  expect("mse(values, trget)", "did you mean 'target'?");
  expect("mse(values)", "mse takes input, target, found 1 argument, at column 1");
  expect("triplet_margin", "triplet_margin takes anchor, positive, negative, found 0 arguments");
  expect("mse(values, target) + cross_entropy(values, label)", "accepted");
  expect("mse(values, soft)", "mse: soft is f32[6,5], values f64[6,3]; wanted f64[6,3]");
  expect("cross_entropy(logits, target)", "cross_entropy: target is f32[6,3], logits f64[6,5]; wanted i64[6]");
  expect("cross_entropy(logits, label, weight=[1, 2])", "weight: found 2 numbers, wanted 5, or one");
  expect("cross_entropy(label_smoothing=2)", "label_smoothing: found 2, wanted a number of at least 0 and of at most 1");
  expect("cross_entropy(smoothing=0.1)", "cross_entropy has no option 'smoothing'");
  expect("mse(mse(values, target), target)", "a call is no argument of another");
  expect("mse(values, [1, 2])", "a list is the value of an option");
  expect("mse(values + target, 0)", "array 'target' stands alone as an argument");
  expect("mse(values + logits, 0)", "operands are f64[6,3] and f64[6,5], wanted equal types");
  expect("logits", "unknown loss 'logits'");
  expect("mse(values, target) + logits", "output 'logits' is f64[6,5], wanted a floating-point scalar");
  expect("1 + 2", "wanted a loss");
  expect("output:", "needs the name of a graph output");
  expect("output:nothing", "the model has no output 'nothing'");
  expect("mse:axis=1", "found option 'axis=1', wanted axis=N (cross_entropy only)");
  expect("multi_margin(maps, classes)", "wanted [rows, classes]");
}

}  // namespace
}  // namespace gcomp::passes
