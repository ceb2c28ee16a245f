#include "passes/attention/view_attention.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "ir/attention_views.h"
#include "ir/nest/loops.h"
#include "ir/ops/table.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::size_t kReadMatrices = 3;  // q, k and v: their types say the sizes while they are dense

bool is_attention(const Node& node) { return node.op == &ops::kAttention || node.op == &ops::kAttentionGradient; }

/// Each element of a matrix, by the axes of its shape, in a value.
struct Located {
  Value* value = nullptr;
  std::vector<Index> at;
};

/// Nothing where the elements have no stride for each axis, or a row's are not neighbours.
std::optional<StridedView> view_of(const Located& located, const Shape& matrix) {
  const Index position = linear_index(located.at, located.value->type.shape);
  StridedView view{position.constant(), std::vector<std::int64_t>(matrix.size())};
  for (const Index::Part& part : position.parts()) {
    if (part.atom.kind != IndexAtom::Kind::axis || part.coefficient < 0) return std::nullopt;
    view.strides[static_cast<std::size_t>(part.atom.axis)] = part.coefficient;
  }
  if (matrix.back() > 1 && view.strides.back() != 1) return std::nullopt;
  return view;
}

/// What a view shows, in its operand; nothing where it is not one element of one operand.
std::optional<Located> shown_by(const Node& node, const std::vector<Index>& at) {
  if (node.op->kind != Kind::view) return std::nullopt;
  const LoopNest nest = loops_of(*node.op, types_of(node.operands), types_of(node.results), node.attributes);
  const TermPtr& term = nest.statements[0].value;
  if (term->kind != Term::Kind::read) return std::nullopt;
  Located shown{node.operands[static_cast<std::size_t>(term->slot)], term->indices};
  for (Index& index : shown.at)
    index = index.substitute([&](int axis, std::int64_t) { return at[static_cast<std::size_t>(axis)]; },
                             [](const TermPtr& loaded) { return loaded; });
  return shown;
}

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

/// Whether a value will be in memory even if only a part of it is read as it lies.
bool is_stored(const Value* value) {
  if (!value->producer || follows_product(value)) return true;
  const OpDef& op = *value->producer->op;
  return op.kind == Kind::composite || op.kind == Kind::kernel || op.kind == Kind::reduce || &op == &ops::kConstant;
}

Located through_reshape(const Located& from, Value* to) {
  return {to, split_index(linear_index(from.at, from.value->type.shape), to->type.shape)};
}
Located through_transpose(const Located& from, const Node& transpose) {
  Located to{transpose.result(), {}};
  for (const std::int64_t axis : transpose.attributes.integers("permutation"))
    to.at.push_back(from.at[static_cast<std::size_t>(axis)]);
  return to;
}

/// Results of an attention that lie in one value.
struct Destination {
  Value* value = nullptr;
  std::map<std::size_t, StridedView> views;  ///< by the matrix' number; empty for one that stays dense where it is
};

class AttentionViewer {
 public:
  AttentionViewer(const Graph& graph, const std::function<bool(const Node&)>& whole) : whole_(whole), uses_(uses_of(graph)) {
    for (const Value* output : graph.outputs()) outputs_.insert(output);
    for (const auto& node : graph.nodes())
      if (is_attention(*node)) destinations_.emplace(node.get(), destinations_of(*node));
  }

  std::optional<std::vector<Value*>> rewrite(Node& node, Builder& b) {
    if (node.op->kind == Kind::update) updated_.insert(node.operands[0]);
    if (is_attention(node)) return with_views(node, b);
    const auto moved = node.results.empty() ? moved_.end() : moved_.find(node.result());
    if (moved == moved_.end()) return std::nullopt;
    return std::vector{b.reshape(b.wrap(moved->second), node.result()->type.shape).value};
  }

 private:
  /// Transposes and concats that read a value, itself or reshaped, each with what it reads.
  struct Readers {
    std::vector<std::pair<Node*, Value*>> movers;
    bool fixed = false;  ///< something reads the value as it lies
  };
  void find_readers(Value* value, Readers& readers) const {
    readers.fixed = readers.fixed || outputs_.count(value) > 0;
    const auto users = uses_.find(value);
    if (users == uses_.end()) return;
    for (Node* user : users->second) {
      const Kind kind = user->op->kind;
      if (user->op == &ops::kReshape) find_readers(user->result(), readers);
      else if (user->op == &ops::kTranspose || user->op == &ops::kConcat) readers.movers.emplace_back(user, value);
      else if (kind == Kind::contract || kind == Kind::composite || kind == Kind::kernel || kind == Kind::update)
        readers.fixed = true;
    }
  }

