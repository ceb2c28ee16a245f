// Operators that read where values say, and those of signals: their gradients against finite differences in f64, what the public
// suite does not ask of their values, and what they refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "passes/training/differentiate.h"
#include "tests/onnx/expect_error.h"
#include "tests/onnx/model_builder.h"

namespace gcomp::tests {
namespace {

using Dims = std::vector<std::int64_t>;

std::vector<float> random_floats(const Dims& dims, unsigned seed, double scale = 1) {
  std::mt19937 generator(seed);
  std::vector<float> values(static_cast<std::size_t>(element_count(dims)));
  for (float& value : values) value = static_cast<float>((static_cast<double>(generator() >> 8) / (1 << 23) - 1) * scale);
  return values;
}

/// Gradients of the sum of y times fixed numbers for all parameters, beside central differences of it.
void expect_gradients(const ModelBuilder& m) {
  frontend::ImportedModel model = m.import({.float_type = DType::f64});
  ir::Builder b(model.graph);
  ir::Var y = b.wrap(model.graph.outputs()[0]);
  const std::vector<float> fixed = random_floats(y.shape(), 77);
  Dims axes;
  for (std::int64_t i = 0; i < y.rank(); ++i) axes.push_back(i);
  const std::vector<double> weights(fixed.begin(), fixed.end());
  ir::Var sum = b.sum(y * b.constant(Tensor::of(DType::f64, y.shape(), weights)), axes);
  std::vector<ir::Value*> parameters;
  for (const ir::State& state : model.graph.states()) parameters.push_back(state.value);
  std::vector<ir::Value*> outputs = passes::differentiate(model.graph, sum.value, parameters);
  outputs.insert(outputs.begin(), sum.value);
  model.graph.outputs() = outputs;
  std::map<std::string, Tensor> inputs;
  for (const auto& [name, tensor] : model.weights.all()) inputs.emplace(name, tensor);
  const std::vector<Tensor> results = ir::interpret(model.graph, inputs).outputs;
  model.graph.outputs() = {sum.value};
  constexpr double kStep = 1e-6;
  double largest = 0;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    Tensor& tensor = inputs.at(parameters[p]->name);
    for (std::int64_t i = 0; i < tensor.elements(); i += 1 + tensor.elements() / 40) {
      const double was = tensor.at(i);
      const auto at = [&](double value) {
        tensor.set(i, value);
        return ir::interpret(model.graph, inputs).outputs[0].at(0);
      };
      const double expected = (at(was + kStep) - at(was - kStep)) / (2 * kStep);
      tensor.set(i, was);
      EXPECT_NEAR(results[p + 1].at(i), expected, 1e-5 * std::max(1.0, std::abs(expected))) << parameters[p]->name << " " << i;
      largest = std::max(largest, std::abs(expected));
    }
  }
  EXPECT_GT(largest, 0.01);
}

ModelBuilder grid_sample(const char* mode, const char* padding, int corners, const Dims& x, const Dims& grid) {
  ModelBuilder m(20);
  m.floats("m.x", x, random_floats(x, 1)).floats("m.grid", grid, random_floats(grid, 2, 1.4));
  return m.node("GridSample", {"m.x", "m.grid"}, {"y"}, {{"mode", mode}, {"padding_mode", padding}, {"align_corners", corners}})
      .output("y");
}

std::vector<double> run(const ModelBuilder& m) {
  const frontend::ImportedModel model = m.import({.float_type = DType::f64});
  std::map<std::string, Tensor> inputs;
  for (const auto& [name, tensor] : model.weights.all()) inputs.emplace(name, tensor);
  return ir::interpret(model.graph, inputs).outputs[0].to_doubles();
}

TEST(Sampling, GradientsOfGridSample) {
  for (const char* mode : {"linear", "cubic", "nearest"})
    for (const char* padding : {"zeros", "border", "reflection"})
      for (const int corners : {0, 1}) {
        SCOPED_TRACE(std::string(mode) + " " + padding + " " + std::to_string(corners));
        expect_gradients(grid_sample(mode, padding, corners, {2, 3, 4, 5}, {2, 3, 4, 2}));
      }
  expect_gradients(grid_sample("linear", "zeros", 0, {2, 2, 3, 4, 5}, {2, 2, 3, 2, 3}));
  expect_gradients(grid_sample("linear", "border", 1, {1, 2, 6}, {1, 9, 1}));
}

/// Beyond the border cubic interpolation goes on between edges that repeat, as in PyTorch and onnxruntime: of a ramp whose last two
/// elements are 2 and 3, half an element behind the last, with a = -0.75: 3 + 0.09375.
TEST(Sampling, CubicOverARepeatedBorder) {
  ModelBuilder m(20);
  m.floats("m.x", {1, 1, 1, 4}, {0, 1, 2, 3}).floats("m.grid", {1, 1, 1, 2}, {4.0F / 3, 0});
  m.node("GridSample", {"m.x", "m.grid"}, {"y"}, {{"mode", "cubic"}, {"padding_mode", "border"}, {"align_corners", 1}}).output("y");
  EXPECT_NEAR(run(m)[0], 3.09375, 1e-6);
}

TEST(Sampling, PointsThatAreNoNumbersAreNoFault) {
  ModelBuilder m(20);
  const auto nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
  m.floats("m.x", {1, 1, 2, 2}, {1, 2, 3, 4}).floats("m.grid", {1, 1, 3, 2}, {nan, 0, 1e30F, 0, -infinite, 0});
  m.node("GridSample", {"m.x", "m.grid"}, {"y"}, {{"mode", "nearest"}}).output("y");
  const std::vector<double> y = run(m);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 0);
}

