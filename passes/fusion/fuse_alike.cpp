// The end of step 3 of fusion: equal reductions, of equal types, that nobody waits for become one launch of many segments.
//
//   %s = sum of strips %a   ...   %t = sum of strips %b   ...   update reads %s, %t
//   ->  ...   %s, %t = multi_kernel %a, %b {alike, segments=2}   update
//
// The sums that a layer norm's gradient leaves of its strips are such: a launch of a microsecond or two for three KiB of result, a
// few a layer, which the optimizer alone reads. What they read and nobody else does lives longer for it: a few rows of a hundred.
// What others read too is not kept for them.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/base/hash.h"
#include "passes/fusion/fusion_units.h"
#include "passes/fusion/nest_domains.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::int64_t kMostResultBytes = 1 << 18;  // more keeps a device busy by itself

bool is_small_reduction(const FusionUnit& unit) {
  if (!unit.is_nest() || unit.fixed || unit.update || unit.segments > 0 || reduced_axes(unit.nest) == 0) return false;
  std::int64_t bytes = 0;
  for (const Value* result : unit.results) bytes += result->type.bytes();
  return bytes > 0 && bytes <= kMostResultBytes &&
         std::ranges::none_of(unit.nest.outputs, [](const LoopOutput& output) { return output.accumulate; });
}

/// Equal nests over equal types.
bool are_alike(const FusionUnit& a, const FusionUnit& b) {
  return types_of(a.operands) == types_of(b.operands) && types_of(a.results) == types_of(b.results) && a.nest == b.nest;
}

std::size_t hash_of(const FusionUnit& unit) {
  std::size_t seed = ir::hash_of(unit.nest);
  for (const std::vector<Value*>* values : {&unit.operands, &unit.results})
    for (const Value* value : *values)
      for (const std::int64_t dim : value->type.shape) seed = hash_combine(seed, static_cast<std::size_t>(dim));
  return seed;
}

/// Units that run together right before unit `place`.
struct Group {
  std::vector<std::size_t> members;
  std::size_t place = 0;
};

class AlikeFuser {
 public:
  explicit AlikeFuser(std::vector<FusionUnit>& units) : units_(units) {
    const auto is_update = [](const FusionUnit& unit) { return unit.node && unit.node->op->kind == Kind::update; };
    updates_ = static_cast<std::size_t>(std::ranges::find_if(units_, is_update) - units_.begin());
    for (std::size_t u = 0; u < units_.size(); ++u) {
      for (const Value* result : units_[u].results) made_.insert(result);
      for (const Value* operand : units_[u].node ? units_[u].node->operands : units_[u].operands) {
        const auto [read, is_new] = reads_.try_emplace(operand, Reads{u, u, 0});
        read->second.last = u;
        ++read->second.count;
      }
    }
  }

  void run() {
    for (std::size_t u = 0; u < std::min(updates_, units_.size()); ++u)
      if (is_small_reduction(units_[u])) add(u);
    std::erase_if(groups_, [](const Group& group) { return group.members.size() < 2; });
    if (!groups_.empty()) rebuild();
  }

 private:
  struct Reads {
    std::size_t first = 0, last = 0;  ///< units
    int count = 0;
  };

  /// Where the first of the unit's results is read; states keep their values until the updates.
  std::size_t deadline(const FusionUnit& unit) const {
    std::size_t first = updates_;
    for (const Value* result : unit.results)
      if (const auto found = reads_.find(result); found != reads_.end()) first = std::min(first, found->second.first);
    return first;
  }

  /// Whether what the unit reads is there until `place` in any case, or its own alone.
  bool may_wait(const FusionUnit& unit, std::size_t place) const {
    return std::ranges::all_of(unit.operands, [&](const Value* operand) {
      const Reads& read = reads_.at(operand);
      return made_.count(operand) == 0 || read.count == 1 || read.last >= place;
    });
  }

  /// Unit `u` comes after all of an open group's members, and before whatever reads one: so it reads none of them.
  void add(std::size_t u) {
    const std::size_t place = deadline(units_[u]);
    if (!may_wait(units_[u], place)) return;
    std::vector<std::size_t>& equal_hash = open_[hash_of(units_[u])];
    for (std::size_t& g : equal_hash) {
      Group& group = groups_[g];
      if (!are_alike(units_[group.members[0]], units_[u])) continue;
      if (u >= group.place) return begin(g, u, place);
      group.members.push_back(u);
      group.place = std::min(group.place, place);
      return;
    }
    begin(equal_hash.emplace_back(), u, place);
  }
  void begin(std::size_t& number, std::size_t u, std::size_t place) {
    number = groups_.size();
    groups_.push_back({{u}, place});
  }

  void rebuild() {
    std::vector<char> moved(units_.size());
    std::vector<std::vector<FusionUnit>> before(units_.size() + 1);
    for (const Group& group : groups_) {
      FusionUnit& first = units_[group.members[0]];
      FusionUnit made;
      made.nest = first.nest;
      made.origin = first.origin;
      made.fixed = made.alike = true;
      made.segments = static_cast<int>(group.members.size());
      for (const std::size_t u : group.members) {
        moved[u] = 1;
        made.operands.insert(made.operands.end(), units_[u].operands.begin(), units_[u].operands.end());
        made.results.insert(made.results.end(), units_[u].results.begin(), units_[u].results.end());
      }
      before[group.place].push_back(std::move(made));
    }
    std::vector<FusionUnit> all;
    for (std::size_t u = 0; u <= units_.size(); ++u) {
      for (FusionUnit& made : before[u]) all.push_back(std::move(made));
      if (u < units_.size() && !moved[u]) all.push_back(std::move(units_[u]));
    }
    units_ = std::move(all);
  }

  std::vector<FusionUnit>& units_;
  std::size_t updates_ = 0;  // the first of them
  std::unordered_map<const Value*, Reads> reads_;
  std::unordered_set<const Value*> made_;  // by a unit, not given to the graph
  std::vector<Group> groups_;
  std::unordered_map<std::size_t, std::vector<std::size_t>> open_;  // the last group of each kind, by hash
};

}  // namespace

void fuse_alike(std::vector<FusionUnit>& units) { AlikeFuser(units).run(); }

}  // namespace gcomp::passes
