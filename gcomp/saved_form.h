// In which form a model is saved.
#pragma once

#include <cstdint>

namespace gcomp {

/// In which form an .onnx file has its BatchNormalization and Dropout.
enum class ExportForm : std::uint8_t { inference, as_written };

/// How a .gcx file refers to the ONNX file that it came from, which an export needs: by path and SHA-256, or holding all of it.
enum class KeepModel : std::uint8_t { by_reference, whole };

}  // namespace gcomp
