#include "frontend/onnx/forms.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontend/onnx/tensor_proto.h"

namespace gcomp::frontend {
namespace {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using Nodes = ::google::protobuf::RepeatedPtrField<NodeProto>;
using Names = std::unordered_set<std::string>;

constexpr int kTrainingMode = 2;                         // Dropout's input
constexpr int kBatchNormInputs = 5, kBatchNormMean = 3;  // the variance follows the mean

bool is_set(const NodeProto& node, std::string_view attribute) {
  for (const AttributeProto& a : node.attribute())
    if (a.name() == attribute) return a.i() != 0;
  return false;
}

void remove_attribute(NodeProto& node, std::string_view name) {
  for (int i = node.attribute_size(); i-- > 0;)
    if (node.attribute(i).name() == name) node.mutable_attribute()->DeleteSubrange(i, 1);
}

void set_flag(NodeProto& node, const std::string& name) {
  remove_attribute(node, name);
  AttributeProto& flag = *node.add_attribute();
  flag.set_name(name);
  flag.set_type(AttributeProto::INT);
  flag.set_i(1);
}

std::int64_t opset_of(const ::google::protobuf::RepeatedPtrField<::onnx::OperatorSetIdProto>& opsets) {
  for (const auto& opset : opsets)
    if (opset.domain().empty() || opset.domain() == "ai.onnx") return opset.version();
  return 0;
}

/// Calls `visit` with the nodes of each graph that the attributes of a node hold.
template <class Node, class Visit>
void for_each_subgraph(Node& node, const Visit& visit) {
  for (auto& attribute : *node.mutable_attribute()) {
    if (attribute.has_g()) visit(*attribute.mutable_g());
    for (auto& graph : *attribute.mutable_graphs()) visit(graph);
  }
}

void note_reads(Nodes& nodes, Names& reads) {
  for (NodeProto& node : nodes) {
    reads.insert(node.input().begin(), node.input().end());
    for_each_subgraph(node, [&](GraphProto& graph) {
      for (const auto& output : graph.output()) reads.insert(output.name());
      note_reads(*graph.mutable_node(), reads);
    });
  }
}

bool is_false(const ::onnx::TensorProto& proto) {
  if (proto.data_type() != ::onnx::TensorProto::BOOL || proto.data_location() == ::onnx::TensorProto::EXTERNAL) return false;
  const Tensor value = read_tensor(proto, "");
  return value.elements() == 1 && value.at(0) == 0;
}

/// Constants and initializers of the model's own graph that hold one `false`.
Names false_values(const GraphProto& graph) {
  Names names;
  for (const auto& initializer : graph.initializer())
    if (is_false(initializer)) names.insert(initializer.name());
  for (const NodeProto& node : graph.node())
    if (is_standard(node, "Constant") && node.attribute_size() == 1 && node.attribute(0).has_t() && is_false(node.attribute(0).t()))
      names.insert(node.output(0));
  return names;
}

/// Rewrites the nodes of one graph or function and of what they hold.
class InferenceForm {
 public:
  InferenceForm(std::int64_t opset, Names reads, Names false_values)
      : opset_(opset), reads_(std::move(reads)), false_values_(std::move(false_values)) {}

  void rewrite(Nodes& nodes) {
    Nodes rewritten;
    for (NodeProto& node : nodes) {
      for_each_subgraph(node, [&](GraphProto& graph) { rewrite(*graph.mutable_node()); });
      std::vector<NodeProto> statistics;
      const bool norm = is_standard(node, "BatchNormalization") && node.input_size() == kBatchNormInputs && node.output_size() > 0;
      if (norm && batch_norm_trains(node, opset_)) statistics = stop_batch_norm(node);
      if (is_standard(node, "Dropout")) stop_dropout(node);
      *rewritten.Add() = std::move(node);
      for (NodeProto& copy : statistics) *rewritten.Add() = std::move(copy);
    }
    nodes.Swap(&rewritten);
  }

  /// First outputs of the nodes whose running variance was the population's.
  const std::vector<std::string>& population() const { return population_; }
  /// What rewritten nodes read or made, and no longer do.
  const Names& dropped() const { return dropped_; }

