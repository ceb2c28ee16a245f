#include "ir/verify.h"

#include <algorithm>
#include <ostream>
#include <span>

#include "ir/ops/table.h"
#include "ir/product.h"
#include "ir/segments.h"
#include "ir/text/spelling.h"

namespace gcomp::ir {
namespace {

std::string value_text(const Value* value) { return value ? spelled('%', value->name) : "_"; }

/// How messages name a node; written only where there is something to say.
struct Label {
  const Node& node;

  friend std::ostream& operator<<(std::ostream& out, const Label& label) {
    const Node& node = label.node;
    if (!node.results.empty()) out << value_text(node.results[0]) << " = ";
    out << node.op->name;
    for (std::size_t i = 0; i < node.operands.size(); ++i) out << (i ? ", " : " ") << value_text(node.operands[i]);
    if (!node.origin.empty()) out << " " << spelled('@', node.origin.str());
    return out;
  }
};

class GraphVerifier {
 public:
  explicit GraphVerifier(const Graph& graph) : graph_(graph), defined_(graph), states_(graph), updated_(graph) {
    for (const State& state : graph.states()) states_.insert(state.value);
  }

  std::vector<std::string> run() {
    for (const Value* input : graph_.inputs()) define_free(input, "input");
    for (const State& state : graph_.states()) define_free(state.value, "state");
    for (const Node& node : NodeWalk(graph_)) check_node(node);
    for (const Value* output : graph_.outputs())
      if (!defined_.contains(output)) report("output ", value_text(output), " is not defined");
    if (found_.empty()) check_roles();
    return std::move(found_);
  }

 private:
  template <class... Args>
  void report(const Args&... args) {
    found_.push_back(concat(args...));
  }

  void check_roles() {
    std::vector<RoleUse> inputs, outputs;
    for (std::size_t i = 0; i < graph_.inputs().size(); ++i)
      inputs.push_back({graph_.input_role(i), graph_.inputs()[i]->name, &graph_.inputs()[i]->type});
    for (std::size_t i = 0; i < graph_.outputs().size(); ++i)
      outputs.push_back({graph_.output_role(i), graph_.outputs()[i]->name, &graph_.outputs()[i]->type});
    if (const std::string broken = find_role_violation(inputs, outputs); !broken.empty()) report(broken);
  }

  template <class Where>
  void define(const Value* value, const Where& where) {
    if (!defined_.insert(value)) report(where, ": ", value_text(value), " is defined twice");
    if (value->name.empty() || !graph_.has_own_name(*value)) report(where, ": the name ", value_text(value), " is empty or taken");
  }

  void define_free(const Value* value, const std::string& what) {
    define(value, what);
    if (value->producer) report(what, " ", value_text(value), " has a producer");
  }

  void check_node(const Node& node) {
    const Label label{node};
    for (const Value* operand : node.operands) {
      if (!operand) continue;
      if (!defined_.contains(operand)) report(label, ": operand ", value_text(operand), " is not defined above");
      if (updated_.contains(operand)) report(label, ": state ", value_text(operand), " is used after its update");
    }
    const bool complete = check_operands(node, label);
    for (std::size_t i = 0; i < node.results.size(); ++i) {
      define(node.results[i], label);
      if (node.results[i]->producer != &node || node.results[i]->index != static_cast<int>(i))
        report(label, ": result ", i, " does not know its producer");
    }
    if (node.op->kind == Kind::update && complete) check_update(node, label);
    if (!node.nest != (node.op->kind != Kind::kernel))
      report(label, node.nest ? ": has a loop nest, which only kernels have" : ": has no loop nest");
    else if (node.op->kind == Kind::kernel) check_kernel(node, label);
    else if (complete) check_types(node, label);
  }

  /// Absent operands only where the op allows them.
  bool check_operands(const Node& node, const Label& label) {
    bool complete = true;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const bool optional = node.op->operands >= 0 && static_cast<int>(i) >= node.op->operands - node.op->optional_operands;
      if (node.operands[i] || optional) continue;
      report(label, ": operand ", i, " is absent");
      complete = false;
    }
    return complete;
  }

  void check_update(const Node& node, const Label& label) {
    const Value* state = node.operands.empty() ? nullptr : node.operands[0];
    if (!states_.contains(state)) report(label, ": ", value_text(state), " is no state");
    else if (!updated_.insert(state)) report(label, ": state ", value_text(state), " is updated twice");
  }

