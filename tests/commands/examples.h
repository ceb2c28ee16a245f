// The commands that help texts and documents show, found by rule, and a folder in which they can run.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/temporary_directory.h"

namespace gcomp::test {

/// Lines of a help text or of what a script prints: indented, with gcomp or gcomp-opt as their command.
std::vector<std::string> examples_in_text(std::string_view text);
/// Lines of Markdown's code blocks with gcomp or gcomp-opt as their command, and code spans that give gcomp a model. Comments are
/// cut off.
std::vector<std::string> examples_in_document(std::string_view markdown);

/// What a placeholder stands for: "..." for the rest that a command needs, COMMAND for a subcommand.
std::string without_placeholders(std::string line);

/// Whether the line needs a GPU or its libraries, and so may end with "no usable device" where there is none.
bool needs_gpu(std::string_view line);

/// A folder that looks like the root of a checkout, to which the files that examples read are added.
class ExampleFolder {
 public:
  ExampleFolder();
  /// Writes what the line reads and what is not there yet: models that fit the loss, data that fit the model.
  void provide(const std::string& line);

  struct Result {
    int exit_code = -1;
    std::string output;  ///< stdout and stderr
  };
  /// Runs the line in bash; a failure anywhere in a pipe counts.
  Result run(const std::string& line);

 private:
  void provide_segment(const std::vector<std::string>& words);
  void provide_beside(const std::vector<std::string>& words);
  void provide_keys(const std::vector<std::string>& words);
  void provide_conversion(const std::vector<std::string>& words);
  void provide_data(const std::vector<std::string>& words);
  void write_model(const std::filesystem::path& path, const std::vector<std::string>& words);
  void write_data(const std::filesystem::path& path, const std::string& loss);

  TemporaryDirectory folder_;
};

}  // namespace gcomp::test
