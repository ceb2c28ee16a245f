// Reads IR text; ir/text/print.h shows it. parse(print(graph)) == graph.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace gcomp::ir {

struct ParseOptions {
  std::string file = "<text>";  ///< named in errors
  int first_line = 1;           ///< of `text` in that file
};

/// One graph, verified. Result types may be left out where inference gives them; where they stand they must agree. Throws
/// UserError "FILE:LINE:COLUMN: found ..., wanted ..." followed by the line and a mark under the column.
Graph parse(std::string_view text, const ParseOptions& options = {});

/// "f32[64,784]".
TensorType parse_type(std::string_view text);
/// "i64[3] [1, 2, 3]" or f32[2] 0x"...".
Tensor parse_tensor(std::string_view text);
/// "{axis=1, epsilon=0.01}" or "", for the given op; defaults are dropped and missing attributes refused.
Attributes parse_attributes(const OpDef& op, std::string_view text);

}  // namespace gcomp::ir
