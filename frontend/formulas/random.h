// Random numbers of a graph, and dropout. Numbers are functions of (seed, step, op, sample, element): see ir/ops/random.h.
#pragma once

#include "ir/builder.h"

namespace gcomp::frontend::formulas {

/// The two counters that a graph has which draws random numbers: states `random_seed`, which starts at `seed`, and `random_step`,
/// which each step increments. They are made by the first draw.
class RandomStates {
 public:
  RandomStates(ir::Builder& builder, std::int64_t seed) : builder_(builder), seed_(seed) {}

  /// Numbers in [0, 1), f32; each call is another stream.
  Var uniform(const Shape& shape);
  /// To be called once, when all is drawn.
  void count_steps();

 private:
  ir::Builder& builder_;
  std::int64_t seed_;
  ir::Value *seed_state_ = nullptr, *step_state_ = nullptr;
  std::int64_t next_ = 0;
};

struct Dropped {
  Var y, keep;  ///< keep: bool
};
/// x / (1 - ratio) where a number of `uniform`, f32 of x's shape, is at least `ratio`, else 0.
Dropped drop(Var x, double ratio, Var uniform);

}  // namespace gcomp::frontend::formulas
