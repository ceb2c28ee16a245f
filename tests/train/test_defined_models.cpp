// What options and loops ask of models that are written in C++, where these are not what an ONNX file is.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gcomp/gcomp.h"
#include "gcomp/ops.h"
#include "tests/temporary_directory.h"

namespace gcomp {
namespace {

/// A body and two heads; `used` is what the loss looks at.
Model two_heads() {
  return Model::define([](Layers& nn) {
    Var x = nn.tanh(nn.linear("body", nn.input("x", DType::f32, {kBatch, 3}), 4));
    nn.output("used", nn.linear("head", x, 2));
    nn.output("aside", nn.linear("other", x, 2));
  });
}

TrainOptions on_the_cpu(TrainOptions options) {
  options.device = DeviceRequest::cpu;
  if (options.batch == 0) options.batch = 4;
  if (!options.graph.precision) options.graph.precision = DType::f64;
  return options;
}

/// Numbers that differ, [-1, 1].
Tensor numbers(DType dtype, Shape shape) {
  Tensor tensor(dtype, std::move(shape));
  for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, std::sin(static_cast<double>(3 * i + 1)));
  return tensor;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) { return error.what(); }
  return "";
}

#define EXPECT_ERROR(PART, ...)                                        \
  do {                                                                 \
    const std::string said = error_of([&] { __VA_ARGS__; });           \
    EXPECT_NE(said.find(PART), std::string::npos) << "said: " << said; \
  } while (false)

/// PyTorch leaves a parameter without a gradient as it is: neither weight decay nor a moment moves it.
TEST(DefinedModels, ParametersThatTheLossDoesNotReachStay) {
  for (const char* optimizer : {"sgd(lr=0.1, weight_decay=0.5, momentum=0.9)", "adamw(lr=0.1, weight_decay=0.5)"}) {
    Trainer trainer(two_heads(), on_the_cpu({.loss = "mse(used, label)", .optimizer = {optimizer}}));
    EXPECT_EQ(trainer.trained(), (std::vector<std::string>{"body.weight", "body.bias", "head.weight", "head.bias"}));
    const Tensor before = trainer.read("other.weight"), body = trainer.read("body.weight");
    const Tensor x = numbers(DType::f64, {4, 3}), label = numbers(DType::f64, {4, 2});
    for (int step = 0; step < 5; ++step) trainer.train_step({{"x", x}, {"label", label}});
    EXPECT_EQ(trainer.read("other.weight"), before) << optimizer;
    EXPECT_NE(trainer.read("body.weight"), body) << optimizer;
  }
  EXPECT_ERROR("the loss depends on none of", Trainer(Model::define([](Layers& nn) {
                                                        Var x = nn.input("x", DType::f32, {kBatch, 2});
                                                        nn.output("y", x * 2);
                                                        nn.output("z", nn.linear("z", x, 1));
                                                      }),
                                                      on_the_cpu({.loss = "mse(y, label)"})));
}

TEST(DefinedModels, GlobsDecideAsForFiles) {
  const auto trained = [](GraphOptions graph) {
    return Trainer(two_heads(), on_the_cpu({.loss = "mse(used, label)", .graph = std::move(graph)})).trained();
  };
  GraphOptions head;
  head.freeze = {"*"};
  head.train = {"head.*"};
  EXPECT_EQ(trained(head), (std::vector<std::string>{"head.weight", "head.bias"}));
  GraphOptions unknown, tied, variance, alike, few;
  unknown.freeze = {"haed.*"};
  EXPECT_ERROR("--freeze haed.* matches no parameter", trained(unknown));
  alike.freeze = alike.train = {"head.*"};
  EXPECT_ERROR("neither is the more exact", trained(alike));
  tied.tie = {"*"};
  EXPECT_ERROR("--tie: a model that is defined in C++", trained(tied));
  variance.batchnorm_variance = "population";
  EXPECT_ERROR("--batchnorm-variance: a model that is defined in C++", trained(variance));
  few.limits.nodes = 3;
  EXPECT_ERROR("more than ImportLimits::nodes, 3", trained(few));
}