TEST(Sampling, GradientsOfRegionsAndDeformedConvolutions) {
  for (const char* mode : {"avg", "max"}) {
    ModelBuilder regions(16);
    regions.floats("m.x", {2, 3, 6, 7}, random_floats({2, 3, 6, 7}, 3));
    regions.floats("r.boxes", {3, 4}, {0.3F, 0.2F, 4.1F, 4.4F, 2.2F, 1.1F, 9.3F, 8.7F, -2.4F, -1.3F, 3.3F, 2.6F});
    regions.integers("images", {3}, {0, 1, 1});
    regions
        .node("RoiAlign", {"m.x", "r.boxes", "images"}, {"y"},
              {{"output_height", 2}, {"output_width", 3}, {"sampling_ratio", 2}, {"spatial_scale", 0.9F}, {"mode", mode}})
        .output("y");
    expect_gradients(regions);
  }
  ModelBuilder deformed(19);
  deformed.floats("m.x", {2, 4, 5, 6}, random_floats({2, 4, 5, 6}, 4)).floats("w.w", {6, 2, 3, 3}, random_floats({6, 2, 3, 3}, 5));
  deformed.floats("o.o", {2, 36, 3, 3}, random_floats({2, 36, 3, 3}, 6, 1.7)).floats("b.b", {6}, random_floats({6}, 7));
  deformed.floats("k.k", {2, 18, 3, 3}, random_floats({2, 18, 3, 3}, 8));
  deformed
      .node("DeformConv", {"m.x", "w.w", "o.o", "b.b", "k.k"}, {"y"},
            {{"group", 2}, {"offset_group", 2}, {"strides", Dims{2, 2}}, {"pads", Dims{1, 1, 1, 1}}})
      .output("y");
  expect_gradients(deformed);
}

TEST(Signals, Gradients) {
  ModelBuilder frames(17);
  frames.floats("m.x", {2, 20}, random_floats({2, 20}, 9)).floats("w.w", {8}, random_floats({8}, 10));
  frames.integers("step", {}, {3}).node("STFT", {"m.x", "step", "w.w"}, {"y"}, {{"onesided", 1}}).output("y");
  expect_gradients(frames);
  for (const int length : {3, 5, 8}) {
    ModelBuilder real(20), half(20);
    real.floats("m.x", {2, 5, 3, 1}, random_floats({2, 5, 3, 1}, 11)).integers("length", {}, {length}).integers("axis", {}, {1});
    real.node("DFT", {"m.x", "length", "axis"}, {"y"}, {{"onesided", 1}}).output("y");
    expect_gradients(real);
    half.floats("m.x", {2, 3, 2}, random_floats({2, 3, 2}, 12)).integers("length", {}, {length});
    half.node("DFT", {"m.x", "length"}, {"y"}, {{"onesided", 1}, {"inverse", 1}}).output("y");
    expect_gradients(half);
  }
}

