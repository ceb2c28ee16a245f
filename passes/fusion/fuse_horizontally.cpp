// What is done alike to many parameters becomes one kernel over many segments: their casts to 16 bits before step 2 of fusion,
// the optimizer's formulas after it.

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "ir/base/hash.h"
#include "passes/fusion/fusion_units.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::int64_t kAnyExtent = std::int64_t{1} << 40;  // stands for the segment's own extent in the shared nest

/// The nest over one flat axis, if the unit is a map that reads every operand at its own point or as a scalar.
std::optional<LoopNest> flattened(const FusionUnit& unit) {
  if (!unit.is_nest() || unit.fixed || unit.results.empty() || unit.results[0]->type.shape.empty()) return std::nullopt;
  const Shape& shape = unit.results[0]->type.shape;
  Shape without_ones = shape;
  std::erase(without_ones, 1);
  if (unit.nest.extents != without_ones) return std::nullopt;
  auto plain = [&](const std::vector<Index>& indices) {
    int next = 0;
    for (std::size_t d = 0; d < indices.size(); ++d) {
      if (!(indices[d] == Index::axis(next, shape[d]))) return false;
      next += shape[d] != 1;
    }
    return indices.size() == shape.size();
  };
  bool ok = true;
  LoopNest flat;
  flat.extents = {kAnyExtent};
  const Index point = Index::axis(0, kAnyExtent);
  TermRewriter rewriter;
  rewriter.leaf = [&](const TermPtr& t) -> TermPtr {
    if (t->kind != Term::Kind::read) return nullptr;
    if (t->indices.empty()) return t;
    ok = ok && plain(t->indices) && unit.operands[static_cast<std::size_t>(t->slot)]->type.shape == shape;
    return read(t->dtype, t->slot, {point});
  };
  for (const Statement& s : unit.nest.statements) {
    if (s.kind != Statement::Kind::map || s.axes.size() != without_ones.size()) return std::nullopt;
    for_each_term(s.value, [&](const TermPtr& t) { ok = ok && t->kind != Term::Kind::index && t->kind != Term::Kind::guard; });
    Statement moved = s;
    moved.axes = {0};
    moved.value = rewriter(s.value);
    flat.statements.push_back(std::move(moved));
  }
  for (const LoopOutput& output : unit.nest.outputs) {
    ok = ok && plain(output.index) && !output.accumulate;
    flat.outputs.push_back({output.statement, {point}, false});
  }
  return ok ? std::optional(flat) : std::nullopt;
}

/// Operand slots in the order of first reading, so that equal formulas give equal nests.
void canonicalize(LoopNest& nest, std::vector<Value*>& operands) {
  std::vector<int> slot(operands.size(), -1);
  std::vector<Value*> ordered;
  TermRewriter renumber;
  renumber.leaf = [&](const TermPtr& t) -> TermPtr {
    if (t->kind != Term::Kind::read) return nullptr;
    int& to = slot[static_cast<std::size_t>(t->slot)];
    if (to < 0) {
      to = static_cast<int>(ordered.size());
      ordered.push_back(operands[static_cast<std::size_t>(t->slot)]);
    }
    return read(t->dtype, to, t->indices);
  };
  for (Statement& s : nest.statements) s.value = renumber(s.value);
  operands = std::move(ordered);
}

/// Units of one formula, fused as they come.
class Groups {
 public:
  explicit Groups(std::int64_t most_bytes) : most_bytes_(most_bytes) {}

