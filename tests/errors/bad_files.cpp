#include "tests/errors/bad_files.h"

#include <fstream>

#include "runtime/files/npz.h"

namespace gcomp::test {
namespace {

void add_initializer(onnx::GraphProto& graph, const std::string& name, const std::vector<std::int64_t>& shape,
                     const std::vector<float>& values) {
  onnx::TensorProto& tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  for (const std::int64_t size : shape) tensor.add_dims(size);
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
}

void set_type(onnx::ValueInfoProto& value, const std::string& name, std::int64_t columns) {
  value.set_name(name);
  auto& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_param("batch");
  type.mutable_shape()->add_dim()->set_dim_value(columns);
}

}  // namespace

void write_linear_model(const std::filesystem::path& path, const std::function<void(onnx::ModelProto&)>& change) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("linear");
  set_type(*graph.add_input(), "x", 3);
  set_type(*graph.add_output(), "y", 2);
  add_initializer(graph, "w", {3, 2}, {0.1f, -0.2f, 0.3f, 0.4f, -0.5f, 0.6f});
  add_initializer(graph, "b", {2}, {0.f, 0.1f});
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type("Gemm");
  node.set_name("fc");
  for (const char* input : {"x", "w", "b"}) node.add_input(input);
  node.add_output("y");
  if (change) change(model);
  std::ofstream out(path, std::ios::binary);
  model.SerializeToOstream(&out);
}

void append_node(onnx::ModelProto& model, const std::string& op, const std::string& domain) {
  onnx::GraphProto& graph = *model.mutable_graph();
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  node.set_domain(domain);
  node.set_name("last");
  node.add_input("y");
  node.add_output("z");
  graph.mutable_output(0)->set_name("z");
}

void write_linear_data(const std::filesystem::path& path) {
  Tensor x(DType::f32, {8, 3}), label(DType::i64, {8}), target(DType::f32, {8, 2});
  for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, 0.25 * static_cast<double>(i % 7) - 0.5);
  for (std::int64_t i = 0; i < label.elements(); ++i) label.set(i, static_cast<double>(i % 2));
  for (std::int64_t i = 0; i < target.elements(); ++i) target.set(i, 0.1 * static_cast<double>(i));
  const std::vector<runtime::NamedTensor> arrays{{"x", x}, {"label", label}, {"target", target}};
  runtime::write_npz(path, arrays);
}

}  // namespace gcomp::test
