// Values that an exporter folded from one parameter by taking rows of it, repeating it or reshaping it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/onnx/signature.h"
#include "ir/base/tensor.h"

namespace gcomp::frontend {

/// Whether all that lies between `target` and the initializer only moves elements: it trains as the parameter does.
bool is_folded_view(const Signature& signature, const std::string& initializer, const std::string& target);

/// A table some rows of which are the same row of a parameter, as in a class token for each image of a batch, the token type of
/// each position, or a bias for each distance of two positions (whose rows are single elements).
struct RepeatedRows {
  std::vector<std::int64_t> index;  ///< for each row of the table, its row in the parameter's part that is left
  Shape shape;                      ///< of that part: [rows, ...]
};
/// Whether an initializer goes by the name of what repeats elements.
bool is_expanded(std::string_view initializer);
/// By the names of operations that repeat rows, "expand", "embedding" and the like, and by equal values; nothing where no row
/// repeats.
std::optional<RepeatedRows> repeated_rows(const Signature& signature, const std::string& initializer, const Tensor& values);

/// The part that is left, [rows, ...], and the table of `shape` again.
Tensor distinct_rows(const RepeatedRows& rows, const Tensor& table);
/// Throws UserError where `index`, which an artifact may bring, is of other rows.
Tensor table_of(const std::vector<std::int64_t>& index, const Tensor& distinct, const Shape& shape);

}  // namespace gcomp::frontend
