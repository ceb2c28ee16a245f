// How many rows a forward pass takes at once.
#pragma once

#include <span>
#include <string>

#include "gcomp/driver/compile.h"

namespace gcomp::driver {

/// How the rows of arrays run: in batches of one size, the last of them filled up, or all at once.
struct RowBatches {
  std::int64_t batch = 0;  ///< rows of one run; 0: all
  std::string reason;      ///< why all at once: "node 'n' makes a row depend on others or on its number"; may be empty
};

/// The size follows from the model's shapes and the target, never from the number of rows, so that one program serves any number of
/// them: what file or options bind, or the largest power of two with which the operands and results of the widest node stay within
/// 16 MiB (on a GPU 256 MiB), at most 256 rows (1,024). All at once where rows cannot be shown to be apart. `options.shapes.data`
/// has the types of all inputs.
RowBatches row_batches(const Model& model, const GraphOptions& options);

/// The node that makes rows of the forward pass depend on each other, or on their number; "" where none does. A pass of one row
/// shows nothing, and none shows what was made of its number of rows: then the model is looked at with other numbers, if it takes
/// them.
std::string row_dependence(const Model& model, const GraphOptions& options, const ir::Graph& forward);
/// Likewise that which makes rows of these outputs depend so in inference form, of those that have rows.
std::string dependence_of_outputs(const Model& model, GraphOptions options, std::span<const std::string> outputs);

}  // namespace gcomp::driver
