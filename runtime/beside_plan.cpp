#include "runtime/beside_plan.h"

#include <algorithm>

namespace gcomp::runtime {

std::vector<const Executable*> BesidePlan::programs() const {
  std::vector<const Executable*> all;
  for (const Start& start : starts) all.push_back(start.program);
  for (const Need& need : needs) all.push_back(need.program);
  return all;
}

BesidePlan by_steps(BesidePlan plan) {
  std::erase_if(plan.needs, [](const BesidePlan::Need& need) { return !need.before; });
  std::ranges::stable_sort(plan.needs, {}, [](const BesidePlan::Need& need) { return *need.before; });
  return plan;
}

}  // namespace gcomp::runtime
