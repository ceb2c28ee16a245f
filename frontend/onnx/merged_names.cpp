#include "frontend/onnx/merged_names.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "frontend/onnx/forms.h"
#include "frontend/onnx/tensor_proto.h"
#include "frontend/onnx/verdict.h"

namespace gcomp::frontend {
namespace {

using ::onnx::GraphProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;

/// Bytes that all restored initializers may have: a small file may name one of its initializers very often.
constexpr std::size_t kMostRestored = std::size_t{1} << 30;
/// Initializers of at most so many bytes are compared to tell whether the exporter merged equal values.
constexpr std::size_t kMostCompared = std::size_t{1} << 16;

/// "4.running_var", "blocks.0.ln.weight", or a name of a module that is exported by itself; not "input.3", which a trace makes up.
bool is_name_in_module(std::string_view name) {
  constexpr std::array<std::string_view, 4> kOfOneModule{"weight", "bias", "running_mean", "running_var"};
  if (std::find(kOfOneModule.begin(), kOfOneModule.end(), name) != kOfOneModule.end()) return true;
  return has_module_path(name) && !name.starts_with("input.") && name.find_first_of("/:") == std::string_view::npos;
}

class Restoring {
 public:
  Restoring(::onnx::ModelProto& model, std::int64_t opset) : model_(model), graph_(*model.mutable_graph()), opset_(opset) {}

  std::map<std::string, std::string> run() {
    for (int i = 0; i < graph_.initializer_size(); ++i) places_.emplace(graph_.initializer(i).name(), i);
    count_reads(graph_);
    scoped_ = std::any_of(graph_.node().begin(), graph_.node().end(), [](const NodeProto& n) { return n.name().starts_with('/'); });
    if (std::none_of(graph_.node().begin(), graph_.node().end(), [&](const NodeProto& n) { return initializer_of(n); })) return {};
    const bool apart = merges_equal_values();
    std::vector<int> gone;
    for (int i = 0; i < graph_.node_size(); ++i) {
      read_shared(*graph_.mutable_node(i));
      const NodeProto& node = graph_.node(i);
      if (may_restore(node) && (apart ? restore(node) : share(node))) gone.push_back(i);
      else if (const std::string* initializer = initializer_of(node)) same_.emplace(node.output(0), *initializer);
      if (is_standard(node, "BatchNormalization")) read_through(*graph_.mutable_node(i));
    }
    remove_nodes(gone);
    return std::move(merged_);
  }

 private:
  void count_reads(const GraphProto& graph) {
    for (const auto& output : graph.output()) outputs_.insert(output.name());
    for (const NodeProto& node : graph.node()) {
      for (const std::string& input : node.input()) ++reads_[input];
      for (const auto& attribute : node.attribute())
        if (attribute.has_g()) count_reads(attribute.g());
    }
  }

  /// The initializer whose value an Identity has, or null for any other node.
  const std::string* initializer_of(const NodeProto& node) const {
    if (!is_standard(node, "Identity") || node.input_size() != 1 || node.output_size() != 1) return nullptr;
    if (auto same = same_.find(node.input(0)); same != same_.end()) return &same->second;
    return places_.contains(node.input(0)) ? &node.input(0) : nullptr;
  }

  /// An Identity under a parameter's name of a parameter that others read too. Where nodes have scopes, "/fc/Gemm", one without
  /// was made by the merging, and what it has no name for was folded: the transposed matrix of a layer.
  bool may_restore(const NodeProto& node) const {
    const std::string* initializer = initializer_of(node);
    if (!initializer || *initializer != node.input(0) || reads_.at(*initializer) < 2) return false;
    if (outputs_.contains(node.output(0)) || node.name().starts_with('/')) return false;
    if (!scoped_ && (!is_name_in_module(node.output(0)) || !is_name_in_module(*initializer))) return false;
    const auto dtype = dtype_of(graph_.initializer(places_.at(*initializer)).data_type());
    return dtype && is_float(*dtype);
  }

