// A folder for one compilation in the temporary directory. A lock on a file within tells that its process is alive: what a killed
// one left is removed by the next.
#pragma once

#include <filesystem>

#include "runtime/files/descriptor.h"
#include "runtime/files/left_behind.h"

namespace gcomp::runtime::cpu {

class CompileFolder {
 public:
  /// Throws DeviceError (exit 5) where none can be made.
  CompileFolder();
  /// Removes it with all it holds.
  ~CompileFolder();
  CompileFolder(const CompileFolder&) = delete;
  CompileFolder& operator=(const CompileFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Leaves the folder to the user, for good.
  void keep();

 private:
  std::filesystem::path path_;
  Descriptor lock_;
  EndsWithProcess tied_;
};

/// Removes this user's folders whose processes have ended, and nothing through links; returns how many.
int remove_abandoned_folders();

}  // namespace gcomp::runtime::cpu
