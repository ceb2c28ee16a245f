#include "codegen/traffic.h"

#include <array>
#include <cstddef>

namespace gcomp::codegen {

std::string_view name_of(Family family) {
  static constexpr std::array<std::string_view, kFamilies> kNames = {"products",   "convolutions", "attention", "pointwise",
                                                                     "transposes", "rows",         "columns",   "scans",
                                                                     "scatters",   "optimizer",    "copies",    "collectives"};
  return kNames[static_cast<std::size_t>(family)];
}

}  // namespace gcomp::codegen
