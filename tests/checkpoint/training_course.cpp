#include "tests/checkpoint/training_course.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include "gcomp/initialize.h"
#include "onnx/onnx.pb.h"
#include "runtime/files/npz.h"
#include "tests/device_options.h"

namespace gcomp::test {
namespace {

constexpr std::int64_t kRows = 46, kBatch = 8, kInputs = 6, kClasses = 3;
constexpr std::uint64_t kSeed = 11;

double drawn(int seed, int i) { return std::sin(0.7 * (i + 1) + 1.3 * seed) * 0.5; }

void add_course_initializer(onnx::GraphProto& graph, const std::string& name, const std::vector<std::int64_t>& shape, int seed,
                            std::optional<float> value = {}) {
  onnx::TensorProto& tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  int count = 1;
  for (const std::int64_t dim : shape) {
    tensor.add_dims(dim);
    count *= static_cast<int>(dim);
  }
  for (int i = 0; i < count; ++i) tensor.add_float_data(value ? *value : static_cast<float>(drawn(seed, i)));
}

void set_course_type(onnx::ValueInfoProto& value, const std::string& name, std::int64_t columns) {
  value.set_name(name);
  auto& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(onnx::TensorProto::FLOAT);
  tensor.mutable_shape()->add_dim()->set_dim_param("batch");
  tensor.mutable_shape()->add_dim()->set_dim_value(columns);
}

onnx::NodeProto& add_course_node(onnx::GraphProto& graph, const std::string& op, const std::vector<std::string>& inputs,
                                 const std::string& output) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  node.set_name(output);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

TrainOptions train_options_of(const CourseOptions& options) {
  TrainOptions train;
  train.loss = "cross_entropy";
  train.optimizer.text = options.optimizer;
  train.batch = kBatch;
  train.clip_norm = 1.0;
  train.ema = 0.9;
  train.device = DeviceRequest::cpu;
  train.device_options.threads = 1;
  train.device_options.instruction_set = asked_instruction_set();
  train.graph.precision = options.precision;
  train.graph.seed = static_cast<std::int64_t>(kSeed);
  train.graph.freeze = options.freeze;
  return train;
}

Model course_model(const CourseOptions& options) {
  const Model model = Model::load(options.model);
  return options.weights.empty() ? model : with_weights(model, options.weights);
}

Tensor course_x() {
  Tensor x(DType::f32, {kRows, kInputs});
  for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, 3 * drawn(5, static_cast<int>(i)));
  return x;
}

Tensor course_label() {
  Tensor label(DType::i64, {kRows});
  for (std::int64_t i = 0; i < kRows; ++i) label.set(i, static_cast<double>(i * 7 % kClasses));
  return label;
}

}  // namespace

void write_course_data(const std::filesystem::path& path) {
  const std::vector<NamedTensor> arrays{{"x", course_x()}, {"label", course_label()}};
  runtime::write_npz(path, arrays);
}

void write_course_model(const std::filesystem::path& path, int features, int seed, CourseForm form) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("course");
  set_course_type(*graph.add_input(), "x", kInputs);
  set_course_type(*graph.add_output(), "y", kClasses);
  add_course_initializer(graph, "fc1.weight", {kInputs, features}, seed);
  add_course_initializer(graph, "fc1.bias", {features}, seed + 1);
  add_course_initializer(graph, "bn.weight", {features}, seed, 1.f);
  add_course_initializer(graph, "bn.bias", {features}, seed, 0.f);
  add_course_initializer(graph, "bn.running_mean", {features}, seed, 0.f);
  add_course_initializer(graph, "bn.running_var", {features}, seed, 1.f);
  add_course_initializer(graph, "fc2.weight", {features, kClasses}, seed + 2);
  add_course_initializer(graph, "fc2.bias", {kClasses}, seed + 3);
  add_course_node(graph, "Gemm", {"x", "fc1.weight", "fc1.bias"}, "h1");
  add_course_node(graph, "BatchNormalization", {"h1", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}, "h2");
  add_course_node(graph, "Relu", {"h2"}, "h3");
  add_course_node(graph, "Dropout", {"h3"}, "h4");
  const bool negated = form == CourseForm::negated_head;
  if (negated) add_course_node(graph, "Neg", {"fc2.weight"}, "minus");
  add_course_node(graph, "Gemm", {"h4", negated ? "minus" : "fc2.weight", "fc2.bias"}, "y");
  std::ofstream out(path, std::ios::binary);
  model.SerializeToOstream(&out);
}

Course::Course(const CourseOptions& options)
    : options_(options),
      trainer_(compile(course_model(options), train_options_of(options))),
      plan_(kRows, kBatch, kSeed, runtime::RowOrder::shuffled),
      schedule_(options.schedule),
      x_(course_x()),
      label_(course_label()) {
  schedule_.bind({trainer_.learning_rate(), options.steps, 2});
  constexpr double kOverflowing = 1 << 21;  // so that the first steps are skipped, and the scale falls
  const Tensor scale = Tensor::scalar(DType::f32, kOverflowing);
  if (options.precision == DType::f16) trainer_.write("loss_scale", scale);
}

void Course::step() {
  Tensor x(DType::f32, {kBatch, kInputs}), label(DType::i64, {kBatch});
  std::int64_t at = 0;
  for (const std::int64_t row : plan_.rows_of(done_)) {
    for (std::int64_t i = 0; i < kInputs; ++i) x.set(at * kInputs + i, x_.at(row * kInputs + i));
    label.set(at++, label_.at(row));
  }
  trainer_.set_learning_rate(schedule_.rate(done_));
  trainer_.train_step({{"x", x}, {"label", label}});
  ++done_;
}

driver::RunState Course::state() const {
  return {.step = done_,
          .position = {.seed = kSeed, .shuffled = true, .rows = kRows, .steps = done_},
          .schedule = R"({"name":"cosine"})",
          .loop = "null",
          .config = concat(R"({"optimizer":")", options_.optimizer, R"(","steps":)", options_.steps, "}")};
}

void Course::restore(const driver::FoundCheckpoint& found) {
  const driver::RunState run = driver::restore(trainer_, found);
  done_ = run.step;
}

std::vector<NamedTensor> states_of(const Trainer& trainer) {
  std::vector<NamedTensor> states;
  for (const std::string& name : trainer.states()) states.emplace_back(name, trainer.read(name));
  return states;
}

}  // namespace gcomp::test
