// Groups of parameters that are updated by other options than the rest:
//
//   SELECTOR: option=value, ...        kind:bias, kind:norm: weight_decay=0        embedding.*, head.?: lr=0.1x, betas=[0.9, 0.99]
//
// The last ':' divides. A selector is one or more of a glob over names and kind:NAME (passes/training/optimizers/parameter_kind.h),
// with commas between; a parameter is in the first group that has one for it. Options are the optimizer's; lr=0.1x is a tenth of
// the base rate in each step, lr=0.001 is that rate where the base rate is the one that was given, and as many times it later.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/imported_model.h"
#include "gcomp/driver/step_settings.h"
#include "passes/training/optimizers/optimizer.h"

namespace gcomp::driver {

struct GroupRequest {
  std::string text;
  std::vector<std::string> selectors;
  passes::ParameterGroup group;
  std::vector<std::string> given;  ///< options but lr
};
/// Throws UserError (exit 2) for what cannot be read, an option that the optimizer lacks or a value out of its range.
GroupRequest parse_group(std::string_view text, const passes::OptimizerSpec& base, double base_rate);

/// Parameters that the model gathers rows of (frontend::Parameter::looked_up).
std::set<std::string> looked_up_tables(const frontend::ImportedModel& model);

struct GroupedParameters {
  passes::ParameterGroups groups;  ///< over the trained parameters, in the model's order
  std::vector<GroupSummary> summaries;
};
/// Throws UserError (exit 2) for a group that no parameter is in, with what is nearest, and for one whose options change nothing.
GroupedParameters group_parameters(const std::vector<GroupRequest>& requests, const passes::OptimizerSpec& base,
                                   const frontend::ImportedModel& model, const ir::Graph& forward);

}  // namespace gcomp::driver
