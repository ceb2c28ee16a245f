#include "passes/views/destinations.h"

#include <algorithm>

#include "ir/nest/loops.h"
#include "ir/ops/table.h"
#include "passes/views/located.h"

namespace gcomp::passes {

using namespace ir;

namespace {

/// Whether the node reads the value as matrices alone, which may be views.
bool reads_as_matrix(const Node& node, const Value* value) {
  for (std::size_t i = static_cast<std::size_t>(node.op->matrices.operands); i < node.operands.size(); ++i)
    if (node.operands[i] == value) return false;
  return true;
}

}  // namespace

/// How far matrices that lie in one value are passed on together.
struct DestinationFinder::Journey {
  std::vector<std::size_t> matrices;
  std::vector<Located> located;  ///< one for each matrix
  std::vector<Shape> shapes;     ///< of the matrices
  Destination best;
  Node* concat = nullptr;  ///< where it ends; `located` is then in its operand

  /// Takes the place that has been reached where each matrix is a view there and together they fill it.
  void note(const Node& node, const Takes& takes) {
    Destination found{located[0].value, {}};
    std::vector<StridedView> views;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      const std::optional<StridedView> view = view_of(located[i], shapes[i]);
      if (!view || !takes(node, *view)) return;
      views.push_back(*view);
      found.views.emplace(matrices[i], *view);
    }
    if (fill_once(views, found.value->type.elements())) best = std::move(found);
  }
};

DestinationFinder::DestinationFinder(const Graph& graph) : uses_(uses_of(graph)) {
  for (const Value* output : graph.outputs()) outputs_.insert(output);
}

void DestinationFinder::find_readers(const Value* value, Readers& readers) const {
  readers.is_output = readers.is_output || outputs_.count(value) > 0;
  const auto users = uses_.find(value);
  if (users == uses_.end()) return;
  for (Node* user : users->second) {
    const Kind kind = user->op->kind;
    readers.summed = readers.summed || user->op->reduction.of == Reduction::Of::sum;
    if (user->op->alias) find_readers(user->result(), readers);
    else if (user->op == &ops::kTranspose || user->op == &ops::kConcat) readers.movers.emplace_back(user, value);
    else if (kind == Kind::composite && reads_as_matrix(*user, value)) readers.viewers.push_back(user);
    else if (kind == Kind::contract || kind == Kind::composite || kind == Kind::kernel || kind == Kind::update)
      readers.opaque.push_back(user);
  }
}

DestinationFinder::Readers DestinationFinder::readers_of(const Value* value) const {
  Readers readers;
  find_readers(value, readers);
  return readers;
}

void DestinationFinder::advance(const Node& node, const Takes& takes, Journey& journey) const {
  while (true) {
    const Readers readers = readers_of(journey.located[0].value);
    if (readers.fixed() || readers.movers.size() != 1) return;
    const auto [mover, read] = readers.movers[0];
    for (Located& located : journey.located) located = through_reshape(located, const_cast<Value*>(read));
    if (mover->op == &ops::kConcat) return void(journey.concat = mover);
    for (Located& located : journey.located) located = through_transpose(located, *mover);
    journey.note(node, takes);
  }
}

/// Journeys that are all of a concat's operands go on as one.
void DestinationFinder::go_on_together(const Node& node, const Takes& takes, std::vector<Journey>& journeys) const {
  for (const Journey& first : journeys) {
    if (!first.concat) continue;
    const Node& concat = *first.concat;
    Journey together;
    const auto axis = static_cast<std::size_t>(concat.attributes.integer("axis"));
    std::int64_t offset = 0;
    for (const Value* operand : concat.operands) {
      const auto part = std::find_if(journeys.begin(), journeys.end(), [&](const Journey& j) {
        return j.concat == &concat && j.located.size() == 1 && j.located[0].value == operand;
      });
      if (part == journeys.end()) break;
      Located located{concat.result(), part->located[0].at};
      located.at[axis] = located.at[axis] + Index(offset);
      offset += operand->type.shape[axis];
      together.matrices.push_back(part->matrices[0]);
      together.shapes.push_back(part->shapes[0]);
      together.located.push_back(std::move(located));
    }
    if (together.matrices.size() != concat.operands.size()) continue;
    together.note(node, takes);
    advance(node, takes, together);
    if (together.best.views.empty()) continue;
    for (std::size_t matrix : together.matrices) journeys[matrix].best = together.best;
  }
}

std::vector<Destination> DestinationFinder::find(const Node& node, const Takes& takes) const {
  const std::vector<Matrix> matrices = matrices_of(node).results;
  std::vector<Journey> journeys;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    Value* result = node.results[matrices[i].value];
    journeys.push_back({.matrices = {i},
                        .located = {{result, axes_of_shape(matrices[i].shape)}},
                        .shapes = {matrices[i].shape},
                        .best = {result, {}}});
    advance(node, takes, journeys.back());
  }
  go_on_together(node, takes, journeys);
  std::vector<Destination> destinations;
  for (Journey& journey : journeys) destinations.push_back(std::move(journey.best));
  return destinations;
}

}  // namespace gcomp::passes
