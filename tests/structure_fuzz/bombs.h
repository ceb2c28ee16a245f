// Models that are small as files and large as work: chains, doublings, nestings, and single nodes with huge attributes.
#pragma once

#include <string>

#include "tests/structure_fuzz/edits.h"

namespace gcomp::tests {

/// A model as bytes, of a kind and a size drawn by `random`; `name` says which, for reports.
std::string random_bomb(Random& random, std::string& name);

}  // namespace gcomp::tests
