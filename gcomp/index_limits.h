// Which inputs of a model index tables (token ids), and how many rows those have: so that a fault can name the value at fault.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace gcomp {

/// Values of this input must lie in [-limit, limit); negative ones count from the end.
struct IndexLimit {
  std::string input;
  std::int64_t limit = 0;

  bool operator==(const IndexLimit&) const = default;
};

/// The smallest limit of each integer input that reaches the indices of a gather through elementwise ops and views. A hint: what
/// lies on the way may change the values.
std::vector<IndexLimit> index_limits(const ir::Graph& graph);

struct IndexFault {
  std::string input;
  std::int64_t row = 0;  ///< position in the first dimension
  std::int64_t value = 0, limit = 0;
};
/// "input 'ids', row 3: index 70, wanted -65 to 64".
std::string to_string(const IndexFault& fault);

/// The first element of integer data beyond its limit.
std::optional<IndexFault> find_index_fault(const IndexLimit& limit, const TensorType& type, std::span<const std::byte> elements);

}  // namespace gcomp
