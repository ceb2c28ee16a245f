// The subcommands. Each adds its options to the command line and gives what to do when it is chosen.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/command_line/arguments.h"
#include "tools/gcomp/console.h"

namespace gcomp::tools {

/// Thrown where a command left results and did not end as it was meant to: a signal came, or they could not go where they were
/// wanted.
struct Unfinished {
  std::string message;
  int exit_code;
  std::shared_ptr<const nlohmann::json> results;  ///< what --json says beside the error; may be null
};

struct Command {
  ArgumentParser parser;
  std::function<void()> run;  ///< throws gcomp::Error or Unfinished
  /// Makes of the words of the command line, the program's and the subcommand's first, those that are parsed; empty for the same.
  /// Throws gcomp::Error.
  std::function<std::vector<std::string>(std::vector<std::string>)> expand = {};
};

Command add_train(ArgumentParser& root, Console& console);
Command add_run(ArgumentParser& root, Console& console);
Command add_eval(ArgumentParser& root, Console& console);
Command add_generate(ArgumentParser& root, Console& console);
Command add_grad(ArgumentParser& root, Console& console);
Command add_compile(ArgumentParser& root, Console& console);
Command add_convert(ArgumentParser& root, Console& console);
Command add_inspect(ArgumentParser& root, Console& console);
Command add_bench(ArgumentParser& root, Console& console);
Command add_doctor(ArgumentParser& root, Console& console);
Command add_cache(ArgumentParser& root, Console& console);
Command add_scale(ArgumentParser& root, Console& console);
Command add_sign(ArgumentParser& root, Console& console);
/// Subcommands of `gcomp data`, which is their `data`.
Command add_data_inspect(ArgumentParser& data, Console& console);
Command add_data_convert(ArgumentParser& data, Console& console);
Command add_data_bench(ArgumentParser& data, Console& console);

}  // namespace gcomp::tools
