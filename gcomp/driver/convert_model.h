// A model from one of its forms to another: .onnx (graph and weights), .gcx (programs, all states), the folder of a checkpoint
// (all states), .safetensors (weights). What the one form lacks for the other comes from a model beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gcomp/saved_form.h"

namespace gcomp::driver {

struct ConvertOptions {
  std::filesystem::path model;              ///< an .onnx or .gcx that has what the input lacks; "" where it lacks nothing
  bool averages = false;                    ///< averages of the parameters in their place, to .onnx and .safetensors
  ExportForm form = ExportForm::inference;  ///< to .onnx
  bool preprocessing = false;               ///< .gcx to .onnx: the forms of inputs become nodes
};

struct Converted {
  std::int64_t tensors = 0;        ///< that were written from the input
  std::vector<std::string> notes;  ///< what stays as the model has it, what starts anew
  std::filesystem::path beside;    ///< the larger weights of an .onnx that one file has no room for; else ""
};

/// `out` is told by its ending; without one it is a new folder with a checkpoint. Throws UserError: exit 2 where an ending is
/// unknown, both are of one form, or `model` is missing, which the message then asks for; exit 3 where names or shapes do not fit.
Converted convert_model(const std::filesystem::path& in, const std::filesystem::path& out, const ConvertOptions& options = {});

}  // namespace gcomp::driver
