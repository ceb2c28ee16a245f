// Static shapes for a file's inputs, from --dim and --shapes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "frontend/onnx/import.h"

namespace gcomp::frontend {

struct Binding {
  std::map<std::string, Shape> shapes;  ///< of every input
  /// A batch size that the file fixes and --shapes overrides: (the file's, the bound one).
  std::optional<std::pair<std::int64_t, std::int64_t>> rebatched;
};

/// Throws UserError that names every unbound input with the flag to add, and for unknown or contradicting names and sizes.
Binding bind_shapes(const OnnxFile& file, const ImportOptions& options);

}  // namespace gcomp::frontend
