// A second training step for fewer rows, over the same states: what an epoch leaves over (--drop-last false).
#pragma once

#include <cstdint>

#include "gcomp/driver/step_programs.h"
#include "gcomp/trainer.h"

namespace gcomp::driver {

class RemainderStep {
 public:
  /// Compiles it. Throws UserError where the trainer came from a .gcx, which holds one step, or where the model's shapes do not
  /// follow from the number of rows.
  RemainderStep(Trainer& trainer, std::int64_t rows);

  /// The trainer takes this step instead of its own, or its own again. No step may be pending.
  void swap(Trainer& trainer);

 private:
  StepPrograms step_;
};

}  // namespace gcomp::driver
