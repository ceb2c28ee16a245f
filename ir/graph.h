// The graph. Laws that passes may rely on (the verifier checks each):
//   1. Values are SSA: an input, a state, or result i of one node; each has a static type and a name unique in the graph.
//   2. Nodes are in topological order: operands are defined before.
//   3. States are written only by `update` nodes, at most one each; every other use of a state comes before its update and
//      sees the value from the start of the step.
//   4. Types are what inference gives; no implicit broadcast, no implicit cast. Optional operands that are absent are null.
//   5. Attributes are normalized: known to the op, none equal to its default.
//   6. A node of kind kernel has a loop nest; no other node has.
//   7. Inputs and outputs keep the rules of their roles (ir/base/role.h).
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/attributes.h"
#include "ir/base/role.h"
#include "ir/base/shared_text.h"
#include "ir/base/tensor.h"
#include "ir/name_table.h"
#include "ir/nest/term.h"
#include "ir/op.h"

namespace gcomp::ir {

struct Node;

struct Value {
  TensorType type;
  std::string name;
  Node* producer = nullptr;  ///< null for inputs and states
  int index = 0;             ///< which result of the producer
  std::size_t number = 0;    ///< no other value of the graph ever has it; below Graph::numbered()
};

struct Node {
  const OpDef* op = nullptr;
  std::vector<Value*> operands;  ///< null where an optional operand is absent
  std::vector<Value*> results;
  Attributes attributes;
  SharedText origin;                     ///< where it came from: ONNX node name or builder call site
  std::shared_ptr<const LoopNest> nest;  ///< kind kernel
  std::size_t number = 0;                ///< no other node of the graph ever has it; below Graph::numbered_nodes()

  Value* result() const { return results[0]; }
};

/// Whether a node of this op made the value.
inline bool is_made_by(const Value* value, const OpDef& op) { return value->producer && value->producer->op == &op; }

/// Whether a transpose that swaps the last two axes and nothing else made the value.
bool swaps_last(const Value* value);
/// The value whose elements, in their order, a chain of aliases passes on as this one.
const Value* unaliased(const Value* value);
/// The number that every element is, where a constant of one number made the value.
std::optional<double> splat_value(const Value* value);

enum class StateRole : std::uint8_t {
  parameter,
  running_statistic,
  optimizer,
  counter,
  scratch,  ///< holds nothing between steps: what the programs of one step pass on to each other
};
std::string_view name_of(StateRole role);

struct State {
  Value* value = nullptr;
  StateRole role = StateRole::parameter;
  std::optional<double> fill;  ///< initial value of every element; else it comes from the model's weights
};

class Graph {
 public:
  explicit Graph(std::string name = "main") : name_(std::move(name)) {}
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  /// Names are made unique by a numeric suffix; an empty one becomes a number.
  Value* add_input(TensorType type, std::string name, Role role = Role::array);
  void add_output(Value* value, Role role = Role::array);
  Value* add_state(TensorType type, std::string name, StateRole role, std::optional<double> fill = {});
  /// Appends a node whose types are inferred. Throws UserError that names op, operands and `origin` on a mismatch, SizeError where
  /// a result is too large.
  Node* append(const OpDef& op, std::vector<Value*> operands, Attributes attributes = {}, SharedText origin = {},
               std::vector<std::string> names = {});
  /// Appends a kernel node with the given result types.
  Node* append_kernel(const OpDef& op, std::vector<Value*> operands, LoopNest nest, std::vector<TensorType> types,
                      SharedText origin, std::vector<std::string> names = {}, Attributes attributes = {});
  /// Appends a node made by this graph and taken out by take_nodes().
  void append(std::unique_ptr<Node> node) { nodes_.push_back(std::move(node)); }
  /// Takes all nodes out, for a pass that appends what replaces them. Values stay valid while the caller keeps the nodes
  /// or has passed them to retire().
  std::vector<std::unique_ptr<Node>> take_nodes() { return std::move(nodes_); }

  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  std::vector<Value*>& inputs() { return inputs_; }
  const std::vector<Value*>& inputs() const { return inputs_; }
  std::vector<State>& states() { return states_; }
  const std::vector<State>& states() const { return states_; }
  std::vector<Value*>& outputs() { return outputs_; }
  const std::vector<Value*>& outputs() const { return outputs_; }
  /// Of the input or output at that place. A pass that puts another value in an output's place leaves the role.
  Role input_role(std::size_t index) const { return index < input_roles_.size() ? input_roles_[index] : Role::array; }
  Role output_role(std::size_t index) const { return index < output_roles_.size() ? output_roles_[index] : Role::array; }
  void set_output_role(std::size_t index, Role role);
  /// No outputs, and so no roles of any.
  void clear_outputs();
  const State* find_state(const Value* value) const;
  /// Values made so far: as many as a table indexed by Value::number holds.
  std::size_t numbered() const { return numbered_; }
  /// Likewise, nodes.
  std::size_t numbered_nodes() const { return numbered_nodes_; }
  /// Numbers values and nodes anew, in their order, once most of their numbers are those of dead ones. Tables by number are void
  /// then.
  void compact_numbers();
  /// Whether `value` has its name in this graph, and so no other value has it.
  bool has_own_name(const Value& value) const { return names_.find(value.name) == &value.name; }

