#include "gcomp/driver/index_limits.h"

#include <algorithm>
#include <cstring>

#include "ir/base/dtype.h"
#include "ir/base/error.h"

namespace gcomp::driver {

namespace {

/// An element of integers; what is beyond i64 becomes its largest value.
std::int64_t integer_at(DType dtype, std::span<const std::byte> elements, std::int64_t element) {
  const std::byte* at = elements.data() + static_cast<std::size_t>(element) * size_of(dtype);
  if (dtype != DType::u64 && dtype != DType::i64) return static_cast<std::int64_t>(load_as_double(dtype, at, 0));
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == DType::u64 && bits > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(bits);
}

}  // namespace

std::string to_string(const IndexFault& fault) {
  return concat("input '", fault.input, "', row ", fault.row, ": index ", fault.value, ", wanted ", -fault.limit, " to ",
                fault.limit - 1);
}

std::optional<IndexFault> find_index_fault(const IndexLimit& limit, const TensorType& type, std::span<const std::byte> elements) {
  const std::int64_t count = type.elements();
  const std::int64_t row = type.shape.empty() || type.shape[0] == 0 ? 1 : std::max<std::int64_t>(1, count / type.shape[0]);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<std::int64_t>(load_as_double(type.dtype, elements.data(), i));
    if (value < -limit.limit || value >= limit.limit) return IndexFault{limit.input, i / row, value, limit.limit};
  }
  return std::nullopt;
}

std::optional<LabelFault> find_label_fault(const TensorView& labels, const LabelLimit& limit) {
  const TensorType& type = labels.type();
  if (type.shape.empty() || type.elements() == 0) return std::nullopt;
  return find_label_fault(type.dtype, type.elements() / type.shape[0], labels.bytes(), limit);
}

std::optional<LabelFault> find_label_fault(DType dtype, std::int64_t row, std::span<const std::byte> labels,
                                           const LabelLimit& limit) {
  if (limit.classes == 0 || !is_integer(dtype) || row == 0) return std::nullopt;
  const auto count = static_cast<std::int64_t>(labels.size() / size_of(dtype));
  std::optional<LabelFault> fault;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t label = integer_at(dtype, labels, i);
    if (!fault && (label < 0 || label >= limit.classes) && label != limit.ignored) fault = {i / row, label, label};
    if (fault) fault->largest = std::max(fault->largest, label);
  }
  return fault;
}

std::string to_string(const LabelFault& fault, const LabelLimit& limit) {
  return concat("array '", limit.array, "', row ", fault.row, ": label ", fault.label, ", wanted 0 to ", limit.classes - 1,
                limit.ignored ? concat(" (or ", *limit.ignored, ", which is ignored)") : "");
}

}  // namespace gcomp::driver
