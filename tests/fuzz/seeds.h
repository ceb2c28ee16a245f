// Which random graphs a test draws: its usual ones, or those of GCOMP_FUZZ_SEEDS=FIRST:COUNT, for a long run by hand.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "ir/base/error.h"

namespace gcomp::tests {

struct SeedRange {
  int first = 1, count = 0;
};

/// The first `usual` ones, unless others are asked for.
inline SeedRange seeds(int usual) {
  SeedRange range{1, usual};
  if (const char* text = std::getenv("GCOMP_FUZZ_SEEDS"))
    if (std::sscanf(text, "%d:%d", &range.first, &range.count) != 2) throw UserError("GCOMP_FUZZ_SEEDS is not FIRST:COUNT");
  return range;
}

}  // namespace gcomp::tests
