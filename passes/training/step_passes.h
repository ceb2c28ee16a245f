// What the rows of the pass table that make a training step call: each takes what it needs of the request and of what the rows
// before it made, and says whether the graph changed.
#pragma once

#include "passes/pipeline.h"

namespace gcomp::passes {

bool run_attach_loss(PassContext& c);
bool run_chunk_loss(PassContext& c);
bool run_scale_loss(PassContext& c);
bool run_differentiate(PassContext& c);
bool run_accumulate(PassContext& c);
bool run_distribute(PassContext& c);
bool run_unscale(PassContext& c);
bool run_clip_gradients(PassContext& c);
bool run_attach_optimizer(PassContext& c);
bool run_average_parameters(PassContext& c);
bool run_skip_non_finite(PassContext& c);
bool run_show_loss(PassContext& c);
bool run_show_gradients(PassContext& c);

}  // namespace gcomp::passes