  /// In training form only what shares its memory is merged, which is one parameter: that form has norms that train, or
  /// initializers of equal value side by side.
  bool merges_equal_values() const {
    const auto trains = [&](const NodeProto& n) { return is_standard(n, "BatchNormalization") && batch_norm_trains(n, opset_); };
    if (std::any_of(graph_.node().begin(), graph_.node().end(), trains)) return false;
    std::set<std::string> seen;
    for (const TensorProto& proto : graph_.initializer()) {
      const auto dtype = dtype_of(proto.data_type());
      if (!dtype || !is_float(*dtype) || proto.data_location() == TensorProto::EXTERNAL || !is_name_in_module(proto.name()))
        continue;
      if (proto.ByteSizeLong() > kMostCompared) continue;
      TensorProto nameless = proto;
      nameless.clear_name();
      nameless.clear_doc_string();
      if (!seen.insert(nameless.SerializeAsString()).second) return false;
    }
    return true;
  }

  bool restore(const NodeProto& node) {
    const std::string& initializer = node.input(0);
    TensorProto own = graph_.initializer(places_.at(initializer));
    restored_bytes_ += own.ByteSizeLong() + bytes_outside(own);
    if (restored_bytes_ > kMostRestored) return false;
    own.set_name(node.output(0));
    const auto root = merged_.find(initializer);
    merged_.emplace(node.output(0), root == merged_.end() ? initializer : root->second);
    places_.emplace(node.output(0), graph_.initializer_size());
    append_initializer(model_, own);
    return true;
  }

  bool share(const NodeProto& node) { return shared_.emplace(node.output(0), node.input(0)).second; }

  /// What is one parameter is read under one name.
  void read_shared(NodeProto& node) const {
    for (std::string& input : *node.mutable_input())
      if (auto shared = shared_.find(input); shared != shared_.end()) input = shared->second;
    for (auto& attribute : *node.mutable_attribute())
      if (attribute.has_g())
        for (NodeProto& inner : *attribute.mutable_g()->mutable_node()) read_shared(inner);
  }

  static std::size_t bytes_outside(const TensorProto& proto) {
    if (proto.data_location() != TensorProto::EXTERNAL) return 0;
    std::size_t bytes = 8;
    for (const std::int64_t dim : proto.dims())
      bytes =
          dim < 0 || bytes > kMostRestored ? kMostRestored : bytes * static_cast<std::size_t>(std::min(dim, std::int64_t{1} << 31));
    return bytes;
  }

  /// Scale, bias and statistics are then known as such.
  void read_through(NodeProto& norm) {
    for (int k = 1; k < norm.input_size(); ++k)
      if (auto same = same_.find(norm.input(k)); same != same_.end()) norm.set_input(k, same->second);
  }

  void remove_nodes(const std::vector<int>& sorted) {
    if (sorted.empty()) return;
    google::protobuf::RepeatedPtrField<NodeProto> kept;
    for (int i = 0; i < graph_.node_size(); ++i)
      if (!std::binary_search(sorted.begin(), sorted.end(), i)) *kept.Add() = std::move(*graph_.mutable_node(i));
    graph_.mutable_node()->Swap(&kept);
  }

  ::onnx::ModelProto& model_;
  GraphProto& graph_;
  std::int64_t opset_;
  std::unordered_map<std::string, int> places_;          ///< initializer -> its index
  std::unordered_map<std::string, std::string> same_;    ///< outputs of other Identity nodes -> initializer
  std::unordered_map<std::string, std::string> shared_;  ///< outputs of Identity nodes that are gone -> initializer
  std::unordered_map<std::string, std::int64_t> reads_;
  std::set<std::string> outputs_;
  bool scoped_ = false;
  std::map<std::string, std::string> merged_;
  std::size_t restored_bytes_ = 0;
};

}  // namespace

std::map<std::string, std::string> restore_merged(::onnx::ModelProto& model, std::int64_t opset) {
  return Restoring(model, opset).run();
}

}  // namespace gcomp::frontend