TEST(Signals, ATransformAndItsInverseGiveTheSignal) {
  for (const int size : {1, 2, 7, 8, 100}) {
    const std::vector<float> x = random_floats({2, size, 1}, 13);
    ModelBuilder m(20);
    m.floats("m.x", {2, size, 1}, x).integers("length", {}, {size}).node("DFT", {"m.x"}, {"f"}, {{"onesided", 1}});
    m.node("DFT", {"f", "length"}, {"y"}, {{"onesided", 1}, {"inverse", 1}}).output("y");
    const std::vector<double> y = run(m);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 1e-12) << size;
  }
}

TEST(Windows, GradientsOfImagesMadeOfThem) {
  ModelBuilder m(18);
  m.floats("m.x", {2, 12, 9}, random_floats({2, 12, 9}, 14)).integers("image", {2}, {5, 6}).integers("block", {2}, {2, 3});
  m.node("Col2Im", {"m.x", "image", "block"}, {"y"}, {{"strides", Dims{2, 2}}, {"pads", Dims{0, 1, 1, 0}}}).output("y");
  expect_gradients(m);
}

/// Windows of 2, 1 apart: the middle element is the maximum of both, and unpooled once.
TEST(Windows, AnElementOfTwoWindowsIsUnpooledOnce) {
  ModelBuilder m(18);
  m.floats("m.x", {1, 1, 2}, {5, 5}).integers("places", {1, 1, 2}, {1, 1});
  m.node("MaxUnpool", {"m.x", "places"}, {"y"}, {{"kernel_shape", Dims{2}}}).output("y");
  EXPECT_EQ(run(m), (std::vector<double>{0, 5, 0}));
}

TEST(Sampling, Refusals) {
  ModelBuilder adaptive(16);
  adaptive.floats("m.x", {1, 1, 4, 4}, random_floats({1, 1, 4, 4}, 1)).floats("r.r", {1, 4}, {0, 0, 3, 3}).integers("i", {1}, {0});
  adaptive.node("RoiAlign", {"m.x", "r.r", "i"}, {"y"}).output("y");
  expect_error([&] { adaptive.import(); }, {"RoiAlign", "sampling_ratio 0", "depends on data"}, ExitCode::unsupported);
  ModelBuilder many(16), grid(20);
  many.floats("m.x", {1, 1, 4, 4}, random_floats({1, 1, 4, 4}, 1)).floats("r.r", {1, 4}, {0, 0, 3, 3}).integers("i", {1}, {0});
  many.node("RoiAlign", {"m.x", "r.r", "i"}, {"y"}, {{"sampling_ratio", 1 << 20}, {"output_height", 1 << 20}}).output("y");
  expect_error([&] { many.import(); }, {"RoiAlign"}, ExitCode::unsupported);
  grid.floats("t.t", {1, 2, 3}, random_floats({1, 2, 3}, 1)).integers("size", {4}, {1, 1, 1 << 20, 1 << 20});
  grid.node("AffineGrid", {"t.t", "size"}, {"y"}).output("y");
  expect_error([&] { grid.import(); }, {"AffineGrid", "more than 16777216"}, ExitCode::unsupported);
  ModelBuilder long_one(20);
  long_one.input("x", {"1", "6000", "1"}).node("DFT", {"x"}, {"y"}).output("y");
  expect_error([&] { long_one.import(); }, {"DFT", "6000 elements to 6000"}, ExitCode::unsupported);
  expect_error([&] { grid_sample("linear", "zeros", 0, {2, 3, 4, 5}, {2, 3, 4, 3}).import(); }, {"GridSample", "2,3,4,3"});
  expect_error([&] { grid_sample("linear", "wrap", 0, {2, 3, 4, 5}, {2, 3, 4, 2}).import(); }, {"padding_mode is 'wrap'"});
  ModelBuilder frames(17);
  frames.input("x", {"1", "20"}).integers("step", {}, {3}).integers("length", {}, {21});
  frames.node("STFT", {"x", "step", "", "length"}, {"y"}).output("y");
  expect_error([&] { frames.import(); }, {"STFT", "frames of 21", "signal of 20"});
}

}  // namespace
}  // namespace gcomp::tests
