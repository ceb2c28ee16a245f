// What programs do with the public headers alone: ops and operators of a model written in C++, arrays in files, and the stand-ins
// for types of the standard library.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "gcomp/arrays.h"
#include "gcomp/gcomp.h"
#include "gcomp/gradients.h"
#include "gcomp/ops.h"
#include "tests/temporary_directory.h"

namespace gcomp {
namespace {

constexpr double kTolerance = 1e-12;

/// y of a model in f64 of one input x, [2, 3].
std::vector<double> run(const std::function<Var(Layers&, Var)>& write, const std::vector<double>& x) {
  const Model model = Model::define([&](Layers& nn) { nn.output("y", write(nn, nn.input("x", DType::f64, {2, 3}))); });
  PredictOptions options;
  options.device = DeviceRequest::cpu;
  Predictor predictor(model, options);
  return predictor.predict({{"x", {x, {2, 3}}}})[0].second.to_doubles();
}

const std::vector<double> kX{0.5, 1, 2, -1, 0.25, 3};

TEST(PublicOps, ElementwiseOnesFollowTheirFormulas) {
  const std::vector<double> y = run(
      [](Layers&, Var x) {
        Var z = ops::exp(ops::sin(x)) + ops::log(ops::abs(x) + 1.0) * ops::tanh(x) - ops::sqrt(ops::maximum(x, ops::like(x, 0.25)));
        return ops::select(x > ops::like(x, 0), z, ops::like(x, -7));
      },
      kX);
  ASSERT_EQ(y.size(), kX.size());
  for (std::size_t i = 0; i < kX.size(); ++i) {
    const double x = kX[i];
    const double z = std::exp(std::sin(x)) + std::log(std::abs(x) + 1) * std::tanh(x) - std::sqrt(std::max(x, 0.25));
    EXPECT_NEAR(y[i], x > 0 ? z : -7, kTolerance) << x;
  }
}

TEST(PublicOps, ShapesAndReductionsCountAxesFromTheEndToo) {
  const std::vector<double> y = run(
      [](Layers& nn, Var x) {
        Var weight = nn.constant(Tensor::of(DType::f64, {3, 2}, {1, 0, 0, 1, 1, 1}));
        Var rows = ops::mean(x, {-1}, ops::Axes::kept);  // [2, 1]
        return ops::matmul(x - ops::broadcast(rows, x.shape()), weight);
      },
      kX);
  const std::vector<double> centred{0.5 - 3.5 / 3, 1 - 3.5 / 3, 2 - 3.5 / 3, -1 - 0.75, 0.25 - 0.75, 3 - 0.75};
  ASSERT_EQ(y.size(), 4U);
  for (std::size_t row = 0; row < 2; ++row) {
    EXPECT_NEAR(y[2 * row], centred[3 * row] + centred[3 * row + 2], kTolerance);
    EXPECT_NEAR(y[2 * row + 1], centred[3 * row + 1] + centred[3 * row + 2], kTolerance);
  }
  const std::vector<double> parts = run(
      [](Layers&, Var x) {
        return ops::concat({ops::slice(x, {0, 2}, {2, 2}, {1, -1}), ops::cumulative_sum(x, -1)}, -1);
      },
      kX);
  EXPECT_EQ(parts, (std::vector<double>{2, 1, 0.5, 1.5, 3.5, 3, 0.25, -1, -0.75, 2.25}));
}

TEST(PublicOps, AnyOpIsAppliedByItsName) {
  EXPECT_EQ(run([](Layers&, Var x) { return ops::apply("reduce_sum", {x}, "{axes=[1]}")[0]; }, kX),
            (std::vector<double>{3.5, 2.25}));
  try {
    run([](Layers&, Var x) { return ops::apply("reduce_sun", {x}, "{axes=[1]}")[0]; }, kX);
    FAIL() << "an unknown op was applied";
  } catch (const UserError& error) { EXPECT_NE(std::string(error.what()).find("reduce_sum"), std::string::npos) << error.what(); }
}

TEST(PublicApi, GradientsOfAModelWrittenInCpp) {
  // The mean over two rows of (w x - t)^2, by hand.
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 1});
    nn.output("y", ops::matmul(x, nn.parameter("w", {1, 1}, {3})));
  });
  GradientOptions options;
  options.loss = "mse";
  options.device = DeviceRequest::cpu;
  options.graph.precision = DType::f64;
  options.graph.dims = {{"batch", 2}};
  std::vector<std::string> phases;
  options.hooks.begin = [&](std::string_view phase) { phases.emplace_back(phase); };
  Gradients gradients(model, options);
  const std::vector<double> x{1, 2}, t{1, 1};
  const std::vector<NamedTensor> found = gradients.run({{"x", {x, {2, 1}}}, {"label", {t, {2, 1}}}});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_DOUBLE_EQ(found[0].second.at(0), (2.0 * 2.0 + 5.0 * 5.0) / 2);
  EXPECT_EQ(found[1].first, "w");
  EXPECT_DOUBLE_EQ(found[1].second.at(0), 2.0 * 1 + 5.0 * 2);
  EXPECT_FALSE(phases.empty());
}

