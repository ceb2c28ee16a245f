#include "frontend/onnx/validate.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

constexpr int kMaxDepth = 16;
constexpr std::int64_t kMaxNodes = 1'000'000;

/// Names visible in a graph: its own and those of the graphs around it.
struct VisibleNames {
  const VisibleNames* outer = nullptr;
  std::unordered_set<std::string> names;

  bool has(const std::string& name) const {
    for (const VisibleNames* scope = this; scope; scope = scope->outer)
      if (scope->names.count(name)) return true;
    return false;
  }
};

/// Well-formed UTF-8: no stray or missing continuation, no overlong form, no surrogate, nothing beyond U+10FFFF.
bool is_utf8(const std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const std::size_t length = first < 0x80                    ? 1
                               : first >= 0xC2 && first < 0xE0 ? 2
                               : (first & 0xF0) == 0xE0        ? 3
                               : first >= 0xF0 && first < 0xF5 ? 4
                                                               : 0;
    if (length == 0 || i + length > text.size()) return false;
    std::uint32_t point = length == 1 ? first : first & (0xFF >> (length + 1));
    for (std::size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return false;
      point = point << 6 | (next & 0x3F);
    }
    if ((length == 3 && (point < 0x800 || (point >= 0xD800 && point < 0xE000))) ||
        (length == 4 && (point < 0x10000 || point > 0x10FFFF)))
      return false;
    i += length;
  }
  return true;
}

class Validator {
 public:
  explicit Validator(const Source& source) : source_(source) {}

  void check_graph(const ::onnx::GraphProto& graph, const VisibleNames* outer, int depth) {
    check_user(depth <= kMaxDepth, source_.name, ": subgraphs nest more than ", kMaxDepth, " deep");
    VisibleNames scope{outer, {}};
    for (const auto& input : graph.input()) define(scope, input.name(), "the graph's inputs");
    // Before IR version 4 initializers were also listed as inputs.
    std::unordered_set<std::string> initializers;
    for (const auto& tensor : graph.initializer()) add_initializer(scope, initializers, tensor.name());
    for (const auto& sparse : graph.sparse_initializer()) add_initializer(scope, initializers, sparse.values().name());
    check_nodes(graph.node(), scope, depth);
    std::unordered_set<std::string> outputs;
    for (const auto& output : graph.output()) {
      check_user(scope.has(output.name()), source_.name, ": output '", output.name(), "' is made by no node");
      check_user(outputs.insert(output.name()).second, source_.name, ": output '", output.name(), "' is listed twice");
    }
  }

  void check_function(const ::onnx::FunctionProto& function) {
    VisibleNames scope;
    for (const auto& input : function.input()) define(scope, input, concat("the inputs of function '", function.name(), "'"));
    check_nodes(function.node(), scope, 0);
    for (const auto& output : function.output())
      check_user(scope.has(output), source_.name, ": output '", output, "' of function '", function.name(), "' is made by no node");
  }

 private:
  void define(VisibleNames& scope, const std::string& name, const std::string& where) {
    check_user(!name.empty(), source_.name, ": an empty name among ", where);
    check_user(is_utf8(name), source_.name, ": a name among ", where, " is no UTF-8 text");
    if (scope.names.insert(name).second) return;
    throw UserError(concat(source_.name, ": the name '", name, "' is made twice, the second time by ", where,
                           initializers_.contains(name)
                               ? "; the first is an initializer: exporters name values 't' or 'add', and if a "
                                 "parameter of the module is called so, another name for it helps"
                               : ""));
  }

  void add_initializer(VisibleNames& scope, std::unordered_set<std::string>& initializers, const std::string& name) {
    check_user(!name.empty() && is_utf8(name), source_.name, ": an initializer has no name, or one that is no UTF-8 text");
    check_user(initializers.insert(name).second, source_.name, ": two initializers are named '", name, "'");
    initializers_.insert(name);
    scope.names.insert(name);
  }

