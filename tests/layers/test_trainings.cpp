// Networks of the layers, trained 50 steps from PyTorch's recorded start on its data, against its losses; in f64.
#include <gtest/gtest.h>

#include <set>

#include "gcomp/gcomp.h"
#include "gcomp/ops.h"
#include "tests/layers/record.h"

namespace gcomp::test {
namespace {

constexpr std::int64_t kBatchRows = 4, kSteps = 50;
constexpr double kClose = 1e-9;

void block(Layers& nn) {
  Var x = nn.embedding("embedding", nn.input("x", DType::i64, {kBatch, 6}), 11, 8);
  Var h = x + ops::broadcast(nn.parameter("position", {6, 8}, nn.normal("position", 48)), x.shape());
  Var n = nn.layer_norm("norm1", h);
  h = h + nn.multihead_attention("attention", n, n, n, 2, {.causal = true});
  n = nn.gelu(nn.linear("up", nn.rms_norm("norm2", h), 16), GeluForm::tanh);
  nn.output("logits", nn.linear("head", h + nn.linear("down", n, 8), 11));
}

void classifier(Layers& nn) {
  Var x = nn.embedding("embedding", nn.input("x", DType::i64, {kBatch, 6}), 9, 5, {.padding_idx = 0});
  Var last = nn.gru("gru", nn.lstm("lstm", x, 4, {.bidirectional = true}).output, 6).hidden;
  nn.output("logits", nn.linear("head", ops::reshape(last, {last.dim(1), 6}), 3));
}

void images(Layers& nn) {
  Var x = nn.pad(nn.input("x", DType::f32, {kBatch, 2, 6, 6}), {1, 1, 1, 1}, {.mode = PadMode::reflect});
  Var h = nn.conv2d("down", x, 4, 3, {.stride = 2, .padding = 1, .bias = false});
  h = nn.conv2d("middle", nn.silu(nn.batch_norm("norm", h, {.momentum = 0.2})), 4, 3, {.padding = 1, .groups = 2});
  h = nn.conv_transpose2d("up", nn.hardswish(nn.group_norm("group", h, 2)), 3, 4, {.stride = 2, .padding = 1});
  h = nn.interpolate(h, {.size = 7, .mode = InterpolateMode::linear, .align_corners = true});
  h = nn.adaptive_avg_pool2d(nn.prelu("slope", h, {.num_parameters = 3}), 2);
  nn.output("logits", nn.linear("head", nn.flatten(h), 3));
}

struct Network {
  const char* name;
  void (*write)(Layers&);
};

class RecordedNetworks : public testing::TestWithParam<Network> {};

/// Rows from `first` on, of any dtype.
template <class T>
TensorView rows_of(const Tensor& all, std::int64_t first) {
  Shape shape = all.shape();
  const auto each = static_cast<std::size_t>(all.elements() / shape[0]);
  shape[0] = kBatchRows;
  return {all.as<T>().subspan(static_cast<std::size_t>(first) * each, kBatchRows * each), shape};
}

/// The losses of so many steps, and the names of what trained.
struct Trained {
  std::vector<double> losses;
  std::set<std::string> names;
};
Trained train(const Network& network, const Arrays& record, DType precision, std::int64_t steps) {
  TrainOptions options;
  options.optimizer = {"adamw"};
  options.learning_rate = 0.01;
  options.batch = kBatchRows;
  options.graph.precision = precision;
  if (precision == DType::f16) options.graph.loss_scale = 128;
  options.device = test_device();
  Trainer trainer = compile(Model::define(network.write), options);
  for (const auto& [name, value] : arrays_under(record, "start/")) {
    const std::vector<double> values = value.to_doubles();
    trainer.write(name, {values, value.shape()});
  }
  Trained result;
  for (const std::string& name : trainer.trained()) result.names.insert(name);
  const Tensor &x = record.at("x"), &label = record.at("label");
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t first = step * kBatchRows;
    const TensorView rows = x.dtype() == DType::i64 ? rows_of<std::int64_t>(x, first) : rows_of<float>(x, first);
    result.losses.push_back(trainer.train_step({{"x", rows}, {"label", rows_of<std::int64_t>(label, first)}}));
  }
  return result;
}

Arrays record_of(const Network& network) { return arrays_under(recorded_layers("trainings.npz"), std::string(network.name) + "/"); }

TEST_P(RecordedNetworks, TrainAsInPyTorch) {
  const Arrays record = record_of(GetParam());
  const Trained found = train(GetParam(), record, DType::f64, kSteps);
  std::set<std::string> recorded;
  for (const auto& [name, value] : arrays_under(record, "start/"))
    if (name.find("running") == std::string::npos) recorded.insert(name);
  EXPECT_EQ(found.names, recorded);
  for (std::size_t step = 0; step < found.losses.size(); ++step)
    ASSERT_NEAR(found.losses[step], record.at("losses").at(static_cast<std::int64_t>(step)), kClose) << "step " << step + 1;
}

TEST_P(RecordedNetworks, TrainInEveryPrecision) {
  const Arrays record = record_of(GetParam());
  for (const auto& [precision, bound] : {std::pair{DType::f32, 1e-5}, {DType::bf16, 0x1p-5}, {DType::f16, 0x1p-8}}) {
    const Trained found = train(GetParam(), record, precision, 10);
    for (std::size_t step = 0; step < found.losses.size(); ++step)
      EXPECT_NEAR(found.losses[step], record.at("losses").at(static_cast<std::int64_t>(step)), bound)
          << "precision " << static_cast<int>(precision) << ", step " << step + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, RecordedNetworks,
                         testing::Values(Network{"block", block}, Network{"classifier", classifier}, Network{"images", images}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gcomp::test
