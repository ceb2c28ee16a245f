// Between steps 2 and 3 of fusion: a kernel computes what it would read, where what that is made of is read anyway.
//
// The backward pass of a ReLU behind a batch norm asks which results were positive. Its kernel reads the norm's input in any case:
// with a few numbers a channel it can tell without reading the results. And the masked gradient is then made of that input and of
// the gradient, so that the next kernel, which reads the input too, reads the gradient in its place, and nobody stores it.

#include <algorithm>

#include "ir/op.h"
#include "passes/fusion/fusion_units.h"
#include "passes/fusion/kernel_body.h"
#include "passes/fusion/nest_domains.h"

namespace gcomp::passes {
namespace {

using namespace ir;

std::size_t place(int number) { return static_cast<std::size_t>(number); }

/// The term of one result in what the unit reads, at the point at which it is stored; null where a reduction is part of it, or an
/// index that is looked up.
TermPtr formula_of(const FusionUnit& unit, std::size_t output) {
  const LoopNest& nest = unit.nest;
  std::vector<TermPtr> formulas;
  TermRewriter rewriter;
  rewriter.leaf = [&](const TermPtr& t) { return t->kind == Term::Kind::local ? formulas[place(t->slot)] : TermPtr(); };
  const int wanted = nest.outputs[output].statement;
  bool is_map = !nest.outputs[output].accumulate && !looks_up(nest);
  for (int s = 0; is_map && s <= wanted; ++s) {
    const Statement& statement = nest.statements[place(s)];
    // What a reduction gives stands for itself: no read has its slot.
    const bool maps = statement.kind == Statement::Kind::map;
    formulas.push_back(maps ? rewriter(statement.value) : local(statement.dtype, s));
  }
  if (!is_map) return nullptr;
  for_each_term(formulas[place(wanted)], [&](const TermPtr& t) { is_map = is_map && t->kind != Term::Kind::local; });
  return is_map ? formulas[place(wanted)] : nullptr;
}

bool compares_floats(const FusionUnit& unit) {
  bool found = false;
  for (const Statement& s : unit.nest.statements)
    for_each_term(s.value, [&](const TermPtr& t) {
      found = found || (t->kind == Term::Kind::call && t->op->equality && is_float(t->arguments[0]->dtype));
    });
  return found;
}

int count_terms(const LoopNest& nest) {
  int count = 0;
  for (const Statement& s : nest.statements) for_each_term(s.value, [&](const TermPtr&) { ++count; });
  return count;
}

/// An index through one reshape after another holds the first many times over: longer ones are read from memory.
constexpr int kLongestIndex = 16;  // quotients, remainders and axes

/// How many of these an index holds, counted up to one more than are allowed.
int length_of(const Index& index) {
  int length = 0;
  for (const Index::Part& part : index.parts()) {
    length += 1 + (part.atom.inner ? length_of(*part.atom.inner) : 0);
    if (length > kLongestIndex) break;
  }
  return length;
}
bool are_short(const std::vector<Index>& indices) {
  return std::ranges::all_of(indices, [](const Index& index) { return length_of(index) <= kLongestIndex; });
}
bool has_short_indices(const TermPtr& formula) {
  bool all = true;
  for_each_term(formula, [&](const TermPtr& t) { all = all && are_short(t->indices); });
  return all;
}

/// A unit that computes what it read before, and the bytes of large arrays that it reads in its place.
struct Recomputed {
  int unit = 0;
  Body body;
  std::int64_t added_bytes = 0;
};

/// Makes one of a reader of a value, whose formula is in terms of its maker's operands and axes.
class ReadReplacer {
 public:
  ReadReplacer(const FusionUnit& reader, const FusionUnit& maker, std::size_t output)
      : reader_(reader), maker_(maker), value_(maker.results[output]), stored_(maker.nest.outputs[output].index) {
    for (std::size_t i = 0; i < reader.operands.size(); ++i)
      if (reader.operands[i] == value_) slot_ = static_cast<int>(i);
    for (const Statement& s : reader.nest.statements)
      for_each_term(s.value, [&](const TermPtr& t) {
        if (t->kind == Term::Kind::read) reads_.push_back(t.get());
      });
  }

