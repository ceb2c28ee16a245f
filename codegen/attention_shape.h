// What a kernel of attention asks of its node on every target: where the operands stand, the sizes, how far apart the matrices of a
// batch lie, and how much is computed and touched. Numbers become text for kernels that have a shape as constants.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/matrices.h"

namespace gcomp::codegen {

/// Where the operands lie in `attention` and `attention_gradient` (ir/ops/attention.h); null for what a node has not.
struct AttentionOperands {
  const ir::Value *q, *k, *v, *mask = nullptr, *kept = nullptr, *dy = nullptr, *y = nullptr, *top = nullptr, *sum = nullptr,
                              *delta = nullptr;
};
AttentionOperands attention_operands(const ir::Node& node);

/// One dimension of the batch with the strides along it: of the mask, then of each matrix, operands first and a gradient's y last.
struct BatchDimension {
  std::int64_t extent = 1;
  std::vector<std::int64_t> strides;
};
inline constexpr std::size_t kBatchDimensions = 4;  ///< dimensions of a batch that kernels know

struct AttentionShape {
  ir::Matrices matrices;                     ///< of a gradient without y, which no kernel of ours reads
  std::optional<ir::Matrix> forward_result;  ///< a gradient's y
  Shape scores;                              ///< [batch..., queries, keys]
  std::int64_t batches = 1, queries = 0, keys = 0, width = 0, value_width = 0;
  std::vector<BatchDimension> batch;  ///< neighbours collapsed where the strides allow it
  std::int64_t mask_query = 0, mask_key = 0;
};
AttentionShape attention_shape(const ir::Node& node, const ir::Value* mask);

/// Whether the node is one of the two, nothing is empty, statistics of rows are in the type that rows are computed in, elements of
/// a row are neighbours, and the batch has dimensions that kernels know.
bool is_streamable(const ir::Node& node);

/// Pairs of query and key that are computed.
double attention_pairs(const AttentionShape& shape, bool causal);

/// "{1, 1, 2, 8}": the batch's extents, and the strides along it of the mask (0) or of a matrix (its number + 1).
std::string attention_extents_text(const AttentionShape& shape);
std::string attention_strides_text(const AttentionShape& shape, std::size_t of);
/// Exact, as a C++ expression of the preludes.
std::string attention_number_text(double x);

/// A value that a kernel reads or writes, and how much of it.
struct Touched {
  const ir::Value* value;
  double bytes;
};
Touched all_of(const ir::Value* value);
Touched part_of(const ir::Value* value, const ir::Matrix& matrix);

}  // namespace gcomp::codegen
