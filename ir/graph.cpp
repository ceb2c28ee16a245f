#include "ir/graph.h"

#include <algorithm>

#include "ir/base/hash.h"
#include "ir/ops/table.h"

namespace gcomp::ir {

bool swaps_last(const Value* value) {
  if (!is_made_by(value, ops::kTranspose)) return false;
  std::vector<std::int64_t> wanted = value->producer->attributes.integers("permutation");
  const std::size_t rank = wanted.size();
  if (rank < 2) return false;
  std::swap(wanted[rank - 1], wanted[rank - 2]);
  for (std::size_t i = 0; i < rank; ++i)
    if (wanted[i] != static_cast<std::int64_t>(i)) return false;
  return true;
}

const Value* unaliased(const Value* value) {
  while (value->producer && value->producer->op->alias) value = value->producer->operands[0];
  return value;
}

std::optional<double> splat_value(const Value* value) {
  return is_made_by(value, ops::kFull) ? std::optional(value->producer->attributes.real("value")) : std::nullopt;
}

std::string_view name_of(StateRole role) {
  switch (role) {
    case StateRole::parameter: return "parameter";
    case StateRole::running_statistic: return "running_statistic";
    case StateRole::optimizer: return "optimizer";
    case StateRole::counter: return "counter";
    case StateRole::scratch: return "scratch";
  }
  return "?";
}

std::string Graph::unique_name(std::string name) {
  if (!name.empty() && !names_.contains(name)) return name;
  const std::string stem = name.empty() ? "" : name + "_";
  int& next = suffixes_[stem];
  std::string candidate;
  do candidate = stem + std::to_string(next++);
  while (names_.contains(candidate));
  return candidate;
}

Value* Graph::make_value(TensorType type, std::string name, Node* producer, int index) {
  values_.push_back(std::make_unique<Value>(Value{std::move(type), unique_name(std::move(name)), producer, index, numbered_++}));
  names_.insert(values_.back()->name);
  return values_.back().get();
}

Value* Graph::add_input(TensorType type, std::string name, Role role) {
  inputs_.push_back(make_value(std::move(type), std::move(name), nullptr, 0));
  input_roles_.resize(inputs_.size(), Role::array);
  input_roles_.back() = role;
  return inputs_.back();
}

void Graph::add_output(Value* value, Role role) {
  outputs_.push_back(value);
  set_output_role(outputs_.size() - 1, role);
}

void Graph::set_output_role(std::size_t index, Role role) {
  output_roles_.resize(outputs_.size(), Role::array);
  output_roles_.at(index) = role;
}

void Graph::clear_outputs() {
  outputs_.clear();
  output_roles_.clear();
}

Value* Graph::add_state(TensorType type, std::string name, StateRole role, std::optional<double> fill) {
  states_.push_back({make_value(std::move(type), std::move(name), nullptr, 0), role, fill});
  return states_.back().value;
}

std::vector<TensorType> types_of(const std::vector<Value*>& values) {
  std::vector<TensorType> types;
  types.reserve(values.size());
  for (const Value* value : values) types.push_back(value ? value->type : absent_type());
  return types;
}

Node* Graph::append(const OpDef& op, std::vector<Value*> operands, Attributes attributes, SharedText origin,
                    std::vector<std::string> names) {
  const std::vector<TensorType> operand_types = types_of(operands);
  std::vector<TensorType> types;
  try {
    attributes = normalized(op, attributes);
    types = infer_types(op, operand_types, attributes);
    for (const TensorType& type : types) element_count(type.shape);  // which throws where there are too many
  } catch (const UserError& error) {
    std::string message = error.what();
    constexpr std::size_t kListed = 8;
    for (std::size_t i = 0; i < std::min(operands.size(), kListed); ++i)
      message +=
          concat(i ? ", " : " (operands ", operands[i] ? concat("%", operands[i]->name, ": ", to_string(operands[i]->type)) : "_");
    if (operands.size() > kListed) message += concat(" and ", operands.size() - kListed, " more");
    if (!operands.empty()) message += ")";
    if (!origin.empty()) message = concat("node '", origin, "': ", message);
    if (dynamic_cast<const SizeError*>(&error)) throw SizeError(message, error.code());
    throw UserError(message, error.code());
  }
  auto node = std::make_unique<Node>();
  node->op = &op;
  node->number = numbered_nodes_++;
  node->operands = std::move(operands);
  node->attributes = std::move(attributes);
  node->origin = std::move(origin);
  for (std::size_t i = 0; i < types.size(); ++i)
    node->results.push_back(make_value(std::move(types[i]), i < names.size() ? names[i] : "", node.get(), static_cast<int>(i)));
  nodes_.push_back(std::move(node));
  return nodes_.back().get();
}

Node* Graph::append_kernel(const OpDef& op, std::vector<Value*> operands, LoopNest nest, std::vector<TensorType> types,
                           SharedText origin, std::vector<std::string> names, Attributes attributes) {
  auto node = std::make_unique<Node>();
  node->op = &op;
  node->number = numbered_nodes_++;
  node->operands = std::move(operands);
  node->attributes = std::move(attributes);
  node->origin = std::move(origin);
  node->nest = std::make_shared<const LoopNest>(std::move(nest));
  for (std::size_t i = 0; i < types.size(); ++i)
    node->results.push_back(make_value(std::move(types[i]), i < names.size() ? names[i] : "", node.get(), static_cast<int>(i)));
  nodes_.push_back(std::move(node));
  return nodes_.back().get();
}

const State* Graph::find_state(const Value* value) const {
  if (!value || value->producer) return nullptr;
  auto it = std::find_if(states_.begin(), states_.end(), [&](const State& s) { return s.value == value; });
  return it == states_.end() ? nullptr : &*it;
}

void Graph::replace_uses(const std::unordered_map<Value*, Value*>& map) {
  auto resolve = [&](Value*& value) {
    for (auto it = map.find(value); it != map.end(); it = map.find(value)) value = it->second;
  };
  for (const auto& node : nodes_)
    for (Value*& operand : node->operands) resolve(operand);
  for (Value*& output : outputs_) resolve(output);
}

void Graph::rename(Value* value, std::string name) {
  if (value->name == name) return;
  names_.erase(value->name);
  value->name = unique_name(std::move(name));
  names_.insert(value->name);
}

void Graph::take_name(Value* from, Value* to) {
  if (from == to) return;
  for (const Value* value : {from, to}) names_.erase(value->name);
  std::swap(from->name, to->name);
  for (const Value* value : {from, to}) names_.insert(value->name);
}

void Graph::remove_updates(std::optional<StateRole> kept) {
  std::erase_if(nodes_, [&](const std::unique_ptr<Node>& node) {
    return node->op->kind == Kind::update && !(kept && find_state(node->operands[0])->role == *kept);
  });
}

void Graph::compact_numbers() {
  if (numbered_ < 2 * values_.size() && numbered_nodes_ < 2 * nodes_.size()) return;
  constexpr auto kNone = static_cast<std::size_t>(-1);
  for (const auto& value : values_) value->number = kNone;
  numbered_ = numbered_nodes_ = 0;
  for (Value* input : inputs_) input->number = numbered_++;
  for (const State& state : states_) state.value->number = numbered_++;
  for (const auto& node : nodes_) {
    node->number = numbered_nodes_++;
    for (Value* result : node->results) result->number = numbered_++;
  }
  for (const auto& value : values_)
    if (value->number == kNone) value->number = numbered_++;
}

int Graph::remove_dead(bool drop_states) {
  constexpr std::size_t kAhead = 16;  // nodes: as NodeWalk, backwards
  ValueSet live(*this, outputs_);
  std::vector<bool> keep(nodes_.size());
  std::size_t kept_nodes = 0, kept_values = inputs_.size() + states_.size();
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    if (i >= kAhead) __builtin_prefetch(nodes_[i - kAhead].get());
    const Node& node = *nodes_[i];
    keep[i] = node.op->kind == Kind::update || node.op->kind == Kind::collective ||
              std::any_of(node.results.begin(), node.results.end(), [&](const Value* r) { return live.contains(r); });
    if (!keep[i]) continue;
    live.insert_all(node.operands);
    ++kept_nodes;
    kept_values += node.results.size();
  }
  if (drop_states) kept_values -= std::erase_if(states_, [&](const State& s) { return !live.contains(s.value); });
  if (kept_nodes == nodes_.size() && kept_values == values_.size()) return 0;
  std::vector<std::unique_ptr<Node>> kept, dead;
  kept.reserve(kept_nodes);
  for (std::size_t i = 0; i < nodes_.size(); ++i) (keep[i] ? kept : dead).push_back(std::move(nodes_[i]));
  nodes_ = std::move(kept);
  // Values of removed nodes go too, so that their names are free again and memory does not grow with every pass.
  ValueSet present(*this, inputs_);
  for (const State& state : states_) present.insert(state.value);
  for (const Node& node : NodeWalk(*this)) present.insert_all(node.results);
  std::erase_if(values_, [&](const std::unique_ptr<Value>& value) {
    if (present.contains(value.get())) return false;
    names_.erase(value->name);
    return true;
  });
  return static_cast<int>(dead.size());
}

