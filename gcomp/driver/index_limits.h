// Which inputs of a model index tables (token ids), and how many rows those have: so that a fault can name the value at fault.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gcomp/tensor_view.h"

namespace gcomp::driver {

/// Values of this input must lie in [-limit, limit); negative ones count from the end.
struct IndexLimit {
  std::string input;
  std::int64_t limit = 0;

  bool operator==(const IndexLimit&) const = default;
};

struct IndexFault {
  std::string input;
  std::int64_t row = 0;  ///< position in the first dimension
  std::int64_t value = 0, limit = 0;
};
/// "input 'ids', row 3: index 70, wanted -65 to 64".
std::string to_string(const IndexFault& fault);

/// The first element of integer data beyond its limit.
std::optional<IndexFault> find_index_fault(const IndexLimit& limit, const TensorType& type, std::span<const std::byte> elements);

/// Which class numbers an array of the data may hold.
struct LabelLimit {
  std::string array;
  std::int64_t classes = 0;  ///< they are below this
  std::optional<std::int64_t> ignored = {};

  bool operator==(const LabelLimit&) const = default;
};

struct LabelFault {
  std::int64_t row = 0;  ///< position in the first dimension
  std::int64_t label = 0;
  std::int64_t largest = 0;  ///< of this label and those behind it
};
/// The first element of integer labels that is neither a class nor ignored; none for labels that are no integers.
std::optional<LabelFault> find_label_fault(const TensorView& labels, const LabelLimit& limit);
/// The same of rows of `row` elements, whole ones. Allocates nothing.
std::optional<LabelFault> find_label_fault(DType dtype, std::int64_t row, std::span<const std::byte> labels,
                                           const LabelLimit& limit);
/// "array 'label', row 3: label 10, wanted 0 to 9 (or -100, which is ignored)".
std::string to_string(const LabelFault& fault, const LabelLimit& limit);

}  // namespace gcomp::driver
