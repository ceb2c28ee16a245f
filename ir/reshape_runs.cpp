#include "ir/reshape_runs.h"

#include <cstdint>

#include "ir/base/error.h"

namespace gcomp::ir {

std::vector<ReshapeRun> reshape_runs(const Shape& from, const Shape& to) {
  std::vector<ReshapeRun> runs;
  std::size_t i = 0, j = 0;
  const auto take = [](const Shape& shape, std::size_t& at, std::vector<std::size_t>& axes, std::int64_t& elements) {
    if (at == shape.size()) return;
    elements *= shape[at];
    if (shape[at] != 1) axes.push_back(at);
    ++at;
  };
  while (i < from.size() || j < to.size()) {
    ReshapeRun run;
    std::int64_t before = 1, after = 1;
    take(from, i, run.from, before);
    take(to, j, run.to, after);
    while (before != after) {
      check_internal(before < after ? i < from.size() : j < to.size(), "a reshape changes how many elements there are");
      if (before < after) take(from, i, run.from, before);
      else take(to, j, run.to, after);
    }
    if (!run.from.empty()) runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace gcomp::ir
