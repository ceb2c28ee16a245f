// NVIDIA's libraries, found when they are needed: no CUDA header or library takes part in building gcomp.
//
// A search tries candidates in order and keeps the reason for each rejection, so that a message, and `gcomp doctor`, can say what
// was looked at. Order: an explicit path (then nothing else), the loader's own search, CUDA_HOME, conda, pip's wheels, the usual
// places.
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

#include "runtime/library_search.h"

namespace gcomp::runtime::cuda {

using runtime::kAllLibraries;
using runtime::LibraryKind;
using runtime::LibrarySearch;
using runtime::search_by_variables;

/// "NVRTC", for messages.
std::string_view name_of(LibraryKind kind);

struct LibraryCandidate {
  std::string path;     ///< as given to the loader: a file, or a name that the loader looks up
  std::string origin;   ///< "CUDA_HOME", "loader", ...
  std::string reason;   ///< why it was rejected
  bool loaded = false;  ///< it is there and loads, but does not fit
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
  bool driver_is_too_old() const;  ///< for one that is there
  /// Why there is none, with the cure: the driver is too old for the one that is there, or there is none. `package` is pip's, of
  /// the newest version; `newest_major` the driver's, 0 where it is not known.
  std::string absence(LibraryKind kind, std::string_view package, int newest_major) const;
};

/// The reason to reject a library that is newer than the driver; LibraryResult::absence knows it.
std::string newer_than_driver(std::string_view version, int driver_major);

/// Loads the first candidate that `why_unfit` accepts with "". It sees a loaded library and can call its version function.
LibraryResult find_library(LibraryKind kind, const LibrarySearch& search,
                           const std::function<std::string(const Library&)>& why_unfit = {});

/// The files and names that find_library tries, in order, each with its origin.
std::vector<LibraryCandidate> library_candidates(LibraryKind kind, const LibrarySearch& search);

}  // namespace gcomp::runtime::cuda