  std::optional<Recomputed> run(const TermPtr& formula, const FuseOptions& options) {
    if (!map_axes()) return std::nullopt;
    made_.body = {reader_.nest, reader_.operands};
    const TermPtr term = translated(formula);
    if (!term) return std::nullopt;
    TermRewriter rewriter;
    rewriter.leaf = [&](const TermPtr& t) { return t->kind == Term::Kind::read && t->slot == slot_ ? term : TermPtr(); };
    for (Statement& s : made_.body.nest.statements) s.value = rewriter(s.value);
    made_.body.prune();
    const bool fits =
        made_.body.operands.size() <= place(options.max_operands) && count_terms(made_.body.nest) <= options.max_terms;
    return fits ? std::optional(std::move(made_)) : std::nullopt;
  }

 private:
  /// From the maker's axes to the one point at which the reader reads the value.
  bool map_axes() {
    const std::vector<Index>* point = nullptr;
    for (const Term* t : reads_) {
      if (t->slot != slot_) continue;
      if (point && !(*point == t->indices)) return false;
      point = &t->indices;
    }
    if (!point || !are_short(*point)) return false;
    axes_.assign(maker_.nest.extents.size(), kUnmapped);
    for (std::size_t d = 0; d < stored_.size(); ++d) {
      if (value_->type.shape[d] == 1) continue;
      const std::optional<std::vector<int>> axes = mixed_radix(stored_[d], value_->type.shape[d]);
      if (!axes || !map_axes(*axes, (*point)[d])) return false;
    }
    return true;
  }

  /// The axes that an index counts through, the slowest first. False where one is mapped already.
  bool map_axes(const std::vector<int>& axes, Index index) {
    for (std::size_t i = axes.size(); i-- > 0;) {
      Index& mapped = axes_[place(axes[i])];
      if (!(mapped == kUnmapped)) return false;
      const std::int64_t extent = maker_.nest.extents[place(axes[i])];
      if (extent == 0) return false;  // nothing is computed there
      mapped = i > 0 ? index.remainder(extent) : index;
      index = index.quotient(extent);
    }
    return true;
  }

  /// The formula over the reader's axes and operands; null where it depends on an axis that the value has not.
  TermPtr translated(const TermPtr& formula) {
    bool mapped = true;
    TermRewriter rewriter;
    rewriter.axis = [&](int a, std::int64_t) {
      mapped = mapped && !(axes_[place(a)] == kUnmapped);
      return axes_[place(a)];
    };
    rewriter.leaf = [&](const TermPtr& t) {
      return t->kind == Term::Kind::read ? read(t->dtype, slot_of(maker_.operands[place(t->slot)], t->indices), t->indices)
                                         : TermPtr();
    };
    const TermPtr term = rewriter(formula);
    return mapped ? term : nullptr;
  }

  int slot_of(Value* operand, const std::vector<Index>& indices) {
    std::vector<Value*>& operands = made_.body.operands;
    const auto known = std::ranges::find(operands, operand);
    const int slot = static_cast<int>(known - operands.begin());
    if (known == operands.end()) operands.push_back(operand);
    const bool large = operand->type.elements() * 2 > value_->type.elements();
    const bool is_read = std::ranges::any_of(reads_, [&](const Term* t) { return t->slot == slot && t->indices == indices; });
    if (large && !is_read && std::ranges::find(added_, operand) == added_.end()) {
      added_.push_back(operand);
      made_.added_bytes += operand->type.bytes();
    }
    return slot;
  }

  const FusionUnit &reader_, &maker_;
  const Value* value_;
  const std::vector<Index>& stored_;
  int slot_ = -1;
  std::vector<const Term*> reads_;  ///< of the reader
  AxisMap axes_;
  std::vector<const Value*> added_;
  Recomputed made_;
};

class Recomputer {
 public:
  Recomputer(std::vector<FusionUnit>& units, const Graph& graph, const FuseOptions& options)
      : units_(units), options_(options), outputs_(graph, graph.outputs()), readers_(graph), updated_at_(graph) {
    for (std::size_t u = 0; u < units.size(); ++u) {
      const FusionUnit& unit = units[u];
      for (const Value* operand : unit.operands)
        if (operand) add_reader(operand, static_cast<int>(u));
      if (unit.node && unit.node->op->kind == Kind::update) updated_at_[unit.operands[0]] = static_cast<int>(u);
    }
  }

  void run() {
    for (FusionUnit& unit : units_) {
      if (!takes_part(unit)) continue;
      for (Value* result : std::vector<Value*>(unit.results)) visit(unit, result);
    }
    std::erase_if(units_, [](const FusionUnit& unit) { return unit.is_nest() && unit.results.empty(); });
  }

