// What was trained is written somewhere, whatever befalls the place that was meant for it.
#pragma once

#include <filesystem>
#include <string>

#include "gcomp/error.h"
#include "gcomp/trainer.h"

namespace gcomp::tools {

struct SavedModelFile {
  std::string path;         ///< where the model is
  std::string beside = {};  ///< where its weights are that the .onnx has no room for; "" where it has
  std::string failure;      ///< why it is not where it was wanted; "" where it is
  ExitCode code = ExitCode::ok;
};

/// Saves to `wanted` or, where that cannot be written, under a new name to the folder for temporary files, or to the current one.
/// Throws UserError with every place and reason where none takes it, and with `left`: what there is of the training all the same,
/// such as a checkpoint.
SavedModelFile save_somewhere(Trainer& trainer, const std::string& wanted, Weights weights, const std::string& left);

}  // namespace gcomp::tools
