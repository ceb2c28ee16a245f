#include "tools/gcomp/allocator.h"

#ifdef GCOMP_MIMALLOC
#include <mimalloc.h>
#endif

namespace gcomp::tools {

void keep_freed_memory() {
#ifdef GCOMP_MIMALLOC
  constexpr long kMilliseconds = 1000;
#if MI_MALLOC_VERSION < 210
  mi_option_set_default(mi_option_decommit_delay, kMilliseconds);
#else
  mi_option_set_default(mi_option_purge_delay, kMilliseconds);
#endif
#endif
}

}  // namespace gcomp::tools
