// Random edits of a file of any format.
#pragma once

#include <string>

#include "tests/structure_fuzz/edits.h"

namespace gcomp::tests {

/// One to three edits. `other` is another file of the same format, of which parts may be taken.
std::string edit_data(Random& random, std::string bytes, const std::string& other);

}  // namespace gcomp::tests
