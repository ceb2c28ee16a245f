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

/// Runs the graph over owners instead of numbers.
class PlanVerifier {
 public:
  PlanVerifier(const Graph& graph, const MemoryPlan& plan, const PlanOptions& options)
      : graph_(graph), plan_(plan), options_(options) {}

  void run() {
    for (const State& state : graph_.states()) start(state.value, MemorySpace::state);
    for (const Value* input : graph_.inputs()) start(input, MemorySpace::io);
    inputs_ = extents_of(graph_.inputs());
    for (const auto& node : graph_.nodes())
      if (node->op->kind == Kind::constant && place(node->result()).space == MemorySpace::constant)
        start(node->result(), MemorySpace::constant);
    for (const auto& node : graph_.nodes()) run(*node);
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
    auto it = plan_.placements.find(value);
    if (it == plan_.placements.end()) fail("%", value->name, " has no place");
    return it->second;
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
    auto it = contents_.find(value);
    return it == contents_.end() ? value : it->second;
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

  /// Where a value lies; looked up once for the many pairs of an optimizer kernel.
  struct Extent {
    const Value* value;
    MemorySpace space;
    std::int64_t offset, end;
  };
  std::vector<Extent> extents_of(const std::vector<Value*>& values) const {
    std::vector<Extent> extents;
    for (const Value* value : values)
      extents.push_back(value ? Extent{value, place(value).space, place(value).offset, end_of(value)}
                              : Extent{nullptr, MemorySpace::arena, 0, 0});
    return extents;
  }
  static bool overlap(const Extent& a, const Extent& b) {
    return a.value != b.value && a.space == b.space && std::max(a.offset, b.offset) < std::min(a.end, b.end);
  }

  void check_results(const Node& node) const {
    std::optional<Reuse> reuse;  // costly for large kernels, and few results lie over operands
    const std::vector<Extent> results = extents_of(node.results), operands = extents_of(node.operands);
    for (std::size_t r = 0; r < results.size(); ++r) {
      check_place(node, node.results[r]);
      for (std::size_t other = 0; other < r; ++other)
        if (overlap(results[r], results[other]))
          fail(where(node.results[r]), " overlaps ", where(node.results[other]), ", a result of the same node");
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (overlap(results[r], operands[i])) {
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

  void check_place(const Node& node, const Value* result) const {
    check_bounds(result);
    const Placement& p = place(result);
    if (node.op->kind != Kind::constant && p.space == MemorySpace::constant) fail(where(result), " is computed in constant memory");
    if (p.alias_of) {
      check_alias(p.alias_of, result);
      const bool operand = std::find(node.operands.begin(), node.operands.end(), p.alias_of) != node.operands.end();
      if (!operand && !graph_.find_state(p.alias_of))
        fail(where(result), " is an alias of %", p.alias_of->name, ", neither an operand nor a state");
    }
    if (p.space == MemorySpace::state && !p.alias_of) fail(where(result), " lies in state memory but is no alias of a state");
    const Extent extent{result, p.space, p.offset, end_of(result)};
    for (const Extent& input : inputs_)
      if (overlap(extent, input)) fail(where(result), " overlaps ", where(input.value), ", an input");
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
  std::unordered_map<const Value*, const Value*> contents_;  ///< whose elements a value has, where not its own
};

}  // namespace

void verify_plan(const Graph& graph, const MemoryPlan& plan, const PlanOptions& options) {
  PlanVerifier(graph, plan, options).run();
}

}  // namespace gcomp::passes
