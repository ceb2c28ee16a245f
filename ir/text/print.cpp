#include "ir/text/print.h"

#include <unordered_set>

#include "ir/text/print_nest.h"
#include "ir/text/spelling.h"

namespace gcomp::ir {
namespace {

template <class List, class F>
std::string joined(const List& list, const F& text_of) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + text_of(item);
  return text;
}

std::string value_name(const Value* value) { return value ? spelled('%', value->name) : "_"; }

std::string attribute_text(const Attribute& attribute, const PrintOptions& options) {
  struct {
    const PrintOptions& options;
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t integer) const { return std::to_string(integer); }
    std::string operator()(double real) const { return number_text(real); }
    std::string operator()(const std::string& text) const { return quoted(text); }
    std::string operator()(DType dtype) const { return std::string(name_of(dtype)); }
    std::string operator()(const std::vector<std::int64_t>& integers) const {
      std::string text;
      for (std::int64_t i : integers) text += (text.empty() ? "" : ",") + std::to_string(i);
      return "[" + text + "]";
    }
    std::string operator()(const std::vector<double>& reals) const {
      return "[" + joined(reals, [](double r) { return number_text(r); }) + "]";
    }
    std::string operator()(const std::shared_ptr<const Tensor>& tensor) const {
      return options.elide_constants ? tensor_text_elided(*tensor) : tensor_text(*tensor);
    }
    std::string operator()(const Views& views) const {
      return "[" + joined(views, [](const auto& view) { return view ? to_string(*view) : "dense"; }) + "]";
    }
  } spell{options};
  return std::visit(spell, attribute);
}

std::string place_of(const Value* value, const MemoryPlan& plan) {
  auto found = plan.placements.find(value);
  if (found == plan.placements.end()) return "nowhere";
  const Placement& place = found->second;
  return concat(name_of(place.space), "+", place.offset, place.alias_of ? " in " + value_name(place.alias_of) : "");
}

/// "  // arena+0, arena+1024 in %x" for the results of a node; "" without a plan.
std::string places(const std::vector<Value*>& values, const PrintOptions& options) {
  if (!options.plan || values.empty()) return "";
  return "  // " + joined(values, [&](const Value* v) { return place_of(v, *options.plan); });
}

NestNames names_of(const Node& node) {
  NestNames names;
  for (const Value* operand : node.operands) names.operand_dtypes.push_back(operand ? operand->type.dtype : DType::f32);
  std::unordered_set<const Value*> distinct(node.operands.begin(), node.operands.end());
  if (node.attributes.find("segments") || distinct.size() != node.operands.size() || distinct.count(nullptr)) return names;
  for (const Value* operand : node.operands) names.operands.push_back(value_name(operand));
  for (const Value* result : node.results) names.results.push_back(value_name(result));
  return names;
}

std::string node_text(const Node& node, const PrintOptions& options, const std::string& indent) {
  std::string text = indent + joined(node.results, value_name) + (node.results.empty() ? "" : " = ") + std::string(node.op->name);
  if (!node.operands.empty()) text += " " + joined(node.operands, value_name);
  if (!node.attributes.empty()) text += " " + print(node.attributes, options);
  if (!node.results.empty()) text += " : " + joined(node.results, [](const Value* v) { return to_string(v->type); });
  if (options.origins && !node.origin.empty()) text += " " + spelled('@', node.origin.str());
  const std::string comment = places(node.results, options);
  if (!node.nest) return text + comment;
  return text + " {" + comment + "\n" + print(*node.nest, names_of(node), indent + "  ") + indent + "}";
}

std::string state_text(const State& state, const PrintOptions& options) {
  std::string text = concat("  state ", value_name(state.value), ": ", to_string(state.value->type), " ", name_of(state.role));
  if (state.fill) text += " = " + number_text(*state.fill);
  return text + places({state.value}, options);
}

std::string role_text(Role role) { return role == Role::array ? "" : concat(" ", name_of(role)); }

std::string inputs_text(const Graph& graph) {
  std::string text;
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
    const Value* input = graph.inputs()[i];
    text += concat(i ? ", " : "", value_name(input), ": ", to_string(input->type), role_text(graph.input_role(i)));
  }
  return text;
}

std::string outputs_text(const Graph& graph) {
  std::string text;
  for (std::size_t i = 0; i < graph.outputs().size(); ++i)
    text += concat(i ? ", " : "", value_name(graph.outputs()[i]), role_text(graph.output_role(i)));
  return text;
}

}  // namespace

std::string_view name_of(MemorySpace space) {
  switch (space) {
    case MemorySpace::arena: return "arena";
    case MemorySpace::state: return "state";
    case MemorySpace::constant: return "constant";
    case MemorySpace::io: return "io";
  }
  return "?";
}

std::string print(const Attributes& attributes, const PrintOptions& options) {
  if (attributes.empty()) return "";
  return "{" + joined(attributes, [&](const auto& entry) { return entry.first + "=" + attribute_text(entry.second, options); }) +
         "}";
}

std::string print(const Node& node, const PrintOptions& options) { return node_text(node, options, ""); }

std::string print(const Graph& graph, const PrintOptions& options) {
  std::string text = "graph " + spelled('@', graph.name()) + "(" + inputs_text(graph) + ") -> (" + outputs_text(graph) + ") {\n";
  if (options.plan)
    for (const Value* input : graph.inputs()) text += "  // " + value_name(input) + ": " + place_of(input, *options.plan) + "\n";
  for (const State& state : graph.states()) text += state_text(state, options) + "\n";
  for (const auto& node : graph.nodes()) text += node_text(*node, options, "  ") + "\n";
  return text + "}\n";
}

}  // namespace gcomp::ir
