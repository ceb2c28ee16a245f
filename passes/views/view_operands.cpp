#include "passes/views/view_operands.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "ir/matrices.h"
#include "ir/nest/loops.h"
#include "ir/rewrite.h"
#include "passes/views/destinations.h"
#include "passes/views/located.h"

namespace gcomp::passes {
namespace {

using namespace ir;

bool has_unit_rows(const StridedView& view) { return view.shape.back() == 1 || view.strides.back() == 1; }

/// Whether a value is a product's, or a part of it, or computed from one element by element, as a sum with the bias is.
bool follows_product(const Value* value) {
  std::vector<const Value*> open{value};
  std::unordered_set<const Value*> seen;
  while (!open.empty()) {
    const Value* next = open.back();
    open.pop_back();
    if (!next->producer || !seen.insert(next).second) continue;
    const Node& node = *next->producer;
    if (node.op->kind == Kind::contract) return true;
    if (node.op->kind != Kind::pointwise && node.op->kind != Kind::view) continue;
    for (const Value* operand : node.operands)
      if (operand->type.elements() >= value->type.elements()) open.push_back(operand);
  }
  return false;
}

/// Whether what makes a value stores it whatever reads it.
bool is_made_in_memory(const Value* value) {
  if (!value->producer) return true;
  const OpDef& op = *value->producer->op;
  return op.kind == Kind::contract || op.kind == Kind::composite || op.kind == Kind::kernel || op.kind == Kind::reduce ||
         (op.kind == Kind::constant && !op.loops);
}

/// A value that holds an operand, and where.
struct Base {
  Value* value = nullptr;
  StridedView view;
};

class Viewer {
 public:
  Viewer(const Graph& graph, const TargetInfo& target) : target_(target), finder_(graph) {
    std::set<OperandOf> viewable;
    for (const auto& node : graph.nodes()) {
      note_update(*node);
      if (!takes_views(*node)) continue;
      destinations_.emplace(node.get(), finder_.find(*node, takes()));
      for (std::size_t i = 0; i < matrices(*node); ++i)
        if (base_of(*node, i)) viewable.emplace(node.get(), i);
    }
    updated_.clear();
    spared_ = with_spared_copies(viewable);
  }

  std::optional<std::vector<Value*>> rewrite(Node& node, Builder& b) {
    note_update(node);
    if (takes_views(node)) return with_views(node, b);
    const auto moved = node.results.empty() ? moved_.end() : moved_.find(node.result());
    if (moved == moved_.end()) return std::nullopt;
    return std::vector{b.reshape(b.wrap(moved->second), node.result()->type.shape).value};
  }

 private:
  using OperandOf = std::pair<const Node*, std::size_t>;  ///< and its number

  static std::size_t matrices(const Node& node) { return static_cast<std::size_t>(node.op->matrices.operands); }

  void note_update(const Node& node) {
    if (node.op->kind == Kind::update) updated_.insert(node.operands[0]);
  }

  bool takes_views(const Node& node) const {
    if (node.op->matrices.operands == 0 || node.op->kind == Kind::kernel || has_views(node.attributes)) return false;
    if (node.op->kind == Kind::composite) return target_.is_legal(node);
    const auto is_empty = [](const Value* value) { return value && value->type.elements() == 0; };
    return target_.takes_view && !is_empty(node.result()) && std::ranges::none_of(node.operands, is_empty);
  }
  bool takes(const Node& node, const StridedView& view) const {
    return node.op->kind == Kind::composite ? has_unit_rows(view) : target_.takes_view(node, view);
  }
  DestinationFinder::Takes takes() const {
    return [this](const Node& node, const StridedView& view) { return takes(node, view); };
  }

  /// Whether a value will be in memory even if only a part of it is read as it lies.
  bool is_stored(const Node& reader, Value* value) const {
    if (is_made_in_memory(value)) return true;
    if (reader.op->kind == Kind::composite) return follows_product(value);
    const auto [known, added] = read_as_they_lie_.try_emplace(value, false);
    if (added) known->second = finder_.readers_of(value).fixed();
    return known->second;
  }

  /// As far up as the operand may be read from; nothing where that is the operand itself.
  std::optional<Base> base_of(const Node& node, std::size_t i) const {
    Value* operand = node.operands[i];
    const Shape& shape = operand->type.shape;
    const bool attention = node.op->kind == Kind::composite;
    const Node* copy = unaliased(operand)->producer;
    if (!attention && (!copy || copy->op->kind != Kind::view)) return std::nullopt;
    std::optional<Base> base;
    std::optional<Located> located = Located{operand, axes_of_shape(shape)};
    while (located->value->producer && (located = shown_by(*located->value->producer, located->at))) {
      Value* value = located->value;
      const std::optional<StridedView> view = view_of(*located, shape);
      const bool whole = value->type.elements() == operand->type.elements();
      const bool stored = (attention && whole) || is_stored(node, value);
      if (!view || !stored || updated_.count(value) || !takes(node, *view)) continue;
      if (!attention && whole && *view == StridedView::dense(shape)) continue;  // a reshape, which is no copy
      base = {value, *view};
    }
    return base;
  }

  /// Of the operands that can be views those whose copy nothing needs any more once all of them are.
  std::set<OperandOf> with_spared_copies(const std::set<OperandOf>& viewable) const {
    std::unordered_map<const Value*, bool> copies;
    std::set<OperandOf> spared;
    for (const OperandOf& operand : viewable) {
      const Value* copy = unaliased(operand.first->operands[operand.second]);
      const auto [known, added] = copies.try_emplace(copy, false);
      if (added) known->second = is_spared(copy, viewable);
      if (known->second) spared.insert(operand);
    }
    return spared;
  }

