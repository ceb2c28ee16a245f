#include "gcomp/version.h"

namespace gcomp {

std::string_view version() { return GCOMP_VERSION; }

}  // namespace gcomp
