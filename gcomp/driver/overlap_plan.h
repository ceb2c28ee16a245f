// When the programs of a step that exchange data with other ranks run beside those that compute: by the states that they share, and
// by nothing that anybody has to say.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "runtime/beside_plan.h"
#include "runtime/program.h"

namespace gcomp::driver {

/// Programs are numbers here, their places in a list.
struct OverlapPlan {
  struct Start {
    std::size_t program = 0;
    std::size_t after = 0;  ///< so many steps
  };
  struct Need {
    std::size_t program = 0;
    std::optional<std::size_t> before;  ///< a step; none where no step minds it
  };
  std::vector<Start> starts;
  std::vector<Need> needs;  ///< of all programs that run beside
};

/// `programs` run beside others, one after another. They begin with what the programs of `before`, which run in this order, have
/// done of what they touch.
struct Followers {
  std::vector<std::size_t> before, programs;
};

/// One plan for each program; those that follow have an empty one. A follower begins after the last step before it that touches a
/// state which it touches, and has to be done before the first step of any other that does; likewise with exchanges, where those go
/// in order.
std::vector<OverlapPlan> plan_overlap(std::span<const runtime::Program* const> programs, std::span<const Followers> followers,
                                      runtime::BesideExchanges exchanges);

}  // namespace gcomp::driver
