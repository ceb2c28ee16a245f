// Every layer with its options against PyTorch's record: outputs in training and in inference, gradients of inputs and parameters,
// names and shapes of parameters, running statistics; in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "gcomp/gcomp.h"
#include "gcomp/ops.h"
#include "ir/base/dtype.h"
#include "tests/layers/cases.h"
#include "tests/layers/record.h"

namespace gcomp::test {
namespace {

constexpr double kExact = 1e-10;

void expect_near(const Tensor& found, const Tensor& wanted, const std::string& what) {
  ASSERT_EQ(found.shape(), wanted.shape()) << what;
  for (std::int64_t i = 0; i < wanted.elements(); ++i)
    ASSERT_NEAR(found.at(i), wanted.at(i), kExact * std::max(1.0, std::abs(wanted.at(i)))) << what << ", element " << i;
}

const Arrays& record() {
  static const Arrays arrays = recorded_layers("layers.npz");
  return arrays;
}
Arrays part(const LayerCase& c, const std::string& kind) { return arrays_under(record(), c.name + "/" + kind + "/"); }

/// Floats become parameters times `one`, so that they have gradients and are values of the graph.
Var input_of(Layers& nn, const std::string& name, const Tensor& value, Var one) {
  if (!is_float(value.dtype())) return nn.constant(value);
  Var x = nn.parameter(name, value.shape(), value.to_doubles());
  return x * ops::broadcast(one, x.shape());
}

Var sum_of(Var x) {
  std::vector<std::int64_t> axes;
  for (std::int64_t i = 0; i < x.rank(); ++i) axes.push_back(i);
  return ops::sum(x, axes);
}

/// The record's loss over all cases: the sum of each output times its pick. The gradient of a pick is the output in training form.
Model model_of(const std::vector<LayerCase>& cases) {
  return Model::define([cases](Layers& nn) {
    Var one = nn.input("one", DType::f32, {1}), loss;
    for (const LayerCase& c : cases) {
      std::vector<Var> inputs;
      for (const auto& [i, value] : part(c, "input")) inputs.push_back(input_of(nn, c.name + "/input/" + i, value, one));
      const std::vector<Var> outputs = c.write(nn, c.name, inputs);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const Tensor& pick = record().at(c.name + "/pick/" + std::to_string(i));
        ASSERT_EQ(outputs[i].shape(), pick.shape()) << c.name << ", output " << i;
        nn.output(c.name + "/inference/" + std::to_string(i), outputs[i]);
        Var term = sum_of(outputs[i] * nn.parameter(c.name + "/pick/" + std::to_string(i), pick.shape(), pick.to_doubles()));
        loss = loss ? loss + term : term;
      }
    }
    nn.output("loss", loss);
  });
}

/// States of the case's layers, without what optimizers keep.
std::set<std::string> layer_states(const Trainer& trainer, const LayerCase& c) {
  std::set<std::string> names;
  for (const std::string& state : trainer.states())
    if (state.starts_with(c.name + ".")) names.insert(state.substr(c.name.size() + 1));
  return names;
}

class RecordedLayers : public testing::TestWithParam<std::string> {};

TEST_P(RecordedLayers, ComputeWhatPyTorchDoes) {
  const std::vector<LayerCase> cases = layer_cases(GetParam());
  TrainOptions options;
  options.loss = "output:loss";
  options.optimizer = {"sgd"};
  options.learning_rate = 1e-30;  // gradients are what counts
  options.graph.precision = DType::f64;
  options.device = test_device();
  Trainer trainer = compile(model_of(cases), options);
  for (const LayerCase& c : cases) {
    std::set<std::string> names;
    for (const auto& [name, value] : part(c, "weight")) {
      names.insert(name);
      const std::vector<double> values = value.to_doubles();
      trainer.write(c.name + "." + name, {values, value.shape()});
    }
    EXPECT_EQ(layer_states(trainer, c), names) << c.name;
  }
  const std::vector<double> one{1};
  const Batch batch{{"one", {one, {1}}}};
  Arrays inference, gradients;
  for (auto& [name, value] : trainer.predict(batch)) inference.emplace(name, value);
  for (auto& [name, value] : trainer.gradients(batch)) gradients.emplace(name, value);
  trainer.train_step(batch);
  for (const LayerCase& c : cases) {
    ASSERT_FALSE(part(c, "output").empty()) << c.name << " is not on record";
    for (const auto& [i, wanted] : part(c, "inference"))
      expect_near(inference.at(c.name + "/inference/" + i), wanted, c.name + ", inference " + i);
    for (const auto& [i, wanted] : part(c, "output"))
      expect_near(gradients.at(c.name + "/pick/" + i), wanted, c.name + ", output " + i);
    for (const auto& [name, wanted] : part(c, "gradient")) {
      const std::string state = c.name + (name.starts_with("input/") ? "/" : ".") + name;
      ASSERT_TRUE(gradients.contains(state)) << state;
      expect_near(gradients.at(state), wanted, state + ", gradient");
    }
    for (const auto& [name, wanted] : part(c, "after"))
      expect_near(trainer.read(c.name + "." + name), wanted, c.name + "." + name + " after a step");
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RecordedLayers, testing::ValuesIn(layer_families()),
                         [](const auto& info) { return info.param; });

TEST(RecordedLayers, AreAllOfTheRecord) {
  std::set<std::string> written, recorded;
  for (const std::string& family : layer_families())
    for (const LayerCase& c : layer_cases(family)) written.insert(c.name);
  for (const auto& [name, value] : record()) recorded.insert(name.substr(0, name.find('/', name.find('/') + 1)));
  EXPECT_EQ(written, recorded);
}

}  // namespace
}  // namespace gcomp::test
