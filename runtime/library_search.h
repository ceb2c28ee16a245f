// Where NVIDIA's libraries may be, as a caller says it. Nothing here reads the environment: the tools pass it in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <vector>

namespace gcomp::runtime {

enum class LibraryKind : std::uint8_t { driver, nvrtc, cublaslt, cudnn, nccl };
inline constexpr LibraryKind kAllLibraries[] = {LibraryKind::driver, LibraryKind::nvrtc, LibraryKind::cublaslt, LibraryKind::cudnn,
                                                LibraryKind::nccl};

/// Where to look beside the loader's own places.
struct LibrarySearch {
  std::filesystem::path explicit_path[std::size(kAllLibraries)];  ///< by kind; a file, or a folder that holds one
  std::filesystem::path cuda_home;                                ///< of a toolkit
  std::filesystem::path conda_prefix;
  std::vector<std::filesystem::path> python_prefixes;  ///< of environments; their site-packages may hold NVIDIA's wheels
  bool usual_places = true;                            ///< /usr/local/cuda, and what pip installs as root

  std::filesystem::path& explicit_of(LibraryKind kind) { return explicit_path[static_cast<std::size_t>(kind)]; }
  const std::filesystem::path& explicit_of(LibraryKind kind) const { return explicit_path[static_cast<std::size_t>(kind)]; }
};

/// A search from CUDA_HOME or CUDA_PATH, CONDA_PREFIX, VIRTUAL_ENV and HOME, each asked of `variable` (such as getenv; null where
/// unset).
LibrarySearch search_by_variables(const std::function<const char*(const char*)>& variable);

}  // namespace gcomp::runtime
