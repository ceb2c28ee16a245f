// What is exported, as files: NAME.onnx and, where that would exceed what one file of ONNX holds, its larger weights in
// NAME.onnx.data.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "frontend/onnx/import.h"

namespace gcomp::driver {

struct OnnxOutput {
  ExportForm form = ExportForm::inference;
  std::span<const InputForm> input_forms = {};          ///< become nodes before the others
  std::string number_names = {};                        ///< GraphOptions::number_names; those of a table are kept in the file
  std::uintmax_t largest = frontend::kLargestOnnxFile;  ///< bytes of the .onnx
};

/// Where the weights of a large model go that is written to `path`: beside it.
std::filesystem::path data_beside(const std::filesystem::path& path);

/// Writes frontend::export_onnx_bytes(). Each file appears whole or not at all, and neither before both are written, the data
/// before what refers to it; what has their names is replaced. Gives the path of the data, "" where all is in one file. Throws
/// UserError, also where the data would replace what the model's own weights are read from.
std::filesystem::path write_onnx(const std::filesystem::path& path, const frontend::ImportedModel& model,
                                 const std::map<std::string, Tensor>& states, const OnnxOutput& output = {});

}  // namespace gcomp::driver
