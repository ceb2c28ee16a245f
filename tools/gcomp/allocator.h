// What the command asks of the allocator that it is linked with.
#pragma once

namespace gcomp::tools {

/// Freed memory goes back to the system after a second only: a pass of the compiler frees what the next one takes again, and each
/// page that came back would have to be cleared anew.
void keep_freed_memory();

}  // namespace gcomp::tools
