// A gcomp::Predictor for those who know more of a model than its user says, or look inside it.
#pragma once

#include <cstdint>
#include <vector>

#include "gcomp/driver/compile.h"
#include "gcomp/predictor.h"

namespace gcomp::driver {

/// gcomp::PredictOptions with the driver's own GraphOptions and CompileHooks.
struct PredictOptions {
  std::int64_t batch = 0;  ///< rows of one run; 0: what follows from the model's shapes (gcomp/driver/row_batches.h)
  GraphOptions graph = {};
  DeviceRequest device = DeviceRequest::automatic;
  DeviceOptions device_options = {};
  CompileHooks hooks = {};
};

/// What a Predictor makes of its user's options.
PredictOptions predict_options(const gcomp::PredictOptions& options);

/// Predictor(model, options).
Predictor make_predictor(Model model, const PredictOptions& options);

/// The compiled program over arrays, once prepared, or of a .gcx. Belongs to the predictor.
class Forward;
Forward& forward_of(const Predictor& predictor);

/// Inputs and outputs of the compiled program, a batch of rows each: once prepared, or of a .gcx.
std::vector<NamedType> program_inputs(const Predictor& predictor);
std::vector<NamedType> program_outputs(const Predictor& predictor);

/// Nodes that run in another form than the file has them in, once prepared; none for a .gcx, which does not tell.
frontend::FormCounts::Nodes switched_forms(const Predictor& predictor);

}  // namespace gcomp::driver