  void check_types(const Node& node, const Label& label) {
    try {
      if (!is_normalized(*node.op, node.attributes)) report(label, ": an attribute equals its default");
      const std::vector<TensorType> types = infer_types(*node.op, operand_types(node), node.attributes);
      if (types.size() != node.results.size())
        return report(label, ": has ", node.results.size(), " results, wanted ", types.size());
      for (std::size_t i = 0; i < types.size(); ++i)
        if (!(types[i] == node.results[i]->type))
          report(label, ": ", value_text(node.results[i]), " is ", to_string(node.results[i]->type), ", inference gives ",
                 to_string(types[i]));
    } catch (const Error& error) { report(label, ": ", error.what()); }
  }

  /// As types_of() has them, in memory that all nodes use.
  std::span<const TensorType> operand_types(const Node& node) {
    const std::size_t count = node.operands.size();
    if (operand_types_.size() < count) operand_types_.resize(count);
    for (std::size_t i = 0; i < count; ++i) operand_types_[i] = node.operands[i] ? node.operands[i]->type : absent_type();
    return {operand_types_.data(), count};
  }

  void check_kernel(const Node& node, const Label& label) {
    try {
      if (!is_normalized(*node.op, node.attributes)) report(label, ": an attribute equals its default");
    } catch (const UserError& error) { return report(label, ": ", error.what()); }
    if (std::count(node.operands.begin(), node.operands.end(), nullptr)) return;
    std::vector<TensorType> operands = types_of(node.operands), results = types_of(node.results);
    if (node.op == &ops::kMultiKernel && !check_segments(node, label, operands, results)) return;
    const std::vector<std::string> unsound = find_violations(*node.nest, operands, results);
    for (const std::string& line : unsound) report(label, ": ", line);
    if (node.op != &ops::kProduct || !unsound.empty()) return;
    for (const std::string& line : product_violations(node)) report(label, ": ", line);
  }

  /// Leaves the flattened types of the first segment.
  bool check_segments(const Node& node, const Label& label, std::vector<TensorType>& operands, std::vector<TensorType>& results) {
    const std::int64_t count = node.attributes.integer("segments");
    const auto segments = static_cast<std::size_t>(count);
    if (count < 1 || operands.size() % segments || results.size() % segments || results.empty())
      return report(label, ": ", operands.size(), " operands and ", results.size(), " results do not fall into ", count,
                    " segments"),
             false;
    const std::size_t inputs = operands.size() / segments, outputs = results.size() / segments;
    if (segments_of(node).alike) return check_alike(label, segments, operands, results);
    if (node.nest->extents.size() != 1)
      return report(label, ": the nest has ", node.nest->extents.size(), " axes, wanted 1"), false;
    for (std::size_t s = 0; s < segments; ++s) {
      const std::int64_t elements = results[s * outputs].elements();
      for (std::size_t i = 0; i < inputs + outputs; ++i) {
        const TensorType& type = i < inputs ? operands[s * inputs + i] : results[s * outputs + i - inputs];
        const TensorType& first = i < inputs ? operands[i] : results[i - inputs];
        const bool scalar = i < inputs && type.rank() == 0;
        if (type.dtype != first.dtype || (!scalar && type.elements() != elements) || (i < inputs && scalar != (first.rank() == 0)))
          return report(label, ": ", to_string(type), " of segment ", s, " does not fit ", to_string(first), " of the first or ",
                        elements, " elements"),
                 false;
      }
    }
    operands.resize(inputs);
    results.resize(outputs);
    for (auto* list : {&operands, &results})
      for (TensorType& type : *list)
        if (type.rank() > 0 || list == &results) type.shape = {node.nest->extents[0]};
    return true;
  }

  /// Leaves the types of the first segment.
  bool check_alike(const Label& label, std::size_t segments, std::vector<TensorType>& operands, std::vector<TensorType>& results) {
    for (auto* list : {&operands, &results}) {
      const std::size_t each = list->size() / segments;
      for (std::size_t i = each; i < list->size(); ++i)
        if ((*list)[i] != (*list)[i % each])
          return report(label, ": ", to_string((*list)[i]), " of segment ", i / each, " is not the ", to_string((*list)[i % each]),
                        " of the first, which it is said to be like"),
                 false;
      list->resize(each);
    }
    return true;
  }

  const Graph& graph_;
  ValueSet defined_, states_, updated_;
  std::vector<std::string> found_;
  std::vector<TensorType> operand_types_;
};

}  // namespace

std::vector<std::string> find_violations(const Graph& graph) { return GraphVerifier(graph).run(); }

void verify(const Graph& graph) {
  const std::vector<std::string> found = find_violations(graph);
  if (found.empty()) return;
  constexpr std::size_t kShown = 10;
  std::string message = concat("graph ", spelled('@', graph.name()), " is unsound:");
  for (std::size_t i = 0; i < std::min(found.size(), kShown); ++i) message += "\n  " + found[i];
  if (found.size() > kShown) message += concat("\n  and ", found.size() - kShown, " more");
  throw InternalError(message);
}

}  // namespace gcomp::ir
