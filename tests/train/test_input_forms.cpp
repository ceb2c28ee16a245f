// Inputs that are fed as bytes: the program's floats are the host's, and the forms stay with the model.
#include <gtest/gtest.h>

#include <fstream>

#include "gcomp/driver/convert_model.h"
#include "gcomp/gcomp.h"
#include "gcomp/loaded_model.h"
#include "tests/drive/fed_bytes.h"
#include "tests/drive/recorded_model.h"
#include "tests/temporary_directory.h"

namespace gcomp::test {
namespace {

const InputForm kMnistForm{.input = "image", .mean = {0.1307}, .std = {0.3081}};
const InputForm kImagenetLast{.input = "image", .mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}, .axis = -1};

TrainOptions options_of(const RecordedModel& model) {
  const Recipe recipe = recipe_of(model);
  TrainOptions options;
  options.loss = recipe.loss;
  options.optimizer = {recipe.optimizer};
  options.batch = recipe.batch;
  options.device = DeviceRequest::cpu;
  return options;
}

Tensor first_bytes_rows(const Tensor& array, std::int64_t rows) {
  Shape shape = array.shape();
  shape[0] = rows;
  Tensor made(array.dtype(), shape);
  std::copy_n(array.bytes().begin(), made.bytes().size(), made.bytes().begin());
  return made;
}

Tensor labels_of(const RecordedModel& model) {
  return first_bytes_rows(load_arrays(model.data()).at("label"), recipe_of(model).batch);
}

TEST(InputForms, FloatsOfTheProgramAreTheHosts) {
  const RecordedModel cnn = recorded_model("mnist_cnn"), mlp = recorded_model("mlp");
  const Tensor images = some_bytes({32, 1, 28, 28});
  for (const std::int64_t shards : {1, 2}) {
    TrainOptions options = options_of(cnn);
    options.micro_batches = shards;
    EXPECT_EQ(difference_from_host(Model::load(cnn.model()), options, kMnistForm, images, labels_of(cnn)), "") << shards;
  }
  EXPECT_EQ(difference_from_host(Model::load(cnn.model()), options_of(cnn), {.input = "image"}, images, labels_of(cnn)), "");

  const Model plain = Model::load(mlp.model());
  const std::string input = plain.inputs()[0].name;
  const std::int64_t columns = plain.inputs()[0].dimensions[1].size;
  InputForm form{.input = input, .divisor = 1, .mean = {}, .std = {}, .axis = -1};
  for (std::int64_t i = 0; i < columns; ++i) {
    form.mean.push_back(100 + static_cast<double>(i) / 3);
    form.std.push_back(10 + static_cast<double>(i) / 7);
  }
  EXPECT_EQ(difference_from_host(plain, options_of(mlp), form, some_bytes({recipe_of(mlp).batch, columns}), labels_of(mlp)), "");
}

TEST(InputForms, ChannelsMayComeLast) {
  TrainOptions options;
  options.batch = 8;
  options.optimizer = {"adam"};
  options.device = DeviceRequest::cpu;
  const Tensor label = Tensor::of(DType::i64, {8}, {0, 1, 2, 3, 3, 2, 1, 0});
  EXPECT_EQ(difference_from_host(channels_last_model(), options, kImagenetLast, some_bytes({8, 6, 5, 3}), label), "");
}

TEST(InputForms, ALossThatLooksAtTheInputSeesFloats) {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 6});
    nn.output("y", nn.linear("fc", nn.relu(nn.linear("narrow", x, 3)), 6));
  });
  TrainOptions options;
  options.loss = "mse(y, x)";
  options.batch = 8;
  options.device = DeviceRequest::cpu;
  TrainOptions formed = options;
  const InputForm form{.input = "x", .mean = {0.5}, .std = {0.25}};
  formed.graph.input_forms = {form};
  Trainer bytes(model, formed), floats(model, options);
  const Tensor x = some_bytes({8, 6}), host = floats_of(x, form);
  EXPECT_EQ(bytes.train_step({{"x", x}}), floats.train_step({{"x", host}}));
  EXPECT_EQ(bytes.evaluate({{"x", x}}).loss, floats.evaluate({{"x", host}}).loss);
}

