// MPI as a gcomp::Communicator, through the plug-in that links it (mpi_plugin.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gcomp/communicator.h"

namespace gcomp::runtime::comm {

inline constexpr char kMpiPluginFile[] = "libgcomp_mpi.so";

/// Where the plug-in may be: the file that is given, or where none is, beside the program, in lib beside its folder, and where the
/// loader looks.
std::vector<std::filesystem::path> mpi_plugin_candidates(const std::filesystem::path& given);

struct MpiLibrary {
  std::filesystem::path plugin;
  std::string version;  ///< "Open MPI v4.1.4"
};
/// What open_mpi() would load; starts nothing. Throws as that does.
MpiLibrary find_mpi(const std::filesystem::path& given = {});

/// Initializes MPI, unless the program has; all ranks of MPI_COMM_WORLD. Its end waits for all of them. Throws DeviceError (exit 6)
/// where there is no plug-in, or none that can be loaded, with every place and the reason, or where MPI fails.
std::unique_ptr<Communicator> open_mpi(const std::filesystem::path& given = {});

}  // namespace gcomp::runtime::comm