/// An auxiliary head in training alone: what evaluates the loss cannot be made, and is left out of what is saved.
TEST(DefinedModels, AHeadOfTrainingAloneIsSavedWithoutAnEvaluation) {
  const test::TemporaryDirectory folder;
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.linear("body", nn.input("x", DType::f32, {kBatch, 3}), 4);
    nn.output("y", nn.linear("head", x, 2));
    if (nn.training()) nn.output("aux", nn.linear("aux", x, 2));
  });
  Trainer trainer(model, on_the_cpu({.loss = "mse(y, label) + 0.3*mse(aux, label)", .optimizer = {"sgd(lr=0.1)"}}));
  const Tensor x = numbers(DType::f64, {4, 3}), label = numbers(DType::f64, {4, 2});
  trainer.train_step({{"x", x}, {"label", label}});
  trainer.save(folder / "m.gcx");
  Trainer loaded = Trainer::load(folder / "m.gcx", {}, DeviceRequest::cpu);
  EXPECT_EQ(loaded.predict({{"x", x}}), trainer.predict({{"x", x}}));
  EXPECT_EQ(loaded.train_step({{"x", x}, {"label", label}}), trainer.train_step({{"x", x}, {"label", label}}));
  loaded.save(folder / "again.gcx");
  EXPECT_ERROR("holds no program that evaluates", loaded.evaluate({{"x", x}, {"label", label}}));
}

/// The batch is where the definition has it: not in a mask, and behind the layers in an initial state.
TEST(DefinedModels, TheBatchIsTheSizeOfItsOwnDimensions) {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 3, 2});
    Var first = nn.input("first", DType::f32, {1, kBatch, 4});
    Var mask = nn.input("mask", DType::f32, {3, 3});
    x = nn.linear("mix", x, 3) + ops::broadcast(mask, {x.dim(0), 3, 3}, {1, 2});
    nn.output("y", nn.gru("gru", x, 4, {.hidden = first}).output);
  });
  Trainer trainer(model, on_the_cpu({.loss = "mse", .optimizer = {"sgd"}, .batch = 5}));
  const Tensor x = numbers(DType::f64, {5, 3, 2}), first = numbers(DType::f64, {1, 5, 4}), mask = numbers(DType::f64, {3, 3}),
               label = numbers(DType::f64, {5, 3, 4});
  EXPECT_GT(trainer.train_step({{"x", x}, {"first", first}, {"mask", mask}, {"label", label}}), 0);
  EXPECT_EQ(trainer.input_type("first").shape, (Shape{1, 5, 4}));
  EXPECT_EQ(trainer.input_type("mask").shape, (Shape{3, 3}));
  Predictor predictor(model, {.device = DeviceRequest::cpu});
  const Tensor single = x.cast(DType::f32), state = first.cast(DType::f32), added = mask.cast(DType::f32);
  const auto same = predictor.predict({{"x", single}, {"first", state}, {"mask", added}});
  EXPECT_EQ(same[0].second.shape(), (Shape{5, 3, 4}));
}

/// Time steps of recurrent layers lie before the batch within: rows stay apart all the same.
TEST(DefinedModels, RowsOfRecurrentOnesArePredictedInAnyNumber) {
  const test::TemporaryDirectory folder;
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 5, 2});
    x = nn.lstm("lstm", x, 4, {.num_layers = 2, .bidirectional = true}).output;
    nn.output("y", nn.linear("out", nn.gru("gru", x, 3).output, 2));
  });
  Trainer trainer(model, on_the_cpu({.loss = "mse", .optimizer = {"adam"}, .batch = 8}));
  trainer.save(folder / "rnn.gcx");
  const Tensor x = numbers(DType::f64, {7, 5, 2}), label = numbers(DType::f64, {7, 5, 2});
  const Tensor all = trainer.predict({{"x", x}})[0].second;
  EXPECT_EQ(all.shape(), (Shape{7, 5, 2}));
  EXPECT_EQ(trainer.evaluate({{"x", x}, {"label", label}}).rows, 7);
  Predictor saved = Predictor::load(folder / "rnn.gcx", {}, DeviceRequest::cpu);
  for (std::int64_t row = 0; row < 7; ++row) {
    const Tensor one = Tensor::of_bytes({DType::f64, {1, 5, 2}}, x.bytes().subspan(static_cast<std::size_t>(row) * 80, 80));
    const Tensor y = saved.predict({{"x", one}})[0].second;
    EXPECT_EQ(std::memcmp(y.data(), all.data() + row * 80, 80), 0) << row;
  }
}