  /// Rewrites every operand and output by `map`, following chains.
  void replace_uses(const std::unordered_map<Value*, Value*>& map);
  /// Renames a value; the name is made unique.
  void rename(Value* value, std::string name);
  /// Gives `to` the name of `from`, which gets another.
  void take_name(Value* from, Value* to);
  /// Drops every update node, but those of states of the role `kept`.
  void remove_updates(std::optional<StateRole> kept = std::nullopt);
  /// Drops nodes and values that nothing reaches from outputs and updates, unused states with `drop_states`; returns how many nodes
  /// went.
  int remove_dead(bool drop_states = false);
  /// Drops inputs that no node reads and that are no outputs, of `role` alone where one is given.
  void remove_unused_inputs(std::optional<Role> role = std::nullopt);

 private:
  Value* make_value(TensorType type, std::string name, Node* producer, int index);
  std::string unique_name(std::string name);

  std::string name_;
  std::vector<std::unique_ptr<Value>> values_;
  std::size_t numbered_ = 0, numbered_nodes_ = 0;
  NameTable names_;  ///< of `values_`
  std::unordered_map<std::string, int> suffixes_;
  std::vector<Value*> inputs_;
  std::vector<Role> input_roles_, output_roles_;  // those behind the last are arrays
  std::vector<State> states_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Value*> outputs_;
};

/// Nodes in order, for a walk that looks at each: what they point to is asked of memory a few nodes ahead, as the graph of a long
/// model lies in no cache. `Pointer`: what the list holds.
template <class Pointer>
class ListWalk {
 public:
  explicit ListWalk(const std::vector<Pointer>& nodes) : nodes_(nodes) {}

  class iterator {
   public:
    iterator(const Pointer* at, const Pointer* end) : at_(at), end_(end) {}
    auto& operator*() const { return **at_; }
    bool operator!=(const iterator& other) const { return at_ != other.at_; }
    iterator& operator++() {
      fetch_ahead(++at_, end_);
      return *this;
    }

   private:
    const Pointer *at_, *end_;
  };

  /// Asks for what a walk needs soon that has come to `at`.
  static void fetch_ahead(const Pointer* at, const Pointer* end) {
    constexpr std::ptrdiff_t kNodes = 16, kLists = 8, kValues = 4;
    const std::ptrdiff_t left = end - at;
    if (left > kNodes) fetch(&*at[kNodes], sizeof(Node));
    if (left > kLists) fetch_lists(*at[kLists]);
    if (left > kValues && !at[kValues]->results.empty()) fetch(at[kValues]->results[0], sizeof(Value));
  }

