// Builds small ONNX models for tests, as bytes.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/import.h"
#include "onnx/onnx.pb.h"

namespace gcomp::tests {

/// {name, value} of a node's attribute, by type.
struct OnnxAttribute {
  ::onnx::AttributeProto proto;
  OnnxAttribute(const char* name, std::int64_t value) { start(name, ::onnx::AttributeProto::INT)->set_i(value); }
  OnnxAttribute(const char* name, int value) : OnnxAttribute(name, std::int64_t{value}) {}
  OnnxAttribute(const char* name, float value) { start(name, ::onnx::AttributeProto::FLOAT)->set_f(value); }
  OnnxAttribute(const char* name, const char* value) { start(name, ::onnx::AttributeProto::STRING)->set_s(value); }
  OnnxAttribute(const char* name, std::vector<std::int64_t> values) {
    *start(name, ::onnx::AttributeProto::INTS)->mutable_ints() = {values.begin(), values.end()};
  }
  OnnxAttribute(const char* name, std::vector<float> values) {
    *start(name, ::onnx::AttributeProto::FLOATS)->mutable_floats() = {values.begin(), values.end()};
  }
  OnnxAttribute(const char* name, const std::vector<std::string>& values) {
    *start(name, ::onnx::AttributeProto::STRINGS)->mutable_strings() = {values.begin(), values.end()};
  }

 private:
  ::onnx::AttributeProto* start(const char* name, ::onnx::AttributeProto::AttributeType type) {
    proto.set_name(name);
    proto.set_type(type);
    return &proto;
  }
};

class ModelBuilder {
 public:
  explicit ModelBuilder(std::int64_t opset = 20) {
    model.set_ir_version(8);
    model.add_opset_import()->set_version(opset);
    model.mutable_graph()->set_name("test");
  }

  /// A dimension is a number, or a symbol.
  ModelBuilder& input(const std::string& name, const std::vector<std::string>& dims, int type = 1) {
    fill(*model.mutable_graph()->add_input(), name, dims, type);
    return *this;
  }
  ModelBuilder& output(const std::string& name, int type = 1) {
    fill(*model.mutable_graph()->add_output(), name, {}, type);
    return *this;
  }

  ModelBuilder& floats(const std::string& name, const std::vector<std::int64_t>& dims, const std::vector<float>& values) {
    auto* tensor = initializer(name, dims, 1);
    for (float value : values) tensor->add_float_data(value);
    return *this;
  }
  ModelBuilder& integers(const std::string& name, const std::vector<std::int64_t>& dims, const std::vector<std::int64_t>& values) {
    auto* tensor = initializer(name, dims, 7);
    for (std::int64_t value : values) tensor->add_int64_data(value);
    return *this;
  }
  ModelBuilder& node(const std::string& op, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                     const std::vector<OnnxAttribute>& attributes = {}) {
    auto* node = model.mutable_graph()->add_node();
    node->set_op_type(op);
    node->set_name("node_" + outputs[0]);
    for (const auto& name : inputs) node->add_input(name);
    for (const auto& name : outputs) node->add_output(name);
    for (const auto& attribute : attributes) *node->add_attribute() = attribute.proto;
    return *this;
  }
  ::onnx::TensorProto* initializer(const std::string& name, const std::vector<std::int64_t>& dims, int type) {
    auto* tensor = model.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(type);
    for (std::int64_t dim : dims) tensor->add_dims(dim);
    return tensor;
  }

  std::string bytes() const { return model.SerializeAsString(); }
  frontend::OnnxFile open() const { return frontend::open_onnx_bytes(bytes(), "test.onnx"); }
  frontend::ImportedModel import(const frontend::ImportOptions& options = {}) const {
    return frontend::import_onnx(open(), options);
  }

  ::onnx::ModelProto model;

 private:
  static void fill(::onnx::ValueInfoProto& info, const std::string& name, const std::vector<std::string>& dims, int type) {
    info.set_name(name);
    auto* tensor = info.mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    for (const auto& dim : dims) {
      auto* proto = tensor->mutable_shape()->add_dim();
      if (!dim.empty() && dim.find_first_not_of("0123456789") == std::string::npos) proto->set_dim_value(std::stoll(dim));
      else if (!dim.empty()) proto->set_dim_param(dim);
    }
  }
};

}  // namespace gcomp::tests
