#include "tools/gcomp/rescue.h"

#include <unistd.h>

#include "gcomp/driver/onnx_output.h"
#include "gcomp/driver/training.h"
#include "ir/base/error.h"

namespace gcomp::tools {
namespace fs = std::filesystem;
namespace {

/// A name in `folder` that nothing has yet: "trained-4711.onnx".
fs::path free_name(const fs::path& folder, const fs::path& wanted) {
  fs::path path;
  const auto is_taken = [](const fs::path& name) {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(name, ignored));
  };
  for (int attempt = 0; attempt == 0 || is_taken(path) || is_taken(driver::data_beside(path)); ++attempt)
    path = folder /
           concat(wanted.stem().string(), "-", ::getpid(), attempt == 0 ? "" : concat("-", attempt), wanted.extension().string());
  return path;
}

}  // namespace

SavedModelFile save_somewhere(Trainer& trainer, const std::string& wanted, Weights weights, const std::string& left) {
  SavedModelFile saved;
  saved.path = wanted;
  try {
    trainer.save(wanted, weights);
    saved.beside = driver::written_beside(trainer);
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
      saved.beside = driver::written_beside(trainer);
      return saved;
    } catch (const UserError& failure) { reasons += concat("; ", failure.what()); }
  }
  throw UserError(concat(reasons, "; ", left.empty() ? "what was trained is lost" : left), saved.code);
}

}  // namespace gcomp::tools
