// Losses that are ONNX graphs: "graph:loss.onnx".
#pragma once

#include <string>
#include <string_view>

#include "passes/training/losses/loss.h"

namespace gcomp::driver {

/// passes::parse_loss(), with the file of a "graph:FILE" read. Throws UserError (exit 2), and exit 3 where the file is no sound
/// ONNX model, exit 2 where it has other than one output.
passes::LossSpec read_loss(std::string_view text, std::string_view output = {});

/// The FILE of "graph:FILE"; "" of another loss.
std::string loss_file_of(std::string_view text);

}  // namespace gcomp::driver
