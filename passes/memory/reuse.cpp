#include "passes/memory/reuse.h"

#include <algorithm>
#include <optional>

#include "ir/ops/table.h"
#include "ir/segments.h"
#include "passes/fusion/nest_domains.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Reads and uses of one statement, and when it runs: statements of level k need reductions of level k - 1.
struct StatementFacts {
  struct Read {
    int slot;
    Index position;  ///< row-major, within the operand
  };
  std::vector<Read> reads;
  std::uint64_t needs = 0;  ///< operands that it reads, itself or where it computes the maps that it uses, as bits
  int level = 0;
};

/// Shapes under which a nest reads the operands and stores the results of one segment.
struct NestShapes {
  std::vector<Shape> operands, results;
};

StatementFacts facts_of(const Statement& statement, const NestShapes& shapes, const LoopNest& nest,
                        const std::vector<StatementFacts>& earlier) {
  StatementFacts facts;
  for_each_term(statement.value, [&](const TermPtr& term) {
    const auto slot = static_cast<std::size_t>(term->slot);
    if (term->kind == Term::Kind::read) {
      facts.reads.push_back({term->slot, linear_index(term->indices, shapes.operands[slot])});
      facts.needs |= std::uint64_t{1} << slot;
    } else if (term->kind == Term::Kind::local) {
      const bool map = nest.statements[slot].kind == Statement::Kind::map;
      facts.level = std::max(facts.level, earlier[slot].level + (map ? 0 : 1));
      if (map) facts.needs |= earlier[slot].needs;
    }
  });
  return facts;
}

/// What in-place pairs are asked of: all statements of one nest.
class NestFacts {
 public:
  NestFacts(const LoopNest& nest, NestShapes shapes) : nest_(nest), shapes_(std::move(shapes)) {
    for (const Statement& statement : nest.statements) {
      statements_.push_back(facts_of(statement, shapes_, nest, statements_));
      if (statement.kind != Statement::Kind::map) inner_ |= bits_of(statement.over);
      scans_ = scans_ || statement.kind == Statement::Kind::scan;
    }
    for (const LoopOutput& output : nest.outputs)
      for (const Index& index : output.index) find_reads(index);
    for (std::size_t a = 0; a < nest.extents.size(); ++a)
      if (nest.extents[a] > 1) wide_ |= std::uint64_t{1} << a;
  }

  bool may_overwrite(int slot, std::size_t result) const {
    const LoopOutput& output = nest_.outputs[result];
    const Statement& store = nest_.statements[static_cast<std::size_t>(output.statement)];
    if (output.accumulate || read_by_stores_ >> slot & 1) return false;
    const Index position = linear_index(output.index, shapes_.results[result]);
    const std::uint64_t axes = bits_of(store.axes) & wide_;
    if (!enumerates(position, axes) || (wide_ & ~inner_ & ~axes) != 0) return false;
    bool read = false;
    for (std::size_t s = 0; s < statements_.size(); ++s) {
      for (const auto& r : statements_[s].reads)
        if (r.slot == slot && !(r.position == position)) return false;
      if (!(statements_[s].needs >> slot & 1)) continue;
      read = true;
      if (!runs_before_store(s, static_cast<std::size_t>(output.statement))) return false;
    }
    return read;
  }

 private:
  /// Loaded indices of a store may read operands too.
  void find_reads(const Index& index) {
    for (const auto& part : index.parts()) {
      if (part.atom.inner) find_reads(*part.atom.inner);
      if (part.atom.value)
        for_each_term(part.atom.value, [&](const TermPtr& t) {
          if (t->kind == Term::Kind::read) read_by_stores_ |= std::uint64_t{1} << t->slot;
        });
    }
  }

  /// Whether `position` takes each value from 0 on once while the axes run: a mixed-radix number with the axes as digits.
  bool enumerates(const Index& position, std::uint64_t axes) const {
    if (position.constant() != 0) return false;
    std::vector<std::pair<std::int64_t, int>> digits;
    for (const auto& part : position.parts()) {
      if (part.atom.kind != IndexAtom::Kind::axis) return false;
      digits.emplace_back(part.coefficient, part.atom.axis);
    }
    std::sort(digits.begin(), digits.end());
    std::int64_t weight = 1;
    for (const auto& [coefficient, axis] : digits) {
      if (coefficient != weight || !(axes >> axis & 1)) return false;
      weight *= nest_.extents[static_cast<std::size_t>(axis)];
      axes &= ~(std::uint64_t{1} << axis);
    }
    return axes == 0;
  }