/// The mean over two rows of (w x d - t)^2, where d is what w x is; of what is read so alone it is zero.
TEST(PublicApi, NoGradientGoesThroughWhatIsDetached) {
  const Model model = Model::define([](Layers& nn) {
    Var y = ops::matmul(nn.input("x", DType::f32, {kBatch, 1}), nn.parameter("w", {1, 1}, {3}));
    nn.output("y", y * ops::detach(y) + ops::detach(ops::broadcast(nn.parameter("held", {1, 1}, {0}), y.shape())));
  });
  GradientOptions options;
  options.loss = "mse";
  options.device = DeviceRequest::cpu;
  options.graph.precision = DType::f64;
  options.graph.dims = {{"batch", 2}};
  const std::vector<double> x{1, 2}, t{8, 35};
  const std::vector<NamedTensor> found = Gradients(model, options).run({{"x", {x, {2, 1}}}, {"label", {t, {2, 1}}}});
  ASSERT_EQ(found.size(), 3U);
  EXPECT_DOUBLE_EQ(found[0].second.at(0), 1);
  EXPECT_EQ(found[1].first, "w");
  EXPECT_DOUBLE_EQ(found[1].second.at(0), (2.0 * 1 * 3 + 2.0 * 2 * 6) / 2);
  EXPECT_EQ(found[2].first, "held");
  EXPECT_EQ(found[2].second.at(0), 0);
}

TEST(PublicApi, ArraysGoToFilesAndBack) {
  const test::TemporaryDirectory folder;
  const std::vector<NamedTensor> arrays{{"x", Tensor::of(DType::f32, {2, 2}, {1, 2, 3, 4})},
                                        {"ids", Tensor::of(DType::i64, {3}, {7})}};
  write_npz(folder / "a.npz", arrays);
  EXPECT_EQ(read_npz(folder / "a.npz"), arrays);
  const std::vector<std::string> names{"ids"};
  EXPECT_EQ(read_npz(folder / "a.npz", names), std::vector<NamedTensor>{arrays[1]});
  EXPECT_EQ(batch_of(arrays)[0].second.type(), arrays[0].second.type());
  write_npy((folder / "a.npy").string(), arrays[0].second);
  EXPECT_EQ(read_npy(folder / "a.npy"), arrays[0].second);
  EXPECT_THROW(read_npz(folder / "none.npz"), UserError);
}

TEST(StandIns, FunctionTakesAnyCallableAndCopiesIt) {
  Function<int(int)> empty;
  EXPECT_FALSE(empty);
  EXPECT_EQ(empty(3), 0);
  EXPECT_FALSE(Function<int(int)>(std::function<int(int)>()));
  int calls = 0;
  Function<int(int)> counting = [&calls, state = 0](int step) mutable { return ++calls, state += step; };
  Function<int(int)> copy = counting;
  EXPECT_EQ(counting(2), 2);
  EXPECT_EQ(counting(2), 4);
  EXPECT_EQ(copy(2), 2);  // its own state
  EXPECT_EQ(calls, 3);
  empty = std::move(copy);
  EXPECT_TRUE(empty);
  EXPECT_EQ(empty(1), 3);
}