  /// False if the unit is no flat map; then it stays where it is.
  bool take(FusionUnit& unit, std::string_view what) {
    std::optional<LoopNest> flat = flattened(unit);
    if (!flat) return false;
    std::vector<Value*> operands = unit.operands;
    canonicalize(*flat, operands);
    std::int64_t bytes = 0;
    for (const Value* result : unit.results) bytes += result->type.bytes();
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const FusionUnit& g) {
      return g.nest == *flat && g.results.size() == static_cast<std::size_t>(g.segments) * unit.results.size() &&
             bytes_[static_cast<std::size_t>(&g - groups_.data())] <= most_bytes_ - bytes;
    });
    if (group == groups_.end()) {
      FusionUnit made;
      made.nest = std::move(*flat);
      made.origin = concat(what, " of ", (unit.results[0]->name.empty() ? operands : unit.results)[0]->name);
      made.fixed = true;
      groups_.push_back(std::move(made));
      bytes_.push_back(0);
      group = groups_.end() - 1;
    }
    bytes_[static_cast<std::size_t>(group - groups_.begin())] += bytes;
    group->operands.insert(group->operands.end(), operands.begin(), operands.end());
    group->results.insert(group->results.end(), unit.results.begin(), unit.results.end());
    ++group->segments;
    return true;
  }
  void move_to(std::vector<FusionUnit>& units) {
    for (FusionUnit& unit : groups_) units.push_back(std::move(unit));
  }
  bool are_bounded() const { return most_bytes_ < INT64_MAX; }

  /// Each before the first of `others` that reads one of its results.
  std::vector<FusionUnit> before_readers(std::vector<FusionUnit> others) {
    std::unordered_map<const Value*, std::size_t> maker;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (const Value* result : groups_[g].results) maker[result] = g;
    std::vector<char> placed(groups_.size());
    std::vector<FusionUnit> made;
    for (FusionUnit& unit : others) {
      for (const Value* operand : unit.operands)
        if (const auto found = maker.find(operand); found != maker.end() && !std::exchange(placed[found->second], 1))
          made.push_back(std::move(groups_[found->second]));
      made.push_back(std::move(unit));
    }
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (!placed[g]) made.push_back(std::move(groups_[g]));
    return made;
  }

  /// Each after the last of `others` that makes one of its operands.
  std::vector<FusionUnit> after_operands(std::vector<FusionUnit> others) {
    std::unordered_map<const Value*, std::vector<std::size_t>> readers;
    std::vector<std::size_t> last(groups_.size());  // 1 past it
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (const Value* operand : groups_[g].operands) readers[operand].push_back(g);
    for (std::size_t u = 0; u < others.size(); ++u)
      for (const Value* result : others[u].results)
        if (const auto found = readers.find(result); found != readers.end())
          for (const std::size_t g : found->second) last[g] = u + 1;
    std::vector<std::vector<std::size_t>> behind(others.size() + 1);
    for (std::size_t g = 0; g < groups_.size(); ++g) behind[last[g]].push_back(g);
    std::vector<FusionUnit> made;
    for (std::size_t u = 0; u <= others.size(); ++u) {
      if (u > 0) made.push_back(std::move(others[u - 1]));
      for (const std::size_t g : behind[u]) made.push_back(std::move(groups_[g]));
    }
    return made;
  }

 private:
  std::int64_t most_bytes_;
  std::vector<FusionUnit> groups_;
  std::vector<std::int64_t> bytes_;  // of the results of each
};

bool is_update(const FusionUnit& unit) { return unit.node && unit.node->op->kind == Kind::update; }

}  // namespace

void fuse_parameter_casts(std::vector<FusionUnit>& units, std::int64_t most_bytes) {
  if (std::none_of(units.begin(), units.end(), is_update)) return;
  Groups casts(most_bytes);
  std::vector<FusionUnit> rest;
  for (FusionUnit& unit : units)
    if (!unit.parameter_cast || !casts.take(unit, "cast")) rest.push_back(std::move(unit));
  units.clear();
  if (casts.are_bounded()) {
    units = casts.before_readers(std::move(rest));
    return;
  }
  casts.move_to(units);
  for (FusionUnit& unit : rest) units.push_back(std::move(unit));
}

void fuse_updates(std::vector<FusionUnit>& units, const Graph& graph, std::int64_t most_bytes) {
  std::unordered_map<const Value*, std::vector<const FusionUnit*>> readers;
  for (const FusionUnit& unit : units)
    for (const Value* operand : unit.operands)
      if (operand) readers[operand].push_back(&unit);
  const std::set<const Value*> outputs(graph.outputs().begin(), graph.outputs().end());
  auto feeds_updates_only = [&](const FusionUnit& unit) {
    return std::all_of(unit.results.begin(), unit.results.end(), [&](const Value* v) {
      const auto& users = readers[v];
      return !outputs.count(v) && !users.empty() &&
             std::all_of(users.begin(), users.end(), [](const FusionUnit* u) { return is_update(*u); });
    });
  };
  Groups groups(most_bytes);
  std::vector<FusionUnit> rest;
  for (FusionUnit& unit : units)
    if (!unit.is_nest() || !feeds_updates_only(unit) || !groups.take(unit, "update")) rest.push_back(std::move(unit));
  // Updates come last of all: every reader of a state is before them, and so are all gradients.
  units.clear();
  for (FusionUnit& unit : rest)
    if (!is_update(unit)) units.push_back(std::move(unit));
  if (groups.are_bounded()) units = groups.after_operands(std::move(units));
  else groups.move_to(units);
  for (FusionUnit& unit : rest)
    if (is_update(unit)) units.push_back(std::move(unit));
}

}  // namespace gcomp::passes