  /// Whether `s` reads before the store, or at the same point of the same pass.
  bool runs_before_store(std::size_t s, std::size_t store) const {
    const Statement &reader = nest_.statements[s], &writer = nest_.statements[store];
    if (s == store || statements_[s].level < statements_[store].level) return true;
    return !scans_ && statements_[s].level == statements_[store].level && writer.kind == Statement::Kind::map &&
           points_of(reader) == points_of(writer);
  }

  std::uint64_t points_of(const Statement& s) const { return (bits_of(s.axes) | bits_of(s.over)) & wide_; }

  const LoopNest& nest_;
  NestShapes shapes_;
  std::vector<StatementFacts> statements_;
  std::uint64_t inner_ = 0;           ///< axes that a statement reduces or scans
  std::uint64_t wide_ = 0;            ///< axes of more than one step
  std::uint64_t read_by_stores_ = 0;  ///< operands that the stores' own indices read
  bool scans_ = false;
};

/// The same element size and count, so that equal positions are equal bytes.
bool same_layout(const TensorType& a, const TensorType& b) {
  return size_of(a.dtype) == size_of(b.dtype) && a.elements() == b.elements();
}

std::vector<InPlacePair> pairs_of_kernel(const Node& node) {
  const bool has_segments = node.op == &ops::kMultiKernel;
  const auto [segments, operands, results, alike] =
      has_segments ? segments_of(node) : Segments{1, node.operands.size(), node.results.size(), true};
  if (operands > 64) return {};
  NestShapes shapes;
  const auto shapes_of = [](const std::vector<TensorType>& types) {
    std::vector<Shape> each;
    for (const TensorType& type : types) each.push_back(type.shape);
    return each;
  };
  shapes.operands = shapes_of(has_segments ? operand_types_in_nest(node) : types_of(node.operands));
  shapes.results = shapes_of(has_segments ? result_types_in_nest(node) : types_of(node.results));
  const NestFacts facts(*node.nest, shapes);
  std::vector<InPlacePair> pairs;
  for (std::size_t r = 0; r < results; ++r)
    for (std::size_t o = 0; o < operands; ++o) {
      if (!facts.may_overwrite(static_cast<int>(o), r)) continue;
      for (std::size_t s = 0; s < segments; ++s) {
        const Value *operand = node.operands[s * operands + o], *result = node.results[s * results + r];
        if (operand && same_layout(operand->type, result->type))
          pairs.push_back({static_cast<int>(s * results + r), static_cast<int>(s * operands + o)});
      }
    }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

std::vector<InPlacePair> pairs_of_pointwise(const Node& node) {
  std::vector<InPlacePair> pairs;
  for (std::size_t i = 0; i < node.operands.size(); ++i)
    if (same_layout(node.operands[i]->type, node.result()->type)) pairs.push_back({0, static_cast<int>(i)});
  return pairs;
}

bool keeps_every_element(const Node& node) {
  if (node.operands.size() != 1 || !same_layout(node.operands[0]->type, node.result()->type)) return false;
  const TensorType operand = node.operands[0]->type, result = node.result()->type;
  const LoopNest nest = loops_of(*node.op, {&operand, 1}, {&result, 1}, node.attributes);
  if (nest.statements.size() != 1 || nest.outputs.size() != 1 || nest.outputs[0].accumulate) return false;
  const TermPtr& value = nest.statements[0].value;
  return nest.statements[0].kind == Statement::Kind::map && value->kind == Term::Kind::read &&
         linear_index(value->indices, operand.shape) == linear_index(nest.outputs[0].index, result.shape);
}

}  // namespace

Reuse reuse_of(const Node& node) {
  Reuse reuse;
  switch (node.op->kind) {
    case Kind::kernel:
      if (node.op != &ops::kProduct) reuse.in_place = pairs_of_kernel(node);
      break;
    case Kind::pointwise: reuse.in_place = pairs_of_pointwise(node); break;
    case Kind::view: reuse.alias = keeps_every_element(node); break;
    case Kind::constant:
    case Kind::reduce:
    case Kind::contract:
    case Kind::index:
    case Kind::scan:
    case Kind::random:
    case Kind::update:
    case Kind::collective:
    case Kind::barrier:
    case Kind::composite: break;
  }
  return reuse;
}

ReuseTable reuse_of(const Graph& graph) {
  ReuseTable table(graph);
  for (const Node& node : NodeWalk(graph)) table[&node] = reuse_of(node);
  return table;
}

}  // namespace gcomp::passes
