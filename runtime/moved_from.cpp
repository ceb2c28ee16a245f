#include "gcomp/owned.h"
#include "ir/base/error.h"

namespace gcomp {

void throw_moved_from() { throw UserError("an object of gcomp is used that was moved from"); }

}  // namespace gcomp
