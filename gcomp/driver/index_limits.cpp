#include "gcomp/driver/index_limits.h"

#include <algorithm>

#include "ir/base/dtype.h"
#include "ir/base/error.h"

namespace gcomp::driver {

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

std::optional<LabelFault> find_label_fault(const TensorView& labels, std::int64_t classes) {
  const TensorType& type = labels.type();
  if (classes == 0 || !is_integer(type.dtype) || type.shape.empty() || type.elements() == 0) return std::nullopt;
  const std::int64_t row = type.elements() / type.shape[0];
  std::optional<LabelFault> fault;
  for (std::int64_t i = 0; i < type.elements(); ++i) {
    const auto label = static_cast<std::int64_t>(load_as_double(type.dtype, labels.bytes().data(), i));
    if (!fault && (label < 0 || label >= classes) && label != kIgnoredLabel) fault = {i / row, label, label};
    if (fault) fault->largest = std::max(fault->largest, label);
  }
  return fault;
}

std::string to_string(const LabelFault& fault, std::int64_t classes) {
  return concat("array 'label', row ", fault.row, ": label ", fault.label, ", wanted 0 to ", classes - 1, " (or ", kIgnoredLabel,
                ", which is ignored)");
}

}  // namespace gcomp::driver
