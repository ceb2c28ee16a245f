#include "gcomp/value_info.h"

#include "ir/base/dtype.h"
#include "ir/base/error.h"

namespace gcomp {

std::string to_string(const ValueInfo& value) {
  std::string text = concat(value.name, ": ", name_of(value.dtype), "[");
  if (!value.has_shape) return text + "...]";
  for (std::size_t i = 0; i < value.dimensions.size(); ++i) {
    const Dimension& dim = value.dimensions[i];
    text += i ? "," : "";
    text += dim.size >= 0 ? std::to_string(dim.size) : dim.symbol.empty() ? "?" : dim.symbol;
  }
  return text + "]";
}

}  // namespace gcomp
