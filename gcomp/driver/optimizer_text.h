// Optimizers as users give them: an entry of the table, a file with a rule, or a rule in C++.
#pragma once

#include <string_view>

#include "gcomp/optimizer.h"
#include "passes/training/optimizers/optimizer.h"

namespace gcomp::driver {

/// "NAME(option=value, ...)", or "FILE.gir", which is read (passes/training/optimizers/graph_rule.h). Throws UserError as
/// passes::OptimizerSpec and for a file that cannot be read or is no rule.
passes::OptimizerSpec read_optimizer(std::string_view text, std::string_view what = "--optimizer");

/// The rule in C++ where there is one, else what the text says.
passes::OptimizerSpec optimizer_of(const gcomp::Optimizer& optimizer);

}  // namespace gcomp::driver
