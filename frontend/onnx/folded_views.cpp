#include "frontend/onnx/folded_views.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "frontend/onnx/verdict.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Names that the tracer gives to results of operations that only move elements, and to constants of theirs.
bool moves_elements(std::string_view name) {
  return is_one_of(operation_of(name),
                   {"slice",     "select",   "narrow",       "embedding",  "index",   "index_select", "expand",  "view",
                    "reshape",   "permute",  "transpose",    "t",          "numpy_T", "unsqueeze",    "squeeze", "flatten",
                    "unflatten", "split",    "chunk",        "getitem",    "unbind",  "clone",        "alias",   "detach",
                    "val",       "_to_copy", "_unsafe_view", "contiguous", "arange",  "repeat",       "tile"});
}

/// Operations that take rows of a table at indices, which may be computed in any way.
bool takes_rows(std::string_view name) { return is_one_of(operation_of(name), {"embedding", "index", "index_select"}); }

/// Elements of one row along the axes in front, and how many rows there are.
struct Rows {
  std::int64_t count = 0, bytes = 0;
};

Rows rows_of(const Tensor& table, std::size_t axes) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < axes; ++i) count *= table.shape()[i];
  return {count, count ? static_cast<std::int64_t>(table.bytes().size()) / count : 0};
}

}  // namespace

bool is_folded_view(const Signature& signature, const std::string& initializer, const std::string& target) {
  const auto folded = signature.folded_from.find(initializer);
  if (folded == signature.folded_from.end() || target.empty()) return false;
  if (takes_rows(initializer)) return true;
  const bool takes = std::any_of(folded->second.begin(), folded->second.end(), takes_rows);
  return moves_elements(initializer) && std::all_of(folded->second.begin(), folded->second.end(), [&](const std::string& name) {
           return name == target || moves_elements(name) || (takes && signature.targets.contains(name));
         });
}

namespace {

/// Rows along the first `axes`, equal ones counted once.
RepeatedRows equal_rows(const Tensor& values, std::size_t axes) {
  const Rows rows = rows_of(values, axes);
  RepeatedRows repeated;
  std::unordered_map<std::string_view, std::int64_t> known;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const std::string_view row(reinterpret_cast<const char*>(values.data()) + i * rows.bytes, static_cast<std::size_t>(rows.bytes));
    repeated.index.push_back(known.emplace(row, static_cast<std::int64_t>(known.size())).first->second);
  }
  repeated.shape = {static_cast<std::int64_t>(known.size())};
  repeated.shape.insert(repeated.shape.end(), values.shape().begin() + static_cast<std::ptrdiff_t>(axes), values.shape().end());
  return repeated;
}

/// Whether no element changes along an axis.
bool is_constant_along(const Tensor& values, std::size_t axis) {
  const auto size = static_cast<std::size_t>(size_of(values.dtype()));
  std::size_t inner = size;
  for (std::size_t i = axis + 1; i < values.shape().size(); ++i) inner *= static_cast<std::size_t>(values.shape()[i]);
  const std::size_t block = inner * static_cast<std::size_t>(values.shape()[axis]);
  for (std::size_t start = 0; start < values.bytes().size(); start += block)
    for (std::size_t at = inner; at < block; at += inner)
      if (std::memcmp(values.data() + start, values.data() + start + at, inner) != 0) return false;
  return true;
}

/// Elements of a tensor that was expanded along some of its axes: those at their first positions.
RepeatedRows expanded_elements(const Tensor& values) {
  std::vector<std::int64_t> strides(values.shape().size(), 0);
  std::int64_t count = 1;
  for (std::size_t axis = values.shape().size(); axis-- > 0;) {
    if (values.shape()[axis] > 1 && is_constant_along(values, axis)) continue;
    strides[axis] = count;
    count *= values.shape()[axis];
  }
  RepeatedRows repeated{{}, {count}};
  Shape position(values.shape().size(), 0);
  for (std::int64_t i = 0; i < values.elements(); ++i) {
    std::int64_t element = 0;
    for (std::size_t axis = 0; axis < position.size(); ++axis) element += position[axis] * strides[axis];
    repeated.index.push_back(element);
    for (std::size_t axis = position.size(); axis-- > 0 && ++position[axis] == values.shape()[axis];) position[axis] = 0;
  }
  return repeated;
}

bool repeats(const RepeatedRows& rows) { return rows.shape[0] < static_cast<std::int64_t>(rows.index.size()); }

}  // namespace

bool is_expanded(std::string_view initializer) { return is_one_of(operation_of(initializer), {"expand", "repeat", "tile"}); }

std::optional<RepeatedRows> repeated_rows(const Signature& signature, const std::string& initializer, const Tensor& values) {
  const auto folded = signature.folded_from.find(initializer);
  if (folded == signature.folded_from.end() || values.shape().size() < 2 || values.elements() == 0) return std::nullopt;
  const auto within = [&](auto test) {
    return test(initializer) || std::any_of(folded->second.begin(), folded->second.end(), test);
  };
  if (!within(is_expanded) && !within(takes_rows)) return std::nullopt;
  // Freshly made zeros do not tell which of them were one.
  const bool fresh = has_one_value(values);
  if (is_expanded(initializer)) {
    RepeatedRows rows = equal_rows(values, 1), elements = fresh ? RepeatedRows() : expanded_elements(values);
    if (!fresh && elements.shape[0] < element_count(rows.shape)) return elements;
    if (repeats(rows) && rows.shape[0] == 1) return rows;
  }
  if (fresh) return std::nullopt;
  if (RepeatedRows rows = equal_rows(values, values.shape().size() - 1); repeats(rows)) return rows;
  // A table of positions may be permuted after its rows were taken: then elements repeat, many of them, where rows do not.
  RepeatedRows elements = equal_rows(values, values.shape().size());
  if (!within(takes_rows) || elements.shape[0] * 4 > values.elements() * 3) return std::nullopt;
  return elements;
}

Tensor distinct_rows(const RepeatedRows& rows, const Tensor& table) {
  Tensor distinct(table.dtype(), rows.shape);
  const std::size_t bytes = distinct.bytes().size() / static_cast<std::size_t>(rows.shape[0]);
  for (std::size_t i = 0; i < rows.index.size(); ++i)
    std::memcpy(distinct.data() + static_cast<std::size_t>(rows.index[i]) * bytes, table.data() + i * bytes, bytes);
  return distinct;
}

Tensor table_of(const std::vector<std::int64_t>& index, const Tensor& distinct, const Shape& shape) {
  Tensor table(distinct.dtype(), shape);
  const std::size_t bytes = index.empty() ? 0 : table.bytes().size() / index.size();
  const std::size_t rows = bytes == 0 ? 0 : distinct.bytes().size() / bytes;
  for (const std::int64_t row : index)
    check_user(row >= 0 && static_cast<std::size_t>(row) < rows, "row ", row, " of ", rows, " is repeated");
  for (std::size_t i = 0; i < index.size(); ++i)
    std::memcpy(table.data() + i * bytes, distinct.data() + static_cast<std::size_t>(index[i]) * bytes, bytes);
  return table;
}

}  // namespace gcomp::frontend
