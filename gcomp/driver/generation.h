// A gcomp::Generator for those who know more of a model than its user says.
#pragma once

#include <string>

#include "gcomp/driver/prediction.h"
#include "gcomp/generate.h"

namespace gcomp::driver {

/// gcomp::GeneratorOptions with the driver's own options of the forward pass, of which the batch is not looked at.
struct GeneratorOptions {
  std::string output = {};
  std::int64_t context = 0;
  PredictOptions forward = {};
};

/// Generator(model, options).
Generator make_generator(Model model, const GeneratorOptions& options);

}  // namespace gcomp::driver