void Graph::remove_unused_inputs(std::optional<Role> role) {
  ValueSet used(*this, outputs_);
  for (const Node& node : NodeWalk(*this)) used.insert_all(node.operands);
  input_roles_.resize(inputs_.size(), Role::array);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!used.contains(inputs_[i]) && input_roles_[i] == role.value_or(input_roles_[i])) continue;
    inputs_[kept] = inputs_[i];
    input_roles_[kept++] = input_roles_[i];
  }
  inputs_.resize(kept);
  input_roles_.resize(kept);
}

Users::Users(const Graph& graph) : first_(graph.numbered() + 1) {
  for (const Node& node : NodeWalk(graph))
    for (const Value* operand : node.operands)
      if (operand) ++first_[operand->number];
  std::uint32_t total = 0;  // each entry becomes where its users end, and while they are filled in from behind, where they begin
  for (std::uint32_t& entry : first_) entry = total += entry;
  nodes_.resize(total);
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node)
    for (auto operand = (*node)->operands.rbegin(); operand != (*node)->operands.rend(); ++operand)
      if (*operand) nodes_[--first_[(*operand)->number]] = node->get();
}

Uses uses_of(const Graph& graph) {
  Uses uses;
  uses.reserve(graph.nodes().size());
  for (Node& node : NodeWalk(graph))
    for (const Value* operand : node.operands)
      if (operand) uses[operand].push_back(&node);
  return uses;
}