  template <class Nodes>
  void check_nodes(const Nodes& nodes, VisibleNames& scope, int depth) {
    for (const auto& node : nodes) {
      check_user(++nodes_ <= kMaxNodes, source_.name, ": more than ", kMaxNodes, " nodes");
      check_user(is_utf8(node.name()) && is_utf8(node.op_type()) && is_utf8(node.domain()), source_.name,
                 ": a node's name, operator or domain is no UTF-8 text");
      check_user(!node.op_type().empty(), source_.name, ": ", describe(node), " has no operator type");
      for (const auto& input : node.input())
        check_user(input.empty() || scope.has(input), source_.name, ": node '", describe(node), "' reads '", input,
                   "', which nothing before it makes");
      std::unordered_set<std::string> attributes;
      for (const auto& attribute : node.attribute()) {
        check_user(attributes.insert(attribute.name()).second, source_.name, ": node '", describe(node), "' has attribute '",
                   attribute.name(), "' twice");
        if (attribute.has_g()) check_graph(attribute.g(), &scope, depth + 1);
        for (const auto& graph : attribute.graphs()) check_graph(graph, &scope, depth + 1);
      }
      for (const auto& output : node.output())
        if (!output.empty()) define(scope, output, concat("node '", describe(node), "'"));
    }
  }

  const Source& source_;
  std::int64_t nodes_ = 0;
  std::unordered_set<std::string> initializers_;  ///< of all graphs so far
};

using FunctionKey = std::pair<std::string, std::string>;

/// Who calls whom, through subgraphs too: no function calls itself, and no chain of calls is long.
class CallChecker {
 public:
  explicit CallChecker(const Source& source) : source_(source) {}

  void run() {
    for (const auto& function : source_.model.functions())
      check_user(functions_.emplace(FunctionKey{domain_called(function.domain()), function.name()}, &function).second, source_.name,
                 ": function '", function.name(), "' is defined twice");
    for (const auto& [key, function] : functions_) height_of(key, *function, 0);
  }

 private:
  static constexpr int kOpen = -1;

  /// How many calls nest below a function. `depth` of them lie above.
  int height_of(const FunctionKey& key, const ::onnx::FunctionProto& function, int depth) {
    if (const auto known = heights_.find(key); known != heights_.end()) {
      check_user(known->second != kOpen, source_.name, ": function '", key.second, "' calls itself");
      check_depth(depth + known->second);
      return known->second;
    }
    check_depth(depth);
    heights_[key] = kOpen;
    return heights_[key] = height_of(function.node(), depth);
  }

  /// Subgraphs nest as deep as check_graph() allowed.
  template <class Nodes>
  int height_of(const Nodes& nodes, int depth) {
    int height = 0;
    for (const auto& node : nodes) {
      const auto called = functions_.find({domain_called(node.domain()), node.op_type()});
      if (called != functions_.end()) height = std::max(height, 1 + height_of(called->first, *called->second, depth + 1));
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) height = std::max(height, height_of(attribute.g().node(), depth));
        for (const auto& graph : attribute.graphs()) height = std::max(height, height_of(graph.node(), depth));
      }
    }
    return height;
  }

  void check_depth(int depth) const {
    check_user(depth <= kMaxDepth, source_.name, ": function calls nest more than ", kMaxDepth, " deep");
  }

  const Source& source_;
  std::map<FunctionKey, const ::onnx::FunctionProto*> functions_;
  std::map<FunctionKey, int> heights_;
};

}  // namespace

std::string describe(const ::onnx::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  return node.output_size() ? concat(node.op_type(), " of ", node.output(0)) : node.op_type();
}

void validate(const Source& source) {
  const ::onnx::ModelProto& model = source.model;
  check_user(model.has_graph(), source.name, ": not an ONNX model: it holds no graph");
  check_user(!source.opsets.empty(), source.name, ": not an ONNX model: it imports no operator set");
  if (auto it = source.opsets.find(""); it != source.opsets.end() && (it->second < 1 || it->second > kNewestOpset))
    throw UserError(concat(source.name, ": operator set ", it->second, " is not known, the newest is ", kNewestOpset),
                    ExitCode::unsupported);
  Validator validator(source);
  validator.check_graph(model.graph(), nullptr, 0);
  for (const auto& function : model.functions()) validator.check_function(function);
  CallChecker(source).run();
}

}  // namespace gcomp::frontend