/// Probabilities in the place of class numbers, and whole numbers for a loss of floats, by the formulas of both.
TEST(DefinedModels, ArraysOfTheLossHaveTheTypesThatAreSaid) {
  const Tensor x = numbers(DType::f64, {4, 3});
  Tensor soft(DType::f64, {4, 2});
  for (std::int64_t i = 0; i < 4; ++i) soft.set(2 * i, 0.25), soft.set(2 * i + 1, 0.75);
  Trainer classes(two_heads(), on_the_cpu({.loss = "cross_entropy(used, label)", .arrays = {{"label", soft.type()}}}));
  const Tensor logits = classes.predict({{"x", x}})[0].second;
  double wanted = 0;
  for (std::int64_t i = 0; i < 4; ++i) {
    const double a = logits.at(2 * i), b = logits.at(2 * i + 1), sum = std::log(std::exp(a) + std::exp(b));
    wanted += (0.25 * (sum - a) + 0.75 * (sum - b)) / 4;
  }
  EXPECT_NEAR(classes.train_step({{"x", x}, {"label", soft}}), wanted, 1e-12);

  const std::vector<std::uint8_t> counts{0, 1, 2, 3, 4, 5, 6, 7};
  Trainer floats(two_heads(), on_the_cpu({.loss = "mse(used, label)", .arrays = {{"label", {DType::u8, {4, 2}}}}}));
  const Tensor y = floats.predict({{"x", x}})[0].second;
  wanted = 0;
  for (std::int64_t i = 0; i < 8; ++i) wanted += std::pow(y.at(i) - static_cast<double>(i), 2) / 8;
  EXPECT_NEAR(floats.train_step({{"x", x}, {"label", {counts, {4, 2}}}}), wanted, 1e-12);
}

TEST(DefinedModels, InputsOfDoublesAreOfAModelOfDoubles) {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f64, {kBatch, 2});
    nn.output("y", nn.linear("fc", x, 3) + ops::broadcast(nn.constant(Tensor::of(DType::f32, {3}, {1, 2, 3})), {x.dim(0), 3}, {1}));
  });
  Trainer trainer(model, on_the_cpu({.loss = "mse"}));
  const Tensor x = numbers(DType::f64, {4, 2}), y = trainer.predict({{"x", x}})[0].second, w = trainer.read("fc.weight"),
               b = trainer.read("fc.bias");
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 3; ++j) {
      const double wanted = x.at(2 * i) * w.at(2 * j) + x.at(2 * i + 1) * w.at(2 * j + 1) + b.at(j) + static_cast<double>(j + 1);
      EXPECT_NEAR(y.at(3 * i + j), wanted, 1e-12);
    }
  TrainOptions single = on_the_cpu({.loss = "mse"});
  single.graph.precision = {};
  single.batch = 4;
  EXPECT_EQ(error_of([&] { Trainer(model, single); }), "");  // floats of a training compute as f32
}