Graph clone(const Graph& graph, std::unordered_map<const Value*, Value*>* map) {
  std::unordered_map<const Value*, Value*> local;
  auto& to = map ? *map : local;
  to.reserve(to.size() + graph.nodes().size());
  Graph copy(graph.name());
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
    const Value* input = graph.inputs()[i];
    to[input] = copy.add_input(input->type, input->name, graph.input_role(i));
  }
  for (const State& state : graph.states())
    to[state.value] = copy.add_state(state.value->type, state.value->name, state.role, state.fill);
  for (const auto& node : graph.nodes()) {
    std::vector<Value*> operands;
    for (const Value* operand : node->operands) operands.push_back(operand ? to.at(operand) : nullptr);
    std::vector<std::string> names;
    for (const Value* result : node->results) names.push_back(result->name);
    Node* made =
        copy.append_kernel(*node->op, std::move(operands), {}, types_of(node->results), node->origin, names, node->attributes);
    made->nest = node->nest;
    for (std::size_t i = 0; i < node->results.size(); ++i) to[node->results[i]] = made->results[i];
  }
  for (std::size_t i = 0; i < graph.outputs().size(); ++i) copy.add_output(to.at(graph.outputs()[i]), graph.output_role(i));
  return copy;
}

bool operator==(const Graph& a, const Graph& b) {
  if (a.name() != b.name() || a.inputs().size() != b.inputs().size() || a.states().size() != b.states().size() ||
      a.nodes().size() != b.nodes().size() || a.outputs().size() != b.outputs().size())
    return false;
  auto same = [](const Value* x, const Value* y) { return x == y || (x && y && x->name == y->name && x->type == y->type); };
  auto all = [&](const std::vector<Value*>& x, const std::vector<Value*>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
  };
  if (!all(a.inputs(), b.inputs()) || !all(a.outputs(), b.outputs())) return false;
  for (std::size_t i = 0; i < a.inputs().size(); ++i)
    if (a.input_role(i) != b.input_role(i)) return false;
  for (std::size_t i = 0; i < a.outputs().size(); ++i)
    if (a.output_role(i) != b.output_role(i)) return false;
  for (std::size_t i = 0; i < a.states().size(); ++i) {
    const State &s = a.states()[i], &t = b.states()[i];
    if (!same(s.value, t.value) || s.role != t.role || s.fill != t.fill) return false;
  }
  for (std::size_t i = 0; i < a.nodes().size(); ++i) {
    const Node &m = *a.nodes()[i], &n = *b.nodes()[i];
    if (m.op != n.op || !all(m.operands, n.operands) || !all(m.results, n.results) || !(m.attributes == n.attributes)) return false;
    if (!m.nest != !n.nest || (m.nest && !(*m.nest == *n.nest))) return false;
  }
  return true;
}

std::size_t hash_of(const Graph& graph) {
  std::vector<std::size_t> place(graph.numbered());  // in the order of definition, from 1
  std::size_t defined = 0;
  auto add = [&](const Value* value) { place[value->number] = ++defined; };
  for (const Value* input : graph.inputs()) add(input);
  for (const State& state : graph.states()) add(state.value);
  std::size_t seed = defined;
  for (const Node& node : NodeWalk(graph)) {
    seed = hash_combine(seed, std::hash<const OpDef*>{}(node.op));
    seed = hash_combine(seed, node.attributes.hash());
    if (node.nest) seed = hash_combine(seed, hash_of(*node.nest));
    for (const Value* operand : node.operands) seed = hash_combine(seed, operand ? place[operand->number] : 0);
    for (const Value* result : node.results) {
      add(result);
      seed = hash_combine(seed, static_cast<std::size_t>(result->type.dtype));
      for (std::int64_t dim : result->type.shape) seed = hash_combine(seed, static_cast<std::size_t>(dim));
    }
  }
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) seed = hash_combine(seed, static_cast<std::size_t>(graph.input_role(i)));
  for (std::size_t i = 0; i < graph.outputs().size(); ++i)
    seed = hash_combine(hash_combine(seed, place[graph.outputs()[i]->number]), static_cast<std::size_t>(graph.output_role(i)));
  return seed;
}

}  // namespace gcomp::ir
