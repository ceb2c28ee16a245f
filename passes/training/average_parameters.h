// An exponential moving average of the parameters, as torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay): the
// first update copies them, each later one moves the average 1 - decay of the way. Running statistics have no average:
// AveragedModel without use_buffers takes those of the model.
//
//   update %w.ema, %w.ema + (step == 1 ? 1 : 1 - decay) * (%w_new - %w.ema)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

/// The state that holds a parameter's average: "NAME.ema".
std::string average_name(std::string_view parameter);

/// To be called once the parameters are updated: adds a state for each and its update. `step` counts steps done, this one included,
/// from 1: f64[].
void average_parameters(ir::Graph& graph, double decay, const std::vector<ir::Value*>& parameters, ir::Value* step);

}  // namespace gcomp::passes