  /// How far matrices that lie in one value are passed on together.
  struct Journey {
    std::vector<std::size_t> matrices;
    std::vector<Located> located;  ///< one for each matrix
    Destination best;
    Node* concat = nullptr;  ///< where it ends; `located` is then in its operand
  };

  static void note(Journey& journey, const std::vector<AttentionMatrix>& all) {
    Destination found{journey.located[0].value, {}};
    std::vector<AttentionMatrix> viewed;
    for (std::size_t i = 0; i < journey.matrices.size(); ++i) {
      const Shape& shape = all[journey.matrices[i]].shape;
      const std::optional<StridedView> view = view_of(journey.located[i], shape);
      if (!view) return;
      viewed.push_back({.view_name = {}, .shape = shape, .value = 0, .view = view});
      found.views.emplace(journey.matrices[i], *view);
    }
    if (fill_once(viewed, found.value->type.elements())) journey.best = std::move(found);
  }

  void advance(Journey& journey, const std::vector<AttentionMatrix>& all) const {
    while (true) {
      Readers readers;
      find_readers(journey.located[0].value, readers);
      if (readers.fixed || readers.movers.size() != 1) return;
      const auto [mover, read] = readers.movers[0];
      for (Located& located : journey.located) located = through_reshape(located, read);
      if (mover->op == &ops::kConcat) return void(journey.concat = mover);
      for (Located& located : journey.located) located = through_transpose(located, *mover);
      note(journey, all);
    }
  }

  /// Journeys that are all of a concat's operands, as one; nothing where there are others.
  static std::optional<Journey> joined(const Node& concat, const std::vector<Journey>& journeys) {
    Journey together;
    const std::int64_t axis = concat.attributes.integer("axis");
    std::int64_t offset = 0;
    for (const Value* operand : concat.operands) {
      const auto part = std::find_if(journeys.begin(), journeys.end(), [&](const Journey& j) {
        return j.concat == &concat && j.located.size() == 1 && j.located[0].value == operand;
      });
      if (part == journeys.end()) return std::nullopt;
      Located located{concat.result(), part->located[0].at};
      Index& along = located.at[static_cast<std::size_t>(axis)];
      along = along + Index(offset);
      offset += operand->type.shape[static_cast<std::size_t>(axis)];
      together.matrices.push_back(part->matrices[0]);
      together.located.push_back(std::move(located));
    }
    return together;
  }

