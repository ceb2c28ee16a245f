// Initial values of parameters: those of PyTorch by name, shape and distribution, as many fresh layers of it have them.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "frontend/layers.h"
#include "ir/base/named_draws.h"
#include "passes/training/optimizers/parameter_kind.h"
#include "tests/layers/record.h"

namespace gcomp::test {
namespace {

/// The layers of initial_values() in tests/fixtures/layers/record.py.
void layers_to_start(Layers& nn) {
  const auto images = [&](Shape shape) { return nn.constant(Tensor(DType::f32, std::move(shape))); };
  std::vector<Var> made{
      nn.linear("linear", images({2, 30}), 40),
      nn.conv1d("conv1d", images({2, 12, 9}), 16, 5, {.groups = 2}),
      nn.conv2d("conv2d", images({2, 6, 5, 5}), 16, 3),
      nn.conv3d("conv3d", images({2, 4, 3, 3, 3}), 8, 3),
      nn.conv_transpose1d("conv_transpose1d", images({2, 12, 9}), 16, 5, {.groups = 2}),
      nn.conv_transpose2d("conv_transpose2d", images({2, 6, 5, 5}), 16, 3),
      nn.conv_transpose3d("conv_transpose3d", images({2, 4, 3, 3, 3}), 8, 3),
      nn.embedding("embedding", nn.constant(Tensor(DType::i64, {2})), 60, 20, {.padding_idx = 3}),
      nn.batch_norm("batch_norm", images({2, 4, 3, 3})),
      nn.layer_norm("layer_norm", images({2, 4})),
      nn.rms_norm("rms_norm", images({2, 4})),
      nn.group_norm("group_norm", images({2, 4, 3}), 2),
      nn.instance_norm("instance_norm", images({2, 4, 3, 3}), {.affine = true}),
      nn.multihead_attention("attention", images({2, 3, 24}), images({2, 5, 24}), images({2, 5, 24}), 4),
      nn.multihead_attention("widths", images({2, 3, 24}), images({2, 5, 30}), images({2, 5, 12}), 4),
      nn.lstm("lstm", images({2, 3, 20}), 25, {.num_layers = 2, .bidirectional = true}).output,
      nn.gru("gru", images({2, 3, 20}), 25).output,
      nn.prelu("prelu", images({2, 3}), {.num_parameters = 3}),
  };
  for (std::size_t i = 0; i < made.size(); ++i) nn.output("y" + std::to_string(i), made[i]);
}

struct Moments {
  double least, greatest, mean, deviation;
};
Moments moments_of(const Tensor& t) {
  Moments m{t.at(0), t.at(0), 0, 0};
  const double count = static_cast<double>(t.elements());
  for (double v : t.to_doubles()) {
    m.least = std::min(m.least, v);
    m.greatest = std::max(m.greatest, v);
    m.mean += v / count;
  }
  for (double v : t.to_doubles()) m.deviation += (v - m.mean) * (v - m.mean) / count;
  m.deviation = std::sqrt(m.deviation);
  return m;
}

TEST(InitialValues, AreDistributedAsPyTorchs) {
  const frontend::ImportedModel model = frontend::instantiate({layers_to_start, 7}, {.training = true});
  const Arrays record = recorded_layers("initial.npz");
  EXPECT_EQ(model.weights.size(), record.size());
  for (const auto& [name, wanted] : record) {
    ASSERT_TRUE(model.weights.contains(name)) << name;
    const Tensor& values = model.weights.at(name);
    const Moments m = moments_of(values);
    const double bound = std::max(std::abs(wanted.at(0)), std::abs(wanted.at(1))), deviation = wanted.at(3);
    const double root = std::sqrt(static_cast<double>(values.elements()));
    // Five standard errors of a mean; of a deviation, where few values are drawn, they are about as wide.
    EXPECT_NEAR(m.mean, wanted.at(2), 5 * deviation / root + 1e-12) << name;
    EXPECT_NEAR(m.deviation, deviation, 5 * deviation / root + 1e-12) << name;
    if (name.starts_with("embedding")) continue;  // normal: no bound
    // The record's extremes of many draws are all but the bound itself.
    EXPECT_LE(std::max(std::abs(m.least), std::abs(m.greatest)), bound * 1.01 + 1e-12) << name;
    if (deviation > 0 && values.elements() > 400) { EXPECT_GE(std::min(-m.least, m.greatest), bound * 0.95) << name; }
  }
}

TEST(InitialValues, FollowTheSeedAndTheName) {
  const auto weights = [](std::uint64_t seed) { return frontend::instantiate({layers_to_start, seed}, {}).weights.all(); };
  EXPECT_EQ(weights(1), weights(1));
  EXPECT_NE(weights(1).at("gru.weight_hh_l0"), weights(2).at("gru.weight_hh_l0"));
  EXPECT_NE(weights(1).at("lstm.weight_hh_l0"), weights(1).at("lstm.weight_hh_l0_reverse"));
}

/// What is drawn where it is needed, a part at a time, is what a list would hold: each number by seed, name and position.
TEST(InitialValues, ThatAreDrawnAreThoseOfAList) {
  constexpr std::int64_t kRows = 83, kColumns = 101, kCount = kRows * kColumns;  // no multiples of four, more than one part
  std::vector<double> uniform, normal;
  const auto write = [&](Layers& nn) {
    uniform = nn.uniform("u", kCount, 0.25);
    normal = nn.normal("n", kCount);
    nn.output("y", nn.uniform_parameter("u", {kRows, kColumns}, 0.25) + nn.normal_parameter("n", {kRows, kColumns}, 0.5));
  };
  const NamedDraws of_u(5, "u"), of_n(5, "n");
  for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
    const frontend::Weights weights = frontend::instantiate({write, 5}, {.float_type = dtype}).weights;
    const auto rounded = [&](double value) { return Tensor::scalar(dtype, value).at(0); };
    for (std::int64_t i = 0; i < kCount; ++i) {
      const auto at = static_cast<std::size_t>(i);
      ASSERT_EQ(uniform[at], (2 * of_u(i) - 1) * 0.25) << i;
      ASSERT_EQ(normal[at], std::sqrt(-2 * std::log(1 - of_n(2 * i))) * std::cos(2 * std::numbers::pi * of_n(2 * i + 1))) << i;
      ASSERT_EQ(weights.at("u").at(i), rounded(uniform[at])) << i;
      ASSERT_EQ(weights.at("n").at(i), rounded(normal[at] * 0.5)) << i;
    }
  }
}

TEST(InitialValues, PaddingRowsAreZero) {
  const Tensor table = frontend::instantiate({layers_to_start, 1}, {}).weights.at("embedding.weight");
  for (std::int64_t i = 0; i < 20; ++i) EXPECT_EQ(table.at(3 * 20 + i), 0);
  EXPECT_NE(table.at(2 * 20), 0);
}

/// What `kind:` of a parameter group selects.
TEST(LayerParameters, AreOfTheKindThatTheirNamesSay) {
  using passes::ParameterKind;
  const frontend::ImportedModel model = frontend::instantiate({layers_to_start, 1}, {.training = true});
  std::vector<ir::Value*> parameters;
  for (const ir::State& state : model.graph.states())
    if (state.role == ir::StateRole::parameter) parameters.push_back(state.value);
  const std::vector<ParameterKind> kinds = passes::parameter_kinds(model.graph, parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i]->name;
    const auto says = [&](const char* part) { return name.find(part) != std::string::npos; };
    const ParameterKind wanted = says("embedding") ? ParameterKind::embedding
                                 : says("norm.")   ? ParameterKind::norm
                                 : says("prelu")   ? ParameterKind::norm  // it scales channels
                                 : says("bias")    ? ParameterKind::bias
                                                   : ParameterKind::matrix;
    EXPECT_EQ(kinds[i], wanted) << name << " is '" << passes::name_of(kinds[i]) << "'";
  }
}

}  // namespace
}  // namespace gcomp::test