TEST(StandIns, OptionalAndPathTakeTheStandardOnes) {
  const Optional<double> none = std::optional<double>(), some = std::optional<double>(2), number = 3;
  EXPECT_FALSE(none);
  EXPECT_EQ(*some, 2);
  EXPECT_EQ(number.value_or(4), 3);
  EXPECT_EQ(none.value_or(4), 4);
  EXPECT_EQ(Path(std::filesystem::path("a") / "b").string(), "a/b");
  EXPECT_EQ(Path("a/b"), Path(std::string("a/b")));
}

TEST(StandIns, OwnedIsMovedAndDestroyedOnce) {
  int destroyed = 0;
  struct Counter {
    int& count;
    ~Counter() { ++count; }
  };
  {
    Owned<Counter> first(new Counter{destroyed}), second(new Counter{destroyed});
    Owned<Counter> third = std::move(first);
    second = std::move(third);
    EXPECT_EQ(destroyed, 0);
  }
  EXPECT_EQ(destroyed, 2);
}

TEST(PublicApi, AModelIsAValue) {
  Model model = Model::define(
      [](Layers& nn) {
        nn.output("y", nn.linear("fc", nn.input("x", DType::f32, {kBatch, 2}), 1));
      },
      1, "first");
  Model copy = model;
  model = Model::define([](Layers& nn) { nn.output("z", nn.input("x", DType::f32, {kBatch, 2})); }, 1, "second");
  EXPECT_EQ(copy.name(), "first");
  EXPECT_EQ(model.name(), "second");
  ASSERT_EQ(copy.inputs().size(), 1U);
  EXPECT_EQ(to_string(copy.inputs()[0]), "x: f32[batch,2]");
}

TEST(PublicApi, AnErrorIsAStandardException) {
  try {
    Model::load("no/such/file.onnx");
    FAIL() << "a missing file was loaded";
  } catch (const std::exception& error) {
    const auto* found = dynamic_cast<const Error*>(&error);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->code(), ExitCode::invalid);
    EXPECT_NE(std::string(error.what()).find("no/such/file.onnx"), std::string::npos);
  }
}

/// An application may hold its model itself: the file's bytes are the file.
TEST(PublicModel, OfBytesIsThatOfTheFile) {
  const std::string path = std::string(GCOMP_SOURCE_DIR) + "/examples/digits/digits.onnx";
  std::string bytes = test::contents(path);
  const Model parsed = Model::parse(std::as_bytes(std::span(bytes)), "held.onnx");
  std::ranges::fill(bytes, '\0');
  EXPECT_EQ(parsed.name(), "held.onnx");
  const test::TemporaryDirectory folder;
  const auto trained = [&](const Model& model, const std::string& out) {
    Trainer trainer(model, {.loss = "cross_entropy", .optimizer = {"sgd"}, .batch = 4, .device = DeviceRequest::cpu});
    Tensor images(trainer.input_type(trainer.input_names()[0]));
    for (std::int64_t i = 0; i < images.elements(); ++i) images.set(i, std::sin(static_cast<double>(i)));
    const Tensor labels = Tensor::of_integers(std::vector<std::int64_t>{1, 2, 3, 4});
    trainer.train_step({{trainer.input_names()[0], images}, {"label", labels}});
    trainer.save(folder / out);
    return test::contents(folder / out);
  };
  EXPECT_TRUE(trained(parsed, "parsed.onnx") == trained(Model::load(path), "loaded.onnx"));
  try {
    Model::parse({}, "empty.onnx");
    ADD_FAILURE() << "nothing is a model";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("'empty.onnx' is not an ONNX model"), std::string::npos);
  }
}

}  // namespace
}  // namespace gcomp
