// Programs that run beside others, and how runs of others go with theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gcomp::runtime {

class Executable;

/// Where the runs of a program go. Those of one lane follow each other. A run of the second returns at once, and what it reads and
/// writes nothing else may touch until it is done: whoever runs a program of the main lane, or reads or writes states, waits for
/// all of them, but for what Executable::plan_beside() says.
enum class Lane : std::uint8_t { main, beside };

/// How programs that exchange data between ranks can run beside others on a device. In order: all exchanges of a process follow
/// each other, in the order in which their programs were run, which is the same on all ranks; so one beside others and one of those
/// must not meet. Freely: they need not know of each other.
enum class BesideExchanges : std::uint8_t { none, in_order, freely };

/// Programs of Lane::beside that are named nowhere here are done before any run begins.
struct BesidePlan {
  struct Start {
    Executable* program = nullptr;
    std::size_t after = 0;  ///< so many steps of the last shard's run
  };
  struct Need {
    Executable* program = nullptr;
    std::optional<std::size_t> before;  ///< the first step for which its last run has to be done; none where no step minds it
  };
  std::vector<Start> starts;  ///< in the order in which they begin, `after` never falling
  std::vector<Need> needs;

  /// All that it names.
  std::vector<const Executable*> programs() const;
};

/// Without needs that no step minds, and the others by their steps.
BesidePlan by_steps(BesidePlan plan);

/// Where a run is in a plan by_steps().
class PlanCursor {
 public:
  explicit PlanCursor(const BesidePlan& plan, bool last_shard) : plan_(plan), start_(last_shard ? 0 : plan.starts.size()) {}

  /// When so many steps are done: starts what begins here by start(program), then await(program) for what the next step needs.
  template <class Start, class Await>
  void reach(std::size_t steps, const Start& start, const Await& await) {
    for (; start_ < plan_.starts.size() && plan_.starts[start_].after <= steps; ++start_) start(*plan_.starts[start_].program);
    for (; need_ < plan_.needs.size() && *plan_.needs[need_].before <= steps; ++need_) await(*plan_.needs[need_].program);
  }

 private:
  const BesidePlan& plan_;
  std::size_t start_ = 0, need_ = 0;
};

}  // namespace gcomp::runtime