 private:
  /// Gives the nodes that make the outputs which the node no longer has.
  std::vector<NodeProto> stop_batch_norm(NodeProto& node) {
    std::vector<NodeProto> copies;
    for (int i = 1; i < node.output_size(); ++i) {
      dropped_.insert(node.output(i));
      if (reads_.count(node.output(i)) == 0 || node.output(i).empty()) continue;
      NodeProto& copy = copies.emplace_back();
      copy.set_op_type("Identity");
      copy.add_input(node.input(kBatchNormMean + (i - 1) % 2));
      copy.add_output(node.output(i));
    }
    if (opset_ >= 14) population_.push_back(node.output(0));
    while (node.output_size() > 1) node.mutable_output()->RemoveLast();
    remove_attribute(node, "training_mode");
    if (opset_ < 7) set_flag(node, "is_test");
    return copies;
  }

  void stop_dropout(NodeProto& node) {
    if (opset_ < 7 && !is_set(node, "is_test")) set_flag(node, "is_test");
    if (opset_ < 12 || node.input_size() <= kTrainingMode || false_values_.count(node.input(kTrainingMode)) > 0) return;
    dropped_.insert(node.input(kTrainingMode));
    do node.mutable_input()->RemoveLast();
    while (node.input_size() > 1 && node.input(node.input_size() - 1).empty());
  }

  std::int64_t opset_;
  Names reads_, false_values_;
  std::vector<std::string> population_;
  Names dropped_;
};

/// Constants, initializers and type notes that nothing needs since `dropped` lost its readers or its node.
void remove_unread(GraphProto& graph, const Names& dropped) {
  Names needed;
  for (const auto& value : graph.input()) needed.insert(value.name());
  for (const auto& value : graph.output()) needed.insert(value.name());
  note_reads(*graph.mutable_node(), needed);
  const auto goes = [&](const std::string& name) { return dropped.count(name) > 0 && needed.count(name) == 0; };
  const auto erase = [](auto& field, const auto& unwanted) {
    for (int i = field.size(); i-- > 0;)
      if (unwanted(field.Get(i))) field.DeleteSubrange(i, 1);
  };
  erase(*graph.mutable_node(), [&](const NodeProto& node) { return is_standard(node, "Constant") && goes(node.output(0)); });
  const auto named = [&](const auto& value) { return goes(value.name()); };
  erase(*graph.mutable_initializer(), named);
  erase(*graph.mutable_value_info(), named);
}

std::string* find_metadata(ModelProto& model, std::string_view key) {
  for (auto& entry : *model.mutable_metadata_props())
    if (entry.key() == key) return entry.mutable_value();
  return nullptr;
}

void note_population(ModelProto& model, const std::vector<std::string>& outputs) {
  for (const std::string& output : outputs) {
    std::string* value = find_metadata(model, kPopulationVariance);
    if (!value) {
      auto& entry = *model.add_metadata_props();
      entry.set_key(kPopulationVariance);
      value = entry.mutable_value();
    }
    *value += value->empty() ? output : "\n" + output;
  }
}

}  // namespace

bool is_standard(const NodeProto& node, std::string_view op) {
  return node.op_type() == op && (node.domain().empty() || node.domain() == "ai.onnx");
}

bool batch_norm_trains(const NodeProto& node, std::int64_t opset) {
  if (opset >= 14) return is_set(node, "training_mode");
  if (opset < 7) return !is_set(node, "is_test");
  return (node.output_size() > 1 && !node.output(1).empty()) || (node.output_size() > 2 && !node.output(2).empty());
}

bool keeps_population_variance(const ModelProto& model, const NodeProto& node) {
  for (const auto& entry : model.metadata_props()) {
    if (entry.key() != kPopulationVariance) continue;
    const std::string lines = "\n" + entry.value() + "\n";
    return lines.find("\n" + node.output(0) + "\n") != lines.npos;
  }
  return false;
}

void write_inference_form(ModelProto& model) {
  GraphProto& graph = *model.mutable_graph();
  Names reads;
  for (const auto& output : graph.output()) reads.insert(output.name());
  note_reads(*graph.mutable_node(), reads);
  InferenceForm form(opset_of(model.opset_import()), std::move(reads), false_values(graph));
  form.rewrite(*graph.mutable_node());
  remove_unread(graph, form.dropped());
  note_population(model, form.population());
  for (auto& function : *model.mutable_functions()) {
    Names inside(function.output().begin(), function.output().end());
    note_reads(*function.mutable_node(), inside);
    InferenceForm form_inside(opset_of(function.opset_import()), std::move(inside), {});
    form_inside.rewrite(*function.mutable_node());
    note_population(model, form_inside.population());
  }
}

}  // namespace gcomp::frontend
