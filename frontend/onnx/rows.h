// The import tables: how each ONNX operator becomes IR, keyed by (domain, operator, the opset since which this meaning holds).
// One table for each family of operators; rows/ holds them. To add an operator, add a row to the table of its family.
#pragma once

#include <span>
#include <string_view>

#include "frontend/onnx/node_context.h"

namespace gcomp::frontend {

struct Row {
  std::string_view op;
  int since = 1;  ///< first opset with this meaning
  Items (*lower)(NodeContext&) = nullptr;
  bool foldable = true;  ///< evaluated at import where all operands are known
  std::string_view domain = "";
};

std::span<const Row> elementwise_rows();
std::span<const Row> activation_rows();
std::span<const Row> shape_rows();
std::span<const Row> slicing_rows();
std::span<const Row> constant_rows();
std::span<const Row> reduce_rows();
std::span<const Row> contract_rows();
std::span<const Row> pool_rows();
std::span<const Row> norm_rows();
std::span<const Row> recurrent_rows();
std::span<const Row> resize_rows();
std::span<const Row> attention_rows();
std::span<const Row> random_rows();
std::span<const Row> index_rows();
std::span<const Row> loss_rows();
std::span<const Row> einsum_rows();
std::span<const Row> sequence_rows();
std::span<const Row> sampling_rows();
std::span<const Row> signal_rows();

/// The row with the newest `since` not above `opset`; null if there is none.
const Row* find_row(std::string_view domain, std::string_view op, std::int64_t opset);
/// Whether any opset has the operator.
bool knows_operator(std::string_view domain, std::string_view op);

}  // namespace gcomp::frontend