  /// A sum of rows is to become part of the product that reads them as they lie.
  bool is_spared(const Value* copy, const std::set<OperandOf>& viewable) const {
    const DestinationFinder::Readers readers = finder_.readers_of(copy);
    if (readers.is_output || (target_.computes_epilogue && readers.summed)) return false;
    const auto views_it = [&](const Node* reader) {
      for (std::size_t i = 0; i < reader->operands.size(); ++i)
        if (reader->operands[i] && unaliased(reader->operands[i]) == copy && !viewable.count({reader, i})) return false;
      return true;
    };
    return std::ranges::all_of(readers.opaque, views_it) && std::ranges::all_of(readers.viewers, views_it);
  }

  /// Where the results of a node are to lie. A product writes in another order only what is then read from memory.
  std::vector<Destination> destinations_for(const Node& node) const {
    std::vector<Destination> found = destinations_.at(&node);
    if (node.op->kind == Kind::contract && !finder_.readers_of(found[0].value).fixed()) found[0] = {node.result(), {}};
    return found;
  }

  std::optional<std::vector<Value*>> with_views(Node& node, Builder& b) {
    Attributes attributes = node.attributes;
    std::vector<Var> operands;
    for (Value* operand : node.operands) operands.push_back(b.wrap(operand));
    Views operand_views, result_views;
    for (std::size_t i = 0; i < matrices(node); ++i) {
      if (node.op->kind == Kind::contract && !spared_.count({&node, i})) continue;
      std::optional<Base> base = base_of(node, i);
      if (!base) continue;
      operands[i] = b.wrap(base->value);
      operand_views.resize(i + 1);
      operand_views[i] = std::move(base->view);
    }
    std::vector<Matrix> matrices = matrices_of(node).results;
    const std::vector<Destination> destinations = destinations_for(node);
    std::vector<std::int64_t> results;
    std::vector<Value*> values;
    for (std::size_t i = 0; i < destinations.size(); ++i) {
      const auto known = std::find(values.begin(), values.end(), destinations[i].value);
      results.push_back(known - values.begin());
      matrices[i].value = static_cast<std::size_t>(results.back());
      if (known == values.end()) values.push_back(destinations[i].value);
      if (destinations[i].views.empty()) continue;
      matrices[i].view = destinations[i].views.at(i);
      result_views.resize(i + 1);
      result_views[i] = matrices[i].view;
    }
    if (operand_views.empty() && result_views.empty()) return std::nullopt;
    if (!operand_views.empty()) attributes.set(std::string(kOperandViews), operand_views);
    if (!result_views.empty()) attributes.set(std::string(kResultViews), result_views);
    if (values.size() < results.size()) attributes.set(std::string(kResults), results);
    const std::vector<Var> made = b.apply_many(*node.op, operands, attributes);
    const Node& viewed = *made[0].value->producer;
    if (viewed.op->kind == Kind::composite && !target_.is_legal(viewed)) return std::nullopt;
    return replacements(node, b, matrices, made, values);
  }

  /// What takes the place of the results; what lies where the views want it is remembered.
  std::vector<Value*> replacements(const Node& node, Builder& b, const std::vector<Matrix>& matrices, const std::vector<Var>& made,
                                   const std::vector<Value*>& values) {
    std::vector<Value*> replaced;
    for (const Matrix& m : matrices) {
      replaced.push_back(m.view ? matrix_in(b, made[m.value], *m.view).value : made[m.value].value);
      if (m.view) moved_.emplace(values[m.value], made[m.value].value);
    }
    for (std::size_t i = replaced.size(); i < node.results.size(); ++i) replaced.push_back(made[i].value);
    return replaced;
  }

  /// The matrix as reshapes, a slice and a transpose show it.
  static Var matrix_in(Builder& b, Var value, const StridedView& view) {
    const ElementRuns runs = *runs_of(view);
    Var x = b.reshape(value, {runs.count, value.type().elements() / runs.count});
    if (x.dim(1) != runs.length) x = b.slice_axis(x, 1, runs.offset, runs.length);
    const std::vector<std::int64_t> order = dimensions_by_stride(view);
    Shape ordered;
    std::vector<std::int64_t> inverse(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      ordered.push_back(view.shape[static_cast<std::size_t>(order[i])]);
      inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
    }
    return b.transpose(b.reshape(x, ordered), inverse);
  }

  const TargetInfo& target_;
  const DestinationFinder finder_;
  std::unordered_set<const Value*> updated_;
  std::unordered_map<const Node*, std::vector<Destination>> destinations_;  ///< one for each matrix
  std::set<OperandOf> spared_;
  mutable std::unordered_map<const Value*, bool> read_as_they_lie_;
  std::unordered_map<const Value*, Value*> moved_;  ///< values that nodes write through views, by what they replace
};

}  // namespace

bool view_operands(Graph& graph, const TargetInfo& target) {
  if (!target.legal_composite && !target.takes_view) return false;
  Viewer viewer(graph, target);
  const bool any = rewrite(graph, [&](Node& node, Builder& b) { return viewer.rewrite(node, b); }) > 0;
  return graph.remove_dead() > 0 || any;
}

}  // namespace gcomp::passes
