// A checkpoint of several ranks: each writes what it alone holds into a folder of its own beside the checkpoint, and the first
// takes the files of all into the one that it then gives its name. Only files meet: the threads that write need no communicator.
#pragma once

#include <filesystem>

#include "gcomp/driver/checkpoint_files.h"

namespace gcomp::driver {

/// The shares of a rank but the first, for the checkpoint at `path`. What goes wrong is left there for the first to find, and
/// thrown as UserError.
void write_part(const std::filesystem::path& path, const Snapshot& snapshot);

/// Waits for the parts of all other ranks, at most so many seconds for each, moves their files into the folder and adds them to the
/// manifest. Throws UserError with the rank and its reason.
void collect_parts(const std::filesystem::path& path, int ranks, double patience, runtime::AtomicFolder& folder,
                   Manifest& manifest);

/// Removes what parts of a run that was killed are there. Before any rank writes one.
void remove_parts(const std::filesystem::path& folder);

}  // namespace gcomp::driver
