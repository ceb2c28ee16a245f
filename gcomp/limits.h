// What a file may ask of a machine. Checked before the work is begun that it would take.
#pragma once

#include <cstdint>

namespace gcomp {

/// What a model may declare.
struct ImportLimits {
  std::int64_t nodes = 1'000'000;                 ///< lowered in all: those of loops and functions each time they run
  std::int64_t elements = std::int64_t{1} << 40;  ///< of one value
  /// Of what depends on no input, computed at import; a sixteenth of them in one tensor, and as many evaluations of a loop body.
  /// What goes beyond stays in the graph, which is said.
  std::int64_t folded_bytes = std::int64_t{1} << 30;
};

/// What the kernels of one program may come to before a compiler is started for them.
struct ProgramLimits {
  std::int64_t kernels = 4096;                         ///< of different text
  std::int64_t kernel_bytes = std::int64_t{64} << 20;  ///< of text, of all kernels together
};

}  // namespace gcomp
