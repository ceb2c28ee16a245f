#include "passes/row_dependence.h"

#include <set>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/integers.h"
#include "ir/expand.h"
#include "ir/ops/table.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// To be proven: an element whose index along `axis`, divided by `block`, is r depends on row r of the inputs alone.
struct RowClaim {
  const Value* value = nullptr;
  std::int64_t axis = 0, block = 1;

  auto key() const { return std::tuple(value, axis, block); }
};

/// Whether an index names a row itself; by a loaded position it only looks something up.
bool names_row(const Index& index, int row) {
  for (const Index::Part& part : index.parts()) {
    if (part.atom.kind == IndexAtom::Kind::axis && part.atom.axis == row) return true;
    if (part.atom.inner && names_row(*part.atom.inner, row)) return true;
  }
  return false;
}

class RowProof {
 public:
  RowProof(const Graph& graph, std::int64_t rows) : rows_(rows) {
    for (const Value* input : graph.inputs()) {
      varying_.insert(input);
      if (!input->type.shape.empty() && input->type.shape[0] == rows) batched_.insert(input);
    }
    for (const Node& node : NodeWalk(graph))
      for (const Value* operand : node.operands)
        if (operand && varying_.count(operand)) varying_.insert(node.results.begin(), node.results.end());
  }

  /// The value with which a proof of `output` fails; null where it succeeds.
  const Value* refute(const Value* output) {
    claim({output, 0, 1});
    while (!open_.empty()) {
      const RowClaim next = open_.back();
      open_.pop_back();
      if (!holds(next)) return next.value;
    }
    return nullptr;
  }

 private:
  void claim(const RowClaim& made) {
    if (claimed_.insert(made.key()).second) open_.push_back(made);
  }

  bool holds(const RowClaim& claimed) {
    const Value* value = claimed.value;
    if (batched_.count(value)) return claimed.axis == 0 && claimed.block == 1;
    if (!value->producer) return false;
    const Node& node = *value->producer;
    if (splat_value(value)) return true;
    if (node.op->kind == Kind::barrier && node.result() == value) return holds({node.operands[0], claimed.axis, claimed.block});
    if (node.op->kind == Kind::constant || node.op->kind == Kind::update || node.op->kind == Kind::collective) return false;
    std::vector<TensorType> operands;
    for (const Value* operand : node.operands) operands.push_back(operand ? operand->type : TensorType());
    const LoopNest nest =
        node.nest ? *node.nest : loops_of(*node.op, operands, types_of(node.results), with_defaults(*node.op, node.attributes));
    return holds_in(nest, node, nest.outputs[at(value->index)], claimed);
  }

  /// Splits the axis that runs along the claimed one into row and rest, and looks at everything that the output is made of.
  bool holds_in(const LoopNest& nest, const Node& node, const LoopOutput& output, const RowClaim& claimed) {
    const std::optional<int> along = output.index[at(claimed.axis)].as_axis();
    if (!along || nest.extents[at(*along)] != rows_ * claimed.block) return false;
    for (std::size_t i = 0; i < output.index.size(); ++i)
      if (output.index[i].has_loaded() || (static_cast<std::int64_t>(i) != claimed.axis && names_row(output.index[i], *along)))
        return false;
    const int row = static_cast<int>(nest.extents.size()), rest = row + 1;
    TermRewriter split;
    split.axis = [&](int number, std::int64_t extent) {
      if (number != *along) return Index::axis(number, extent);
      return Index::axis(row, rows_) * claimed.block + Index::axis(rest, claimed.block);
    };
    std::vector<int> statements = {output.statement};
    for (std::size_t i = 0; i < statements.size(); ++i) {
      const Statement& statement = nest.statements[at(statements[i])];
      if (contains(statement.over, *along)) return false;
      bool apart = true;
      for_each_term(split(statement.value), [&](const TermPtr& term) {
        if (term->kind == Term::Kind::local && !contains(statements, term->slot)) statements.push_back(term->slot);
        apart = apart && is_apart(*term, node, row);
      });
      if (!apart) return false;
    }
    return true;
  }

  /// Claims what the term needs of an operand; false where it depends on other rows or on the row's number.
  bool is_apart(const Term& term, const Node& node, int row) {
    for (const Condition& condition : term.conditions)
      if (names_row(condition.index, row)) return false;
    if (term.kind == Term::Kind::index) return !names_row(term.indices[0], row);
    if (term.kind != Term::Kind::read) return true;
    const Value* operand = node.operands[at(term.slot)];
    std::optional<RowClaim> needed;
    for (std::size_t d = 0; d < term.indices.size(); ++d) {
      if (!names_row(term.indices[d], row)) continue;
      const std::int64_t extent = operand->type.shape[d];
      if (needed || extent % rows_ != 0) return false;
      needed = RowClaim{operand, static_cast<std::int64_t>(d), extent / rows_};
      if (!(term.indices[d].quotient(needed->block) == Index::axis(row, rows_))) return false;
    }
    if (needed) claim(*needed);
    return needed || !varying_.count(operand);
  }

  std::int64_t rows_;
  std::unordered_set<const Value*> varying_;  ///< depend on some input
  std::unordered_set<const Value*> batched_;  ///< inputs that are rows
  std::set<std::tuple<const Value*, std::int64_t, std::int64_t>> claimed_;
  std::vector<RowClaim> open_;
};

}  // namespace

std::optional<std::string> row_dependence(const Graph& graph, std::int64_t rows) {
  check_internal(rows > 1, "the rows of ", rows, " cannot be told apart");
  Graph expanded = clone(graph);
  expand(expanded);
  RowProof proof(expanded, rows);
  for (const Value* output : expanded.outputs()) {
    if (output->type.shape.empty() || output->type.shape[0] != rows) continue;
    if (const Value* found = proof.refute(output)) {
      const Node* node = found->producer;
      return node && !node->origin.empty() ? node->origin.str() : found->name;
    }
  }
  return std::nullopt;
}

}  // namespace gcomp::passes