TEST(InputForms, StayWithTheModel) {
  const TemporaryDirectory folder;
  const RecordedModel cnn = recorded_model("mnist_cnn");
  const Tensor images = some_bytes({32, 1, 28, 28}), label = labels_of(cnn);
  const Batch batch{{"image", images}, {"label", label}};
  TrainOptions options = options_of(cnn);
  options.graph.input_forms = {kMnistForm};
  options.graph.preprocessing = "resize(size=[28]), center_crop(size=[28]), normalize(preset=mnist)";
  Trainer trainer(Model::load(cnn.model()), options);
  trainer.train_step(batch);
  const std::string artifact = (folder.path() / "t.gcx").string();
  trainer.save(artifact);

  Trainer loaded = Trainer::load(artifact);
  EXPECT_EQ(loaded.input_forms(), options.graph.input_forms);
  EXPECT_EQ(loaded.preprocessing(), options.graph.preprocessing);
  LoadedModel model{Path(artifact)};
  EXPECT_EQ(model.input_forms(), options.graph.input_forms);
  EXPECT_EQ(model.preprocessing(), options.graph.preprocessing);
  EXPECT_EQ(Predictor::load(artifact).input_forms(), options.graph.input_forms);
  const std::vector<NamedTensor> wanted = trainer.predict({{"image", images}});
  EXPECT_EQ(model.predict({{"image", images}}), wanted);
  EXPECT_EQ(trainer.train_step(batch), loaded.train_step(batch));
  EXPECT_EQ(trainer.weights_digest(), loaded.weights_digest());

  // As .onnx: with the form in front it takes bytes, without it the floats that the host makes.
  const auto predictions = [&](const std::string& path, const Tensor& fed) {
    PredictOptions cpu;
    cpu.device = DeviceRequest::cpu;
    return Predictor(Model::load(path), cpu).predict({{"image", fed}});
  };
  const std::string with = (folder.path() / "with.onnx").string(), without = (folder.path() / "without.onnx").string();
  loaded.save(without);
  loaded.set_export_preprocessing(true);
  loaded.save(with);
  EXPECT_EQ(Model::load(with).inputs()[0].dtype, DType::u8);
  EXPECT_EQ(predictions(with, images), predictions(without, floats_of(images, kMnistForm)));
  loaded.save(artifact);
  const std::filesystem::path converted = folder.path() / "converted.onnx";
  driver::convert_model(artifact, converted, {.model = {}, .preprocessing = true});
  EXPECT_EQ(predictions(converted.string(), images), predictions(with, images));
}

TEST(InputForms, WhatDoesNotFitIsRefused) {
  const auto refusal = [](const InputForm& form) -> std::string {
    TrainOptions options;
    options.batch = 8;
    options.device = DeviceRequest::cpu;
    options.graph.input_forms = {form};
    try {
      Trainer(channels_last_model(), options);
    } catch (const UserError& error) { return error.what(); }
    return "accepted";
  };
  const auto expect = [&](const InputForm& form, const char* part) {
    EXPECT_NE(refusal(form).find(part), std::string::npos) << refusal(form);
  };
  expect({.input = "imgae"}, "did you mean 'image'?");
  expect({.input = "image", .mean = {1, 2, 3}, .std = {1, 2, 3}, .axis = 1}, "along its dimension 1");
  expect({.input = "image", .mean = {1, 2, 3}, .std = {1}}, "3 means and 1 deviations");
  expect({.input = "image", .mean = {1}, .std = {0}}, "mean and std are");
  expect({.input = "image", .divisor = 0}, "the divisor");
}

}  // namespace
}  // namespace gcomp::test
