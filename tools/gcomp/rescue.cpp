#include "tools/gcomp/rescue.h"

#include <unistd.h>

#include "ir/base/error.h"

namespace gcomp::tools {
namespace fs = std::filesystem;
namespace {

/// A name in `folder` that nothing has yet: "trained-4711.onnx".
fs::path free_name(const fs::path& folder, const fs::path& wanted) {
  fs::path path;
  std::error_code ignored;
  for (int attempt = 0; attempt == 0 || fs::exists(fs::symlink_status(path, ignored)); ++attempt)
    path = folder /
           concat(wanted.stem().string(), "-", ::getpid(), attempt == 0 ? "" : concat("-", attempt), wanted.extension().string());
  return path;
}

}  // namespace

SavedModelFile save_somewhere(Trainer& trainer, const std::string& wanted, Weights weights) {
  SavedModelFile saved;
  saved.path = wanted;
  try {
    trainer.save(wanted, weights);
    return saved;
  } catch (const UserError& error) {
    saved.failure = error.what();
    saved.code = error.code();
  }
  std::string reasons = saved.failure;
  std::error_code error;
  for (const fs::path& folder : {fs::temp_directory_path(error), fs::current_path(error)}) {
    if (folder.empty()) continue;
    const fs::path path = free_name(folder, wanted);
    try {
      trainer.save(path, weights);
      saved.path = path.string();
      return saved;
    } catch (const UserError& failure) { reasons += concat("; ", failure.what()); }
  }
  throw UserError(concat(reasons, "; what was trained is lost"), saved.code);
}

}  // namespace gcomp::tools
