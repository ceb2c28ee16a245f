// The files that a command writes, checked before any work: an ending that says what gcomp writes, no file that the run reads, and
// no two of them in one, those of --run-dir among them. Files are compared by device and inode, so links and other spellings of a
// path do not help. Beside an .onnx its weights may come to lie (gcomp/driver/onnx_output.h): that file is one of them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/onnx/import.h"

namespace gcomp::tools {

struct Output {
  std::string flag;  ///< "--out"
  std::string path;  ///< "" where the flag was not given: nothing is checked
  /// What its name may end in; where there are none, in anything but what gcomp gives to models and arrays.
  std::vector<std::string> endings = {};
};

inline const std::vector<std::string> kTrainedEndings = {".onnx", ".gcx"};
inline const std::vector<std::string> kArrayEndings = {".npz"};

class Outputs {
 public:
  /// Throws UserError (exit 2) for an ending that is unknown, and where two outputs are one file. `run_dir` is the folder of a run,
  /// whose own files are outputs too; "" for none.
  explicit Outputs(std::vector<Output> outputs, std::string run_dir = "");

  /// Throws UserError (exit 2) where an output is the file at `path`, which the run reads as its `role`: "model", "data".
  void protect(std::string_view role, const std::filesystem::path& path) const;
  /// The same for a model's file and its external data.
  void protect_model(const std::vector<frontend::FileStamp>& files) const;

 private:
  std::vector<Output> outputs_;
  std::string run_dir_;
};

}  // namespace gcomp::tools
