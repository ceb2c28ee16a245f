#include "gcomp/driver/overlap_plan.h"

#include <algorithm>
#include <variant>

#include "runtime/shared_use.h"

namespace gcomp::driver {
namespace {

using Place = std::optional<std::size_t>;  // of a step

/// What the steps of a program touch, and which of them exchange data.
struct Use {
  runtime::StateUse states;
  Place first_exchange, last_exchange;
};

Use use_of(const runtime::Program& program, runtime::BesideExchanges exchanges) {
  Use use{runtime::StateUse(program), {}, {}};
  for (std::size_t i = 0; exchanges == runtime::BesideExchanges::in_order && i < program.steps.size(); ++i) {
    if (!std::holds_alternative<runtime::CollectiveCall>(program.steps[i])) continue;
    if (!use.first_exchange) use.first_exchange = i;
    use.last_exchange = i;
  }
  return use;
}

/// Of the first, the first step that must not meet the second.
Place first_meeting(const Use& use, const Use& other) {
  const Place touching = use.states.first(other.states.all());
  if (!use.first_exchange || !other.first_exchange) return touching;
  return touching ? std::min(*touching, *use.first_exchange) : use.first_exchange;
}

Place last_meeting(const Use& use, const Use& other) {
  const Place touching = use.states.last(other.states.all());
  return use.last_exchange && other.last_exchange ? std::max(touching, use.last_exchange) : touching;
}

/// One starts no earlier than those before it in the list: all of them take the same way.
void add_starts(std::vector<OverlapPlan>& plans, const std::vector<Use>& uses, const Followers& followers) {
  std::size_t starter = 0, after = 0;
  for (const std::size_t program : followers.programs) {
    for (std::size_t i = starter; i < followers.before.size(); ++i) {
      const Place last = last_meeting(uses[followers.before[i]], uses[program]);
      if (!last) continue;
      after = i == starter ? std::max(after, *last + 1) : *last + 1;
      starter = i;
    }
    plans[followers.before[starter]].starts.push_back({program, after});
  }
}

}  // namespace

std::vector<OverlapPlan> plan_overlap(std::span<const runtime::Program* const> programs, std::span<const Followers> followers,
                                      runtime::BesideExchanges exchanges) {
  std::vector<Use> uses;
  for (const runtime::Program* program : programs) uses.push_back(use_of(*program, exchanges));
  std::vector<std::size_t> beside;
  for (const Followers& some : followers) beside.insert(beside.end(), some.programs.begin(), some.programs.end());
  std::vector<OverlapPlan> plans(programs.size());
  for (std::size_t i = 0; i < programs.size(); ++i) {
    if (std::ranges::count(beside, i) > 0) continue;
    for (const std::size_t other : beside) plans[i].needs.push_back({other, first_meeting(uses[i], uses[other])});
  }
  for (const Followers& some : followers) add_starts(plans, uses, some);
  return plans;
}

}  // namespace gcomp::driver