 private:
  static bool takes_part(const FusionUnit& unit) {
    return unit.is_nest() && !unit.fixed && !unit.update && !unit.parameter_cast && unit.segments == 0;
  }

  void add_reader(const Value* value, int unit) {
    std::vector<int>& readers = readers_[value];
    const auto at = std::ranges::lower_bound(readers, unit);
    if (at == readers.end() || *at != unit) readers.insert(at, unit);
  }

  void visit(FusionUnit& maker, Value* value) {
    const std::vector<int> readers = readers_[value];
    if (std::ranges::none_of(readers, [&](int r) { return may_compute(units_[place(r)], maker, *value); })) return;
    const auto output = static_cast<std::size_t>(std::ranges::find(maker.results, value) - maker.results.begin());
    const TermPtr formula = formula_of(maker, output);
    if (!formula || scalar_cost(formula) > options_.recompute_cost || !has_short_indices(formula) || decides_equality(value))
      return;
    bool stays = outputs_.contains(value);
    std::vector<Recomputed> in_its_place;
    for (const int r : readers) {
      std::optional<Recomputed> made = recomputed(r, maker, output, formula);
      if (made && made->added_bytes == 0) apply(value, *std::move(made));
      else if (made && made->added_bytes <= value->type.bytes()) in_its_place.push_back(*std::move(made));
      else stays = true;
    }
    if (stays) return;
    for (Recomputed& made : in_its_place) apply(value, std::move(made));
    drop_result(maker, output);
  }

  /// Whether a reader of a value is a kernel over its elements that may find what its maker reads: one large array, or one of
  /// several that it reads too.
  static bool may_compute(const FusionUnit& reader, const FusionUnit& maker, const Value& value) {
    // Each element once, not again for each of those that it is spread over.
    if (!takes_part(reader) || points(reader.nest, all_axes(reader.nest)) > value.type.elements()) return false;
    std::size_t large = 0;
    bool shared = false;
    for (const Value* operand : maker.operands) {
      if (operand->type.elements() * 2 <= value.type.elements()) continue;
      ++large;
      shared = shared || std::ranges::find(reader.operands, operand) != reader.operands.end();
    }
    return shared || large == 1;
  }

  /// Computed a second time it may differ in its last bit (inline_maps.cpp).
  bool decides_equality(const Value* value) {
    return is_float(value->type.dtype) && std::ranges::any_of(readers_[value], [&](int r) {
             return units_[place(r)].is_nest() && compares_floats(units_[place(r)]);
           });
  }

  std::optional<Recomputed> recomputed(int reader, const FusionUnit& maker, std::size_t output, const TermPtr& formula) {
    const FusionUnit& unit = units_[place(reader)];
    if (!may_compute(unit, maker, *maker.results[output]) || looks_up(unit.nest)) return std::nullopt;
    std::optional<Recomputed> made = ReadReplacer(unit, maker, output).run(formula, options_);
    if (!made || std::ranges::any_of(made->body.operands, [&](const Value* v) { return is_updated_before(v, reader); }))
      return std::nullopt;
    made->unit = reader;
    return made;
  }
  bool is_updated_before(const Value* value, int unit) {
    const int at = updated_at_[value];
    return at > 0 && at < unit;
  }

  void apply(const Value* value, Recomputed made) {
    FusionUnit& unit = units_[place(made.unit)];
    unit.nest = std::move(made.body.nest);
    unit.operands = std::move(made.body.operands);
    for (const Value* operand : unit.operands) add_reader(operand, made.unit);
    std::erase(readers_[value], made.unit);
  }

  static void drop_result(FusionUnit& unit, std::size_t output) {
    unit.results.erase(unit.results.begin() + static_cast<std::ptrdiff_t>(output));
    unit.nest.outputs.erase(unit.nest.outputs.begin() + static_cast<std::ptrdiff_t>(output));
    Body body{std::move(unit.nest), std::move(unit.operands)};
    body.prune();
    unit.nest = std::move(body.nest);
    unit.operands = std::move(body.operands);
  }

  std::vector<FusionUnit>& units_;
  const FuseOptions& options_;
  const ValueSet outputs_;
  ValueTable<std::vector<int>> readers_;  ///< units, ascending
  ValueTable<int> updated_at_;            ///< of states: the unit, which is never the first; 0 where none is
};

}  // namespace

void recompute_reads(std::vector<FusionUnit>& units, const Graph& graph, const FuseOptions& options) {
  Recomputer(units, graph, options).run();
}

}  // namespace gcomp::passes
