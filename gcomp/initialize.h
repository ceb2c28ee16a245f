// Training from other weights than the model's own: those of a safetensors file, of an ONNX file, or of a checkpoint.
//
//   const gcomp::Model model = gcomp::with_weights(gcomp::Model::load("m.onnx"), "pretrained.safetensors");
//   gcomp::Trainer trainer = gcomp::compile(model, options);
//   gcomp::initialize(trainer, "pretrained.safetensors", {.partial = true});
//
// The first is for what a compilation takes as constant, as it does frozen parameters; the second is strict, and tells.
#pragma once

#include <string>
#include <vector>

#include "gcomp/model.h"
#include "gcomp/path.h"
#include "gcomp/trainer.h"

namespace gcomp {

/// The model with the values of the file for all initializers whose names and shapes it has; one written in C++ as it is. Throws
/// UserError where the file cannot be read.
Model with_weights(const Model& model, const Path& path);

struct InitOptions {
  bool partial = false;  ///< takes what fits and leaves the rest as the model has it, as for a new head
};

/// Why a weight was not taken.
struct InitDifference {
  std::string name;
  std::string reason;  ///< "is f32[10,64] there, wanted f32[5,64]", "is not there", "is not in the model"
};

struct InitReport {
  std::vector<std::string> taken;
  std::vector<InitDifference> differences;  ///< none where not partial
};

/// Gives the trainer's parameters and running statistics the values of the file at `path`: a .safetensors with their names, an
/// .onnx, whose initializers have them, a .gcx, or the folder of a checkpoint, or of several, of which the newest that is whole is
/// taken. Floats are converted to the type of each. Moments, averages and counters stay as they are. Throws UserError, having
/// changed nothing, where names or shapes differ, listing the first few; with `partial`, where nothing fits. A frozen parameter
/// that the compilation took as constant cannot get another value, which is an error too: with_weights() gives it that before.
InitReport initialize(Trainer& trainer, const Path& path, const InitOptions& options = {});

/// One line: "8 of 10 weights are taken; 'fc.weight' is f32[10,64] there, wanted f32[5,64], ... and 2 others".
std::string to_string(const InitReport& report);

}  // namespace gcomp
