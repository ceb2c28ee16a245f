// The subcommands. Each adds its options to the command line and gives what to do when it is chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "tools/gcomp/console.h"

namespace gcomp::tools {

struct Command {
  CLI::App* app = nullptr;
  std::function<void()> run;  ///< throws gcomp::Error
};

Command add_train(CLI::App& app, Console& console);
Command add_run(CLI::App& app, Console& console);
Command add_grad(CLI::App& app, Console& console);
Command add_compile(CLI::App& app, Console& console);
Command add_inspect(CLI::App& app, Console& console);
Command add_bench(CLI::App& app, Console& console);
Command add_doctor(CLI::App& app, Console& console);
Command add_cache(CLI::App& app, Console& console);

}  // namespace gcomp::tools
