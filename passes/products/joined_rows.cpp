#include "passes/products/joined_rows.h"

#include <algorithm>

#include "ir/ops/table.h"

namespace gcomp::passes {

using namespace ir;

namespace {

/// What a matrix is a cast of, without aliases; itself where it is none.
const Value* source_of(const Value* matrix) {
  const Value* value = unaliased(matrix);
  return value->producer && is_cast(*value->producer->op) ? unaliased(value->producer->operands[0]) : value;
}

bool is_cast_of(const Value* matrix) { return source_of(matrix) != unaliased(matrix); }

bool joins_rows(const Node& node) { return node.op == &ops::kConcat && node.attributes.integer("axis") == 0; }

}  // namespace

RowFinder::RowFinder(const Graph& graph) : users_(graph) {
  for (const auto& node : graph.nodes()) position_.emplace(node.get(), position_.size());
}

const RowFinder::Offsets& RowFinder::offsets_in(const Node& concat) {
  const auto [known, added] = offsets_.try_emplace(&concat);
  if (!added) return known->second;
  std::int64_t offset = 0;
  for (const Value* operand : concat.operands) {
    known->second.emplace(unaliased(operand), offset);
    offset += operand->type.elements();
  }
  return known->second;
}

std::optional<RowFinder::Place> RowFinder::place_of(const Value* matrix) {
  const Value* source = source_of(matrix);
  std::vector<const Value*> shown{source};
  for (std::size_t i = 0; i < shown.size(); ++i)
    for (const Node* user : users_.of(shown[i])) {
      if (user->op->alias) shown.push_back(user->results[0]);
      else if (joins_rows(*user)) return Place{user, offsets_in(*user).at(source)};
    }
  return std::nullopt;
}

bool RowFinder::is_ready(const Node& concat, const Node& reader) const {
  return std::ranges::all_of(concat.operands, [&](const Value* operand) {
    const Node* producer = unaliased(operand)->producer;
    return !producer || position_.at(producer) < position_.at(&reader);
  });
}

std::vector<RowRun> RowFinder::runs_of(const std::vector<Value*>& matrices, const Node& reader) {
  std::vector<RowRun> runs;
  std::int64_t end = 0;  // of the last run, in elements
  for (Value* matrix : matrices) {
    const std::optional<Place> place = place_of(matrix);
    const std::int64_t width = matrix->type.shape[1];
    const bool goes_on = !runs.empty() && place && runs.back().concat == place->concat && end == place->offset &&
                         is_cast_of(runs.back().matrices[0]) == is_cast_of(matrix);
    if (goes_on) {
      runs.back().matrices.push_back(matrix);
    } else if (place && place->offset % width == 0 && place->concat->result()->type.elements() % width == 0 &&
               is_ready(*place->concat, reader)) {
      runs.push_back({{matrix}, place->concat, place->offset / width});
    } else {
      runs.push_back({{matrix}});
    }
    if (place) end = place->offset + matrix->type.elements();
  }
  for (RowRun& run : runs) {
    if (run.matrices.size() == 1) run.concat = nullptr;
    if (run.concat) run.reshaped_first = is_reshaped(*run.concat, run.matrices[0]->type.shape[1]);
  }
  return runs;
}

bool RowFinder::is_reshaped(const Node& concat, std::int64_t width) const {
  return std::ranges::any_of(users_.of(concat.result()), [&](const Node* reader) {
    return reader->op->alias && reader->result()->type.rank() == 2 && reader->result()->type.shape[1] == width;
  });
}

namespace {

/// In the order of cast and reshape in which the whole is read already.
Var rows_of(Builder& b, const RowRun& run) {
  const TensorType& type = run.matrices[0]->type;
  if (!run.concat) return b.wrap(run.matrices[0]);
  const Node& concat = *run.concat;
  std::vector<Var> operands;
  for (const Value* operand : concat.operands)
    operands.push_back(b.reshape(b.wrap(const_cast<Value*>(unaliased(operand))), operand->type.shape));
  Var all = b.concat(operands, 0);
  const Shape matrix{all.type().elements() / type.shape[1], type.shape[1]};
  all = run.reshaped_first ? b.cast(b.reshape(all, matrix), type.dtype) : b.reshape(b.cast(all, type.dtype), matrix);
  std::int64_t rows = 0;
  for (const Value* part : run.matrices) rows += part->type.shape[0];
  return b.slice_axis(all, 0, run.first_row, rows);
}

}  // namespace

Var joined_rows(Builder& b, const std::vector<RowRun>& runs) {
  std::vector<Var> parts;
  for (const RowRun& run : runs) parts.push_back(rows_of(b, run));
  return parts.size() == 1 ? parts[0] : b.concat(parts, 0);
}

}  // namespace gcomp::passes
