#include "frontend/formulas/random.h"

#include "ir/ops/table.h"

namespace gcomp::frontend::formulas {

Var RandomStates::uniform(const Shape& shape) {
  ir::Graph& graph = builder_.graph();
  if (!seed_state_) {
    seed_state_ = graph.add_state({DType::i64, {}}, "random_seed", ir::StateRole::counter, static_cast<double>(seed_));
    step_state_ = graph.add_state({DType::i64, {}}, "random_step", ir::StateRole::counter, 0.0);
  }
  return builder_.apply(ir::ops::kRandomUniform, {builder_.wrap(seed_state_), builder_.wrap(step_state_)},
                        {{"shape", shape}, {"op_id", next_++}});
}

void RandomStates::count_steps() {
  if (!step_state_) return;
  builder_.set_origin("random_step");
  builder_.update(step_state_, builder_.wrap(step_state_) + 1.0);
}

Dropped drop(Var x, double ratio, Var uniform) {
  ir::Builder& b = *x.builder;
  Var keep = b.full({DType::f32, x.shape()}, ratio) <= uniform;
  return {ratio == 1 ? b.like(x, 0) : b.select(keep, x * (1 / (1 - ratio)), b.like(x, 0)), keep};
}

}  // namespace gcomp::frontend::formulas
