#include "passes/row_dependence.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/integers.h"
#include "ir/expand.h"
#include "ir/ops/table.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// To be proven: an element whose index along `axis`, divided by `block`, is r modulo the number of rows depends on row r of the
/// inputs alone. Rows of what is laid out by time first, [time, batch] as one axis, repeat.
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
    const std::int64_t period = rows_ * claimed.block;
    if (!along || nest.extents[at(*along)] % period != 0) return false;
    const std::int64_t repeats = nest.extents[at(*along)] / period;
    for (std::size_t i = 0; i < output.index.size(); ++i)
      if (output.index[i].has_loaded() || (static_cast<std::int64_t>(i) != claimed.axis && names_row(output.index[i], *along)))
        return false;
    const int row = static_cast<int>(nest.extents.size()), rest = row + 1, repeat = row + 2;
    TermRewriter split;
    split.axis = [&](int number, std::int64_t extent) {
      if (number != *along) return Index::axis(number, extent);
      const Index within = Index::axis(row, rows_) * claimed.block + Index::axis(rest, claimed.block);
      return repeats == 1 ? within : Index::axis(repeat, repeats) * period + within;
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

  /// That by which an index along a dimension of `operand` says the row.
  std::optional<RowClaim> claim_of(const Value* operand, std::size_t d, const Index& index, int row) const {
    const std::int64_t extent = operand->type.shape[d];
    if (extent % rows_ != 0) return std::nullopt;
    for (const std::int64_t block : {extent / rows_, index.coefficient_of(row)})
      if (block > 0 && extent % (rows_ * block) == 0 && index.quotient(block).remainder(rows_) == Index::axis(row, rows_))
        return RowClaim{operand, static_cast<std::int64_t>(d), block};
    return std::nullopt;
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
      if (needed) return false;
      needed = claim_of(operand, d, term.indices[d], row);
      if (!needed) return false;
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

std::string place_of(const Value& value) {
  const Node* node = value.producer;
  return node && !node->origin.empty() ? node->origin.str() : value.name;
}

/// count_dependence() at work: goes through both graphs side by side.
class CountProof {
 public:
  CountProof(std::int64_t few_rows, std::int64_t more_rows) : few_rows_(few_rows), more_rows_(more_rows) {}

  std::optional<std::string> refute(const Graph& few, const Graph& more) {
    std::vector<Value*> from = few.inputs(), to = more.inputs();
    for (const State& state : few.states()) from.push_back(state.value);
    for (const State& state : more.states()) to.push_back(state.value);
    varying_.insert(few.inputs().begin(), few.inputs().end());
    for (std::size_t i = 0; i < from.size(); ++i)
      if (i >= to.size() || !pair(from[i], to[i])) return from[i]->name;
    for (std::size_t i = 0; i < few.nodes().size(); ++i) {
      const Node& node = *few.nodes()[i];
      if (i >= more.nodes().size() || !pair(node, *more.nodes()[i])) return place_of(*node.results[0]);
    }
    for (std::size_t i = 0; i < few.outputs().size(); ++i)
      if (i >= more.outputs().size() || !are_one(few.outputs()[i], more.outputs()[i])) return place_of(*few.outputs()[i]);
    return std::nullopt;
  }

 private:
  bool grows(std::int64_t few, std::int64_t more) const {
    return few == more || (few % few_rows_ == 0 && more % more_rows_ == 0 && few / few_rows_ == more / more_rows_);
  }
  bool grow(const std::vector<std::int64_t>& few, const std::vector<std::int64_t>& more) const {
    return std::ranges::equal(few, more, [&](std::int64_t a, std::int64_t b) { return grows(a, b); });
  }
  bool grows(const TensorType& few, const TensorType& more) const { return few.dtype == more.dtype && grow(few.shape, more.shape); }

  bool are_one(const Value* few, const Value* more) const {
    if (!few || !more) return few == more;
    const auto known = pairs_.find(few);
    return known != pairs_.end() && known->second == more;
  }
  bool pair(const Value* few, const Value* more) {
    pairs_.emplace(few, more);
    return grows(few->type, more->type);
  }

  bool pair(const Node& few, const Node& more) {
    if (few.op != more.op || !std::ranges::equal(few.operands, more.operands, [&](auto* a, auto* b) { return are_one(a, b); }) ||
        few.results.size() != more.results.size() ||
        !std::ranges::equal(few.attributes, more.attributes,
                            [&](const auto& a, const auto& b) { return a.first == b.first && grows(a.second, b.second); }))
      return false;
    const bool varies = std::ranges::any_of(few.operands, [&](const Value* operand) { return varying_.count(operand) > 0; });
    bool grown = false, kept = true;  // of operands one, of results none
    for (std::size_t i = 0; i < few.operands.size(); ++i)
      grown = grown || (few.operands[i] && few.operands[i]->type != more.operands[i]->type);
    for (std::size_t i = 0; i < few.results.size(); ++i) {
      if (!pair(few.results[i], more.results[i])) return false;
      kept = kept && few.results[i]->type == more.results[i]->type;
      if (varies) varying_.insert(few.results[i]);
    }
    return varies || !grown || !kept;  // what is made of constants along the rows, a sum of ones, counts them
  }

  bool grows(const Attribute& few, const Attribute& more) const {
    if (few.index() != more.index()) return false;
    if (const auto* number = std::get_if<std::int64_t>(&few)) return grows(*number, std::get<std::int64_t>(more));
    if (const auto* numbers = std::get_if<std::vector<std::int64_t>>(&few))
      return grow(*numbers, std::get<std::vector<std::int64_t>>(more));
    if (equal(few, more)) return true;
    const auto* tensor = std::get_if<std::shared_ptr<const Tensor>>(&few);
    return tensor && are_one_number(**tensor, *std::get<std::shared_ptr<const Tensor>>(more));
  }
  bool are_one_number(const Tensor& few, const Tensor& more) const {
    if (few.type() == more.type() || !grows(few.type(), more.type()) || few.elements() == 0 || more.elements() == 0) return false;
    const auto is_first = [&](const Tensor& tensor) {
      for (std::int64_t i = 0; i < tensor.elements(); ++i)
        if (tensor.at(i) != few.at(0)) return false;
      return true;
    };
    return is_first(few) && is_first(more);
  }

  std::int64_t few_rows_, more_rows_;
  std::unordered_map<const Value*, const Value*> pairs_;
  std::unordered_set<const Value*> varying_;  ///< of the graph of few rows: depend on some input
};

}  // namespace

std::optional<std::string> row_dependence(const Graph& graph, std::int64_t rows) {
  check_internal(rows > 1, "the rows of ", rows, " cannot be told apart");
  Graph expanded = clone(graph);
  expand(expanded);
  RowProof proof(expanded, rows);
  for (const Value* output : expanded.outputs()) {
    if (output->type.shape.empty() || output->type.shape[0] != rows) continue;
    if (const Value* found = proof.refute(output)) return place_of(*found);
  }
  return std::nullopt;
}

std::optional<std::string> count_dependence(const Graph& few, std::int64_t few_rows, const Graph& more, std::int64_t more_rows) {
  return CountProof(few_rows, more_rows).refute(few, more);
}

}  // namespace gcomp::passes