  std::vector<Destination> destinations_of(const Node& node) const {
    const std::vector<AttentionMatrix> matrices = attention_matrices_of(node).results;
    std::vector<Journey> journeys;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      Value* result = node.results[matrices[i].value];
      if (matrices[i].view) return {};
      Journey journey{.matrices = {i}, .located = {{result, axes_of_shape(matrices[i].shape)}}, .best = {result, {}}};
      advance(journey, matrices);
      journeys.push_back(std::move(journey));
    }
    for (std::size_t i = 0; i < journeys.size(); ++i) {
      if (!journeys[i].concat) continue;
      std::optional<Journey> together = joined(*journeys[i].concat, journeys);
      if (!together) continue;
      note(*together, matrices);
      advance(*together, matrices);
      if (together->best.views.empty()) continue;
      for (std::size_t matrix : together->matrices) journeys[matrix].best = together->best;
    }
    std::vector<Destination> destinations;
    for (Journey& journey : journeys) destinations.push_back(std::move(journey.best));
    return destinations;
  }

  /// The base of a matrix, as far up as it may be read from; the operand itself where there is none.
  std::pair<Value*, StridedView> base_of(Value* operand, const AttentionMatrix& matrix) const {
    std::pair<Value*, StridedView> base{operand, matrix.view_or_dense()};
    std::optional<Located> located = Located{operand, axes_of_shape(matrix.shape)};
    while (located->value->producer && (located = shown_by(*located->value->producer, located->at))) {
      const std::optional<StridedView> view = view_of(*located, matrix.shape);
      const bool whole = located->value->type.elements() == operand->type.elements();
      if (view && (whole || is_stored(located->value)) && !updated_.count(located->value)) base = {located->value, *view};
    }
    return base;
  }

  std::optional<std::vector<Value*>> with_views(Node& node, Builder& b) {
    AttentionMatrices matrices = attention_matrices_of(node);
    Attributes attributes = node.attributes;
    std::vector<Var> operands;
    for (Value* operand : node.operands) operands.push_back(b.wrap(operand));
    bool any = false, sizes = false;
    for (const AttentionMatrix& m : matrices.operands) {
      if (m.view) return std::nullopt;
      const auto& [base, view] = base_of(node.operands[m.value], m);
      if (base == node.operands[m.value]) continue;
      operands[m.value] = b.wrap(base);
      attributes.set(std::string(m.view_name), view.as_attribute());
      sizes = sizes || m.value < kReadMatrices;
      any = true;
    }
    const std::vector<Destination>& destinations = destinations_.at(&node);
    std::vector<std::int64_t> results;
    std::vector<Value*> values;
    for (std::size_t i = 0; i < destinations.size(); ++i) {
      AttentionMatrix& m = matrices.results[i];
      const auto known = std::find(values.begin(), values.end(), destinations[i].value);
      results.push_back(known - values.begin());
      m.value = static_cast<std::size_t>(results.back());
      if (known == values.end()) values.push_back(destinations[i].value);
      if (destinations[i].views.empty()) continue;
      m.view = destinations[i].views.at(i);
      attributes.set(std::string(m.view_name), m.view->as_attribute());
      any = true;
    }
    if (!any) return std::nullopt;
    if (sizes) attributes.set("sizes", sizes_of(matrices));
    if (values.size() < results.size()) attributes.set("results", results);
    const std::vector<Var> made = b.apply_many(*node.op, operands, attributes);
    if (whole_ && !whole_(*made[0].value->producer)) return std::nullopt;
    return replacements(node, b, matrices.results, made, values);
  }

  static std::vector<std::int64_t> sizes_of(const AttentionMatrices& m) {
    std::vector<std::int64_t> sizes = m.scores;
    sizes.insert(sizes.end(), {m.operands[0].shape.back(), m.operands[2].shape.back()});
    return sizes;
  }

  /// What takes the place of the results; what lies where the views want it is remembered.
  std::vector<Value*> replacements(const Node& node, Builder& b, const std::vector<AttentionMatrix>& matrices,
                                   const std::vector<Var>& made, const std::vector<Value*>& values) {
    std::vector<Value*> replaced;
    for (const AttentionMatrix& m : matrices) {
      replaced.push_back(m.view ? matrix_in(b, made[m.value], m).value : made[m.value].value);
      if (m.view) moved_.emplace(values[m.value], made[m.value].value);
    }
    for (std::size_t i = replaced.size(); i < node.results.size(); ++i) replaced.push_back(made[i].value);
    return replaced;
  }

  /// The matrix as reshapes, a slice and a transpose show it.
  static Var matrix_in(Builder& b, Var value, const AttentionMatrix& m) {
    const ElementRuns runs = *runs_of(m.shape, *m.view);
    Var x = b.reshape(value, {runs.count, value.type().elements() / runs.count});
    if (x.dim(1) != runs.length) x = b.slice_axis(x, 1, runs.offset, runs.length);
    const std::vector<std::int64_t> order = dimensions_by_stride(m.shape, *m.view);
    Shape ordered;
    std::vector<std::int64_t> inverse(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      ordered.push_back(m.shape[static_cast<std::size_t>(order[i])]);
      inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
    }
    return b.transpose(b.reshape(x, ordered), inverse);
  }

  const std::function<bool(const Node&)>& whole_;
  const Uses uses_;
  std::unordered_set<const Value*> outputs_, updated_;
  std::unordered_map<const Node*, std::vector<Destination>> destinations_;  ///< one for each matrix
  std::unordered_map<const Value*, Value*> moved_;                          ///< values that attention writes, by what they replace
};

}  // namespace

bool view_attention(Graph& graph, const std::function<bool(const Node&)>& whole) {
  AttentionViewer viewer(graph, whole);
  const bool any = rewrite(graph, [&](Node& node, Builder& b) { return viewer.rewrite(node, b); }) > 0;
  graph.remove_dead();
  return any;
}

}  // namespace gcomp::passes
