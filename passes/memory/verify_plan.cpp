#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "passes/memory/plan_memory.h"
#include "passes/memory/reuse.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Whose contents each byte of one space holds: [key, end) belongs to `owner`.
class ByteOwners {
 public:
  void write(std::int64_t first, std::int64_t end, const Value* owner) {
    if (first == end) return;
    split(first);
    split(end);
    spans_.erase(spans_.lower_bound(first), spans_.lower_bound(end));
    spans_[first] = {end, owner};
  }

  /// The value whose contents stand in [first, end) though `owner`'s should, or `owner` itself; null for bytes never written.
  const Value* other_than(std::int64_t first, std::int64_t end, const Value* owner) const {
    std::int64_t covered = first;
    auto it = spans_.upper_bound(first);
    if (it != spans_.begin()) --it;
    for (; it != spans_.end() && it->first < end && covered < end; ++it) {
      if (it->second.end <= covered) continue;
      if (it->first > covered) return nullptr;
      if (it->second.owner != owner) return it->second.owner;
      covered = it->second.end;
    }
    return covered >= end ? owner : nullptr;
  }

  bool any_in(std::int64_t first, std::int64_t end) const {
    auto it = spans_.lower_bound(end);
    return it != spans_.begin() && std::prev(it)->second.end > first;
  }

 private:
  struct Span {
    std::int64_t end;
    const Value* owner;
  };

  void split(std::int64_t at) {
    auto it = spans_.lower_bound(at);
    if (it == spans_.begin()) return;
    --it;
    if (it->second.end <= at) return;
    spans_[at] = it->second;
    it->second.end = at;
  }

  std::map<std::int64_t, Span> spans_;
};

/// Where a value lies; looked up once for the many operands and results of an optimizer kernel.
struct Extent {
  const Value* value = nullptr;
  MemorySpace space = MemorySpace::arena;
  std::int64_t offset = 0, end = 0;
};

/// Extents by where they lie, to find those that overlap one without looking at all.
class ExtentIndex {
 public:
  /// `extents` stays as it is while this is in use.
  void assign(const std::vector<Extent>& extents) {
    entries_.clear();
    for (std::size_t i = 0; i < extents.size(); ++i)
      if (extents[i].offset < extents[i].end) entries_.push_back({&extents[i], i, 0});
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return a.extent->space != b.extent->space ? a.extent->space < b.extent->space : a.extent->offset < b.extent->offset;
    });
    const Entry* before = nullptr;
    for (Entry& entry : entries_) {
      const bool follows = before && before->extent->space == entry.extent->space;
      entry.reach = follows ? std::max(before->reach, entry.extent->end) : entry.extent->end;
      before = &entry;
    }
  }

  /// Places of those that share bytes with `extent`, other than the value's own; ascending.
  const std::vector<std::size_t>& overlapping(const Extent& extent) {
    found_.clear();
    if (extent.offset >= extent.end) return found_;
    auto it = std::partition_point(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.extent->space != extent.space ? entry.extent->space < extent.space : entry.extent->offset < extent.end;
    });
    while (it != entries_.begin() && (--it)->extent->space == extent.space && it->reach > extent.offset)
      if (it->extent->end > extent.offset && it->extent->value != extent.value) found_.push_back(it->number);
    std::sort(found_.begin(), found_.end());
    return found_;
  }

 private:
  struct Entry {
    const Extent* extent;
    std::size_t number;
    std::int64_t reach;  ///< the greatest end of this one and those before it in the space
  };
  std::vector<Entry> entries_;
  std::vector<std::size_t> found_;
};

/// Runs the graph over owners instead of numbers.
class PlanVerifier {
 public:
  PlanVerifier(const Graph& graph, const MemoryPlan& plan, const PlanOptions& options)
      : graph_(graph), plan_(plan), options_(options), places_(graph), contents_(graph), states_(graph) {
    for (const auto& [value, placement] : plan.placements) places_[value] = &placement;
    for (const State& state : graph.states()) states_.insert(state.value);
  }

