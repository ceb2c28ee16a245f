#include "frontend/onnx/input_forms.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "frontend/onnx/tensor_proto.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;

void collect_names(const GraphProto& graph, std::set<std::string>& names) {
  for (const auto& input : graph.input()) names.insert(input.name());
  for (const auto& initializer : graph.initializer()) names.insert(initializer.name());
  for (const NodeProto& node : graph.node()) {
    names.insert(node.name());
    for (const std::string& output : node.output()) names.insert(output);
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) collect_names(attribute.g(), names);
      for (const GraphProto& inner : attribute.graphs()) collect_names(inner, names);
    }
  }
}

/// Values of the outer graph are read within subgraphs by their names, which those cannot define again.
void rename_reads(GraphProto& graph, const std::string& from, const std::string& to) {
  for (NodeProto& node : *graph.mutable_node()) {
    for (std::string& input : *node.mutable_input())
      if (input == from) input = to;
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) rename_reads(*attribute.mutable_g(), from, to);
      for (GraphProto& inner : *attribute.mutable_graphs()) rename_reads(inner, from, to);
    }
  }
}

/// Outputs of subgraphs that are the value itself. The model's own keep their names, and so what was fed.
void rename_inner_outputs(GraphProto& graph, const std::string& from, const std::string& to) {
  for (NodeProto& node : *graph.mutable_node())
    for (auto& attribute : *node.mutable_attribute()) {
      const auto rename = [&](GraphProto& inner) {
        for (auto& output : *inner.mutable_output())
          if (output.name() == from) output.set_name(to);
        rename_inner_outputs(inner, from, to);
      };
      if (attribute.has_g()) rename(*attribute.mutable_g());
      for (GraphProto& inner : *attribute.mutable_graphs()) rename(inner);
    }
}

class FormNodes {
 public:
  FormNodes(ModelProto& model, const InputForm& form) : model_(model), form_(form), value_(form.input) {
    collect_names(*model.mutable_graph(), names_);
  }

  /// The nodes, in their order.
  std::vector<NodeProto> made() {
    ::onnx::TypeProto::Tensor& input = declared_input();
    const auto dtype = dtype_of(input.elem_type());
    check_user(dtype && is_float(*dtype), "input '", form_.input, "' is no tensor of floats");
    const int floats = input.elem_type();
    input.set_elem_type(onnx_type_of(form_.dtype));
    if (form_.dtype != *dtype) {
      NodeProto& cast = add("Cast", "floats");
      ::onnx::AttributeProto& to = *cast.add_attribute();
      to.set_name("to");
      to.set_type(::onnx::AttributeProto::INT);
      to.set_i(floats);
    }
    if (form_.divisor != 1) add("Div", "scaled").add_input(constant("divisor", {form_.divisor}, floats, 0));
    if (!form_.mean.empty()) {
      const std::int64_t behind = places_behind(input);
      add("Sub", "centered").add_input(constant("mean", form_.mean, floats, behind));
      add("Div", "normalized").add_input(constant("std", form_.std, floats, behind));
    }
    return std::move(nodes_);
  }
  const std::string& value() const { return value_; }

 private:
  ::onnx::TypeProto::Tensor& declared_input() {
    for (auto& input : *model_.mutable_graph()->mutable_input())
      if (input.name() == form_.input && input.type().has_tensor_type()) return *input.mutable_type()->mutable_tensor_type();
    throw UserError(concat("the file has no input '", form_.input, "' to put a form before"));
  }

  /// Dimensions behind the axis that mean and std are along.
  std::int64_t places_behind(const ::onnx::TypeProto::Tensor& input) const {
    if (form_.mean.size() == 1) return 0;
    check_user(input.has_shape(), "the file does not say the shape of input '", form_.input, "'");
    const std::int64_t rank = input.shape().dim_size(), axis = form_.axis < 0 ? form_.axis + rank : form_.axis;
    check_user(axis >= 0 && axis < rank, "input '", form_.input, "' has ", rank, " dimensions, its form is along ", form_.axis);
    return rank - 1 - axis;
  }

  std::string fresh(const std::string& part) {
    std::string name = concat(form_.input, "_", part);
    for (int i = 2; !names_.insert(name).second; ++i) name = concat(form_.input, "_", part, "_", i);
    return name;
  }

  NodeProto& add(const char* op, const char* part) {
    NodeProto& node = nodes_.emplace_back();
    node.set_op_type(op);
    node.add_input(value_);
    value_ = fresh(part);
    node.set_name(value_);
    node.add_output(value_);
    return node;
  }

  /// [n, 1, 1, ...], or a scalar where there is one number.
  std::string constant(const char* part, const std::vector<double>& numbers, int type, std::int64_t ones) {
    TensorProto proto;
    proto.set_name(fresh(part));
    proto.set_data_type(type);
    Shape shape;
    if (numbers.size() > 1)
      shape.assign(static_cast<std::size_t>(ones) + 1, 1), shape[0] = static_cast<std::int64_t>(numbers.size());
    proto.mutable_dims()->Add(shape.begin(), shape.end());
    write_tensor(proto, Tensor::of(DType::f64, shape, numbers));
    append_initializer(model_, proto);
    return proto.name();
  }

  ModelProto& model_;
  const InputForm& form_;
  std::string value_;
  std::set<std::string> names_;
  std::vector<NodeProto> nodes_;
};

std::int64_t standard_opset(const ModelProto& model) {
  for (const auto& opset : model.opset_import())
    if (domain_called(opset.domain()).empty()) return opset.version();
  return 0;
}

}  // namespace

void prepend_input_forms(ModelProto& model, std::span<const InputForm> forms) {
  if (forms.empty()) return;
  constexpr std::int64_t kBroadcasting = 7;
  check_user(standard_opset(model) >= kBroadcasting, "the model has opset ", standard_opset(model),
             "; normalisation can be put before a model of opset ", kBroadcasting, " or later");
  GraphProto& graph = *model.mutable_graph();
  std::vector<NodeProto> first;
  for (const InputForm& form : forms) {
    FormNodes nodes(model, form);
    std::vector<NodeProto> made = nodes.made();
    if (nodes.value() != form.input) {
      rename_reads(graph, form.input, nodes.value());
      rename_inner_outputs(graph, form.input, nodes.value());
    }
    first.insert(first.end(), made.begin(), made.end());
  }
  for (NodeProto& node : *graph.mutable_node()) first.push_back(std::move(node));
  graph.clear_node();
  for (NodeProto& node : first) graph.mutable_node()->Add(std::move(node));
}

}  // namespace gcomp::frontend
