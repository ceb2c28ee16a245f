// NVIDIA's libraries, found when they are needed: no CUDA header or library takes part in building gcomp.
//
// A search tries candidates in order and keeps the reason for each rejection, so that a message, and `gcomp doctor`, can say what
// was looked at. Order: an explicit path (then nothing else), the loader's own search, CUDA_HOME, conda, pip's wheels, the usual
// places. Nothing here reads the environment: the tools pass it in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gcomp::runtime::cuda {

enum class LibraryKind : std::uint8_t { driver, nvrtc, cublaslt, cudnn, nccl };
inline constexpr LibraryKind kAllLibraries[] = {LibraryKind::driver, LibraryKind::nvrtc, LibraryKind::cublaslt, LibraryKind::cudnn,
                                                LibraryKind::nccl};

/// "NVRTC", for messages.
std::string_view name_of(LibraryKind kind);

/// Where to look beside the loader's own places.
struct LibrarySearch {
  std::filesystem::path explicit_path[std::size(kAllLibraries)];  ///< by kind; a file, or a folder that holds one
  std::filesystem::path cuda_home;                                ///< of a toolkit
  std::filesystem::path conda_prefix;
  std::vector<std::filesystem::path> python_prefixes;  ///< of environments; their site-packages may hold NVIDIA's wheels
  bool usual_places = true;                            ///< /usr/local/cuda

  std::filesystem::path& explicit_of(LibraryKind kind) { return explicit_path[static_cast<std::size_t>(kind)]; }
  const std::filesystem::path& explicit_of(LibraryKind kind) const { return explicit_path[static_cast<std::size_t>(kind)]; }
};

/// A search from CUDA_HOME or CUDA_PATH, CONDA_PREFIX, VIRTUAL_ENV and HOME, each asked of `variable` (such as getenv; null where
/// unset).
LibrarySearch search_by_variables(const std::function<const char*(const char*)>& variable);

struct LibraryCandidate {
  std::string path;    ///< as given to the loader: a file, or a name that the loader looks up
  std::string origin;  ///< "CUDA_HOME", "loader", ...
  std::string reason;  ///< why it was rejected
};

/// A loaded library. It stays in memory to the end of the process.
class Library {
 public:
  /// Throws DeviceError where the loader refuses.
  static Library open(const std::string& path);

  /// Null where there is none of this name.
  void* symbol(const char* name) const;
  /// The file that the loader chose.
  const std::string& path() const { return path_; }

 private:
  std::shared_ptr<void> handle_;
  std::string path_;
};

struct LibraryResult {
  std::optional<Library> library;
  std::string origin;                      ///< of the one that was taken
  std::vector<LibraryCandidate> rejected;  ///< those before it; missing files in a folder that was searched are left out

  /// "NVRTC was not found: tried libnvrtc.so.13 (loader): ...; ...", for an error.
  std::string description(LibraryKind kind) const;
};

/// Loads the first candidate that `why_unfit` accepts with "". It sees a loaded library and can call its version function.
LibraryResult find_library(LibraryKind kind, const LibrarySearch& search,
                           const std::function<std::string(const Library&)>& why_unfit = {});

/// The files and names that find_library tries, in order, each with its origin.
std::vector<LibraryCandidate> library_candidates(LibraryKind kind, const LibrarySearch& search);

}  // namespace gcomp::runtime::cuda