  void run() {
    for (const State& state : graph_.states()) start(state.value, MemorySpace::state);
    for (const Value* input : graph_.inputs()) start(input, MemorySpace::io);
    inputs_ = extents_of(graph_.inputs());
    by_place_.inputs.assign(inputs_);
    for (const Node& node : NodeWalk(graph_))
      if (node.op->kind == Kind::constant && place(node.result()).space == MemorySpace::constant)
        start(node.result(), MemorySpace::constant);
    for (const Node& node : NodeWalk(graph_)) run(node);
    for (const Value* output : graph_.outputs()) check_read(output, [] { return "the graph's outputs"; });
    check_states();
    if (plan_.lower_bound > plan_.arena_bytes)
      fail("arena of ", plan_.arena_bytes, " bytes below its lower bound of ", plan_.lower_bound);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(const Args&... args) const {
    throw InternalError(concat("memory plan of @", graph_.name(), ": ", concat(args...)));
  }

  const Placement& place(const Value* value) const {
    const Placement* placement = places_.at(value);
    if (!placement) fail("%", value->name, " has no place");
    return *placement;
  }
  std::int64_t end_of(const Value* value) const { return place(value).offset + value->type.bytes(); }
  ByteOwners& owners(MemorySpace space) { return owners_[static_cast<std::size_t>(space)]; }

  std::string where(const Value* value) const {
    const Placement& p = place(value);
    return concat("%", value->name, " at ", name_of(p.space), "[", p.offset, ", ", end_of(value), ")");
  }

  std::int64_t size_of_space(MemorySpace space) const {
    switch (space) {
      case MemorySpace::arena: return plan_.arena_bytes;
      case MemorySpace::state: return plan_.state_bytes;
      case MemorySpace::constant: return plan_.constant_bytes;
      case MemorySpace::io: return plan_.io_bytes;
    }
    return 0;
  }

  void check_bounds(const Value* value) const {
    const Placement& p = place(value);
    if (p.offset % options_.alignment != 0) fail(where(value), " is not aligned to ", options_.alignment, " bytes");
    if (p.offset < 0 || end_of(value) > size_of_space(p.space))
      fail(where(value), " lies outside the ", size_of_space(p.space), " bytes of its space");
  }

  /// Values that hold their contents before the first node.
  void start(const Value* value, MemorySpace space) {
    check_bounds(value);
    const Placement& p = place(value);
    if (p.space != space || p.alias_of) fail(where(value), " must have a place of its own in space ", name_of(space));
    if (value->type.bytes() != 0 && owners(space).any_in(p.offset, end_of(value)))
      fail(where(value), " overlaps another value of its space");
    write(value);
  }

  const Value* contents_of(const Value* value) const {
    const Value* contents = contents_.at(value);
    return contents ? contents : value;
  }

  void write(const Value* value) { owners(place(value).space).write(place(value).offset, end_of(value), contents_of(value)); }

  static std::string name_of_node(const Node& node) {
    return node.results.empty() ? std::string(node.op->name) : concat(node.op->name, " %", node.result()->name);
  }

  /// `reader` gives the name of who reads.
  template <class Reader>
  void check_read(const Value* value, const Reader& reader) {
    const Value* found = owners(place(value).space).other_than(place(value).offset, end_of(value), contents_of(value));
    if (value->type.bytes() == 0 || found == contents_of(value)) return;
    fail(reader(), " read ", where(value), found ? ", overwritten by " + where(found) : ", never written");
  }

  void run(const Node& node) {
    if (node.op->kind == Kind::update) return update(*node.operands[0], *node.operands[1]);
    if (node.op->kind == Kind::view && place(node.result()).alias_of == node.operands[0] && reuse_of(node).alias) {
      check_bounds(node.result());
      check_alias(node.operands[0], node.result());
      contents_[node.result()] = contents_of(node.operands[0]);
      return;
    }
    for (const Value* operand : node.operands)
      if (operand) check_read(operand, [&] { return name_of_node(node); });
    check_results(node);
    if (node.op->kind == Kind::constant && place(node.result()).space == MemorySpace::constant) return;
    for (const Value* result : node.results) write(result);
  }

  void check_alias(const Value* target, const Value* value) const {
    const bool same = place(target).space == place(value).space && place(target).offset == place(value).offset &&
                      target->type.bytes() == value->type.bytes();
    if (!same) fail(where(value), " must have the place of ", where(target));
  }

  std::vector<Extent> extents_of(const std::vector<Value*>& values) const {
    std::vector<Extent> extents;
    for (const Value* value : values)
      extents.push_back(value ? Extent{value, place(value).space, place(value).offset, end_of(value)} : Extent{});
    return extents;
  }

  void check_results(const Node& node) {
    std::optional<Reuse> reuse;  // costly for large kernels, and few results lie over operands
    const std::vector<Extent> results = extents_of(node.results), operands = extents_of(node.operands);
    by_place_.results.assign(results);
    by_place_.operands.assign(operands);
    for (std::size_t r = 0; r < results.size(); ++r) {
      check_place(node, results[r]);
      for (std::size_t other : by_place_.results.overlapping(results[r]))
        if (other < r) fail(where(node.results[r]), " overlaps ", where(node.results[other]), ", a result of the same node");
      for (std::size_t i : by_place_.operands.overlapping(results[r])) {
        if (!reuse) reuse = reuse_of(node);
        check_in_place(node, i, r, *reuse);
      }
    }
  }

  void check_in_place(const Node& node, std::size_t i, std::size_t r, const Reuse& reuse) const {
    const Value *operand = node.operands[i], *result = node.results[r];
    if (!reuse.may_overwrite(static_cast<int>(i), static_cast<int>(r)))
      fail(where(result), " overlaps its operand ", where(operand), ", which ", node.op->name, " may not overwrite");
    if (!place(result).alias_of) fail(where(result), " overlaps its operand ", where(operand), " but is no alias");
    check_alias(operand, result);
  }

  void check_place(const Node& node, const Extent& extent) {
    const Value* result = extent.value;
    check_bounds(result);
    const Placement& p = place(result);
    if (node.op->kind != Kind::constant && p.space == MemorySpace::constant) fail(where(result), " is computed in constant memory");
    if (p.alias_of) {
      check_alias(p.alias_of, result);
      const auto is_operand = [&] {
        return std::find(node.operands.begin(), node.operands.end(), p.alias_of) != node.operands.end();
      };
      if (!states_.contains(p.alias_of) && !is_operand())
        fail(where(result), " is an alias of %", p.alias_of->name, ", neither an operand nor a state");
    }
    if (p.space == MemorySpace::state && !p.alias_of) fail(where(result), " lies in state memory but is no alias of a state");
    for (std::size_t input : by_place_.inputs.overlapping(extent))
      fail(where(result), " overlaps ", where(inputs_[input].value), ", an input");
  }

  void update(const Value& state, const Value& value) {
    check_read(&value, [&] { return concat("update %", state.name); });
    contents_[&state] = contents_of(&value);
    write(&state);
  }

  /// Every state ends as its update left it, or as it began.
  void check_states() {
    for (const State& state : graph_.states()) check_read(state.value, [] { return "the end of the step"; });
  }

  const Graph& graph_;
  const MemoryPlan& plan_;
  const PlanOptions& options_;
  std::array<ByteOwners, 4> owners_;
  std::vector<Extent> inputs_;
  struct {
    ExtentIndex inputs, results, operands;
  } by_place_;
  ValueTable<const Placement*> places_;
  ValueTable<const Value*> contents_;  ///< whose elements a value has, where not its own
  ValueSet states_;
};

}  // namespace

void verify_plan(const Graph& graph, const MemoryPlan& plan, const PlanOptions& options) {
  PlanVerifier(graph, plan, options).run();
}

}  // namespace gcomp::passes