  iterator begin() const { return {nodes_.data(), nodes_.data() + nodes_.size()}; }
  iterator end() const { return {nodes_.data() + nodes_.size(), nodes_.data() + nodes_.size()}; }

 private:
  static void fetch(const void* object, std::size_t bytes) {
    constexpr std::size_t kLine = 64;
    for (std::size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(static_cast<const char*>(object) + at);
  }
  static void fetch_lists(const Node& node) {
    __builtin_prefetch(node.operands.data());
    __builtin_prefetch(node.results.data());
    if (!node.attributes.empty()) __builtin_prefetch(&*node.attributes.begin());
  }

  const std::vector<Pointer>& nodes_;
};

/// The same over all nodes of a graph.
class NodeWalk : public ListWalk<std::unique_ptr<Node>> {
 public:
  explicit NodeWalk(const Graph& graph) : ListWalk(graph.nodes()) {}
};

/// A table over the values of one graph, those that come later included; `T()` is what stands for nothing.
template <class T>
class ValueTable {
 public:
  explicit ValueTable(const Graph& graph) : entries_(graph.numbered()) {}
  T& operator[](const Value* value) {
    if (value->number >= entries_.size()) entries_.resize(std::max(value->number + 1, entries_.size() * 2));
    return entries_[value->number];
  }
  /// Of a value that was there when the table was made.
  const T& operator[](const Value* value) const { return entries_[value->number]; }
  T at(const Value* value) const { return value->number < entries_.size() ? entries_[value->number] : T(); }

 private:
  std::vector<T> entries_;
};

/// A set of values of one graph; values of others are not in it, nor is null.
class ValueSet {
 public:
  explicit ValueSet(const Graph& graph) : table_(graph) {}
  template <class Values>
  ValueSet(const Graph& graph, const Values& values) : table_(graph) {
    insert_all(values);
  }
  /// False if it was there.
  bool insert(const Value* value) {
    if (!value || contains(value)) return false;
    table_[value] = value;
    return true;
  }
  template <class Values>
  void insert_all(const Values& values) {
    for (const Value* value : values) insert(value);
  }
  bool contains(const Value* value) const { return value && table_.at(value) == value; }

 private:
  ValueTable<const Value*> table_;
};

/// A table over the nodes of one graph to which none is added meanwhile; `T()` is what stands for nothing.
template <class T>
class NodeTable {
 public:
  explicit NodeTable(const Graph& graph) : entries_(graph.numbered_nodes()) {}
  T& operator[](const Node* node) { return entries_[node->number]; }
  const T& operator[](const Node* node) const { return entries_[node->number]; }
  const T& at(const Node* node) const { return entries_.at(node->number); }

 private:
  std::vector<T> entries_;
};

/// Users of every value of a graph that stays as it is, in node order; a node appears once for each operand position.
class Users {
 public:
  explicit Users(const Graph& graph);
  std::span<Node* const> of(const Value* value) const {
    const std::uint32_t first = first_[value->number], end = first_[value->number + 1];
    return {nodes_.data() + first, end - first};
  }

 private:
  std::vector<std::uint32_t> first_;  ///< by value, and one behind the last
  std::vector<Node*> nodes_;
};

/// The same, for who changes them.
using Uses = std::unordered_map<const Value*, std::vector<Node*>>;
Uses uses_of(const Graph& graph);

/// A deep copy; `map`, where given, receives old value -> new value.
Graph clone(const Graph& graph, std::unordered_map<const Value*, Value*>* map = nullptr);

/// Structural equality including names, attributes, types, order and loop nests; origins are not compared.
bool operator==(const Graph& a, const Graph& b);
/// Structural hash; names are left out.
std::size_t hash_of(const Graph& graph);

std::vector<TensorType> types_of(const std::vector<Value*>& values);

}  // namespace gcomp::ir
