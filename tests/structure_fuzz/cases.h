// The cases of a fuzzer, each within a time and a memory limit, in a process that is watched. A case is a pure function of subject,
// seed and number, so that `--first N --runs 1` repeats any of them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/structure_fuzz/edits.h"
#include "tools/command_line/arguments.h"

namespace gcomp::tests {

/// What is fuzzed: makes the case of a number, and puts it through the code that reads such files.
struct Subject {
  std::string name;
  /// Makes the case and leaves it in `folder`; gives its file name and a word on what it is.
  std::function<std::pair<std::string, std::string>(Random& random, const std::filesystem::path& folder)> make;
  /// Reads it as gcomp would; throws as gcomp does.
  std::function<void(Random& random, const std::filesystem::path& file)> read;
};

struct FuzzProgram {
  std::string name, summary;
  std::string subject_names;  ///< "onnx, bombs and gir"
  /// With a folder for what is made once.
  std::function<std::vector<Subject>(const std::filesystem::path& scratch)> subjects;
  std::function<void(tools::ArgumentParser&)> declare = {};  ///< options of its own
};

/// main(): exit 1 where a case crashed, hung, took too much memory or ended in an internal error; it is then kept.
int run_fuzzer(int argc, char** argv, const FuzzProgram& program);

}  // namespace gcomp::tests