TEST(DefinedModels, NamesAreOfOneThingEach) {
  const auto twice = [](const std::function<void(Layers&, Var)>& write) {
    return error_of([&] {
      Predictor predictor(Model::define([&](Layers& nn) {
                            write(nn, nn.input("x", DType::f32, {kBatch, 2}));
                          }),
                          {.batch = 2, .device = DeviceRequest::cpu});
      const Tensor x = numbers(DType::f32, {2, 2});
      predictor.predict({{"x", x}});
    });
  };
  EXPECT_NE(twice([](Layers& nn, Var x) { nn.output("x", x + 1); }).find("'x' has the name of an input"), std::string::npos);
  EXPECT_NE(twice([](Layers& nn, Var x) {
              nn.output("y", x + nn.input("x", DType::f32, {kBatch, 2}));
            }).find("two inputs named 'x'"),
            std::string::npos);
  EXPECT_NE(
      twice([](Layers& nn, Var x) { nn.output("fc.bias", nn.linear("fc", x, 2)); }).find("has the name of an input or a parameter"),
      std::string::npos);
  EXPECT_NE(twice([](Layers& nn, Var x) { nn.output("y", nn.linear("fc", Var(), 2) + x); }).find("stands for no value"),
            std::string::npos);
  EXPECT_NE(twice([](Layers& nn, Var x) {
              nn.output("y", x + ops::cast(ops::cast(x, DType::i32) * 0.5, DType::f32));
            }).find("0.5 is no number of i32"),
            std::string::npos);
}

TEST(ObjectsOfTheApi, SayWhatTheyCannotDo) {
  Predictor predictor(two_heads(), {.device = DeviceRequest::cpu});
  EXPECT_ERROR("nothing is compiled yet", static_cast<void>(predictor.batch()));
  EXPECT_ERROR("nothing is compiled yet", static_cast<void>(predictor.output_types(3)));
  EXPECT_ERROR("input x: f32[batch,3]: no type of it was given", predictor.prepare({}));
  Predictor moved = std::move(predictor);
  EXPECT_ERROR("moved from", static_cast<void>(predictor.batch()));  // NOLINT: that is what is tested
  Trainer trainer(two_heads(), on_the_cpu({.loss = "mse(used, label)"}));
  EXPECT_ERROR("a learning rate of nan", trainer.set_learning_rate(std::nan("")));
  EXPECT_ERROR("a learning rate of -1", trainer.set_learning_rate(-1));
  EXPECT_ERROR("compiled for a momentum that stays", trainer.set_momentum(0.9));
  TrainOptions turned = on_the_cpu({.loss = "mse(used, label)"});
  turned.optimizer = {.text = "sgd(momentum=0.9)", .turned_momentum = true};
  EXPECT_ERROR("a momentum of 7", Trainer(two_heads(), turned).set_momentum(7));
  const Tensor x = numbers(DType::f64, {4, 3}), label = numbers(DType::f64, {4, 2});
  EXPECT_ERROR("two arrays named 'x'", trainer.train_step({{"x", x}, {"x", x}, {"label", label}}));
  EXPECT_ERROR("unknown metric 'acuracy'", Trainer(two_heads(), on_the_cpu({.loss = "mse(used, label)", .metrics = {"acuracy"}})));
  TrainOptions half = on_the_cpu({.loss = "mse(used, label)"});
  half.graph.precision = DType::f16;
  half.graph.loss_scale = 0.0;
  EXPECT_ERROR("a loss scale of 0", Trainer(two_heads(), half));
  TrainOptions without = on_the_cpu({.loss = "mse(used, label)"});
  without.hooks.disabled = {"nopass"};
  EXPECT_ERROR("no such pass", Trainer(two_heads(), without));
}

/// What owns its elements and is about to vanish is no view's to look at.
static_assert(!std::is_constructible_v<TensorView, std::vector<float>, Shape>);
static_assert(std::is_constructible_v<TensorView, std::vector<float>&, Shape>);
static_assert(std::is_constructible_v<TensorView, const std::vector<float>&, Shape>);
static_assert(std::is_constructible_v<TensorView, std::span<const float>, Shape>);

TEST(DefaultTensor, HoldsNothing) {
  const Tensor tensor;
  EXPECT_EQ(to_string(tensor.type()), "f32[0]");
  EXPECT_EQ(tensor.bytes().size(), static_cast<std::size_t>(tensor.type().bytes()));
}

}  // namespace
}  // namespace gcomp
