// The subcommands. Each adds its options to the command line and gives what to do when it is chosen.
#pragma once

#include <functional>

#include "tools/command_line/arguments.h"
#include "tools/gcomp/console.h"

namespace gcomp::tools {

struct Command {
  ArgumentParser parser;
  std::function<void()> run;  ///< throws gcomp::Error
};

Command add_train(ArgumentParser& root, Console& console);
Command add_run(ArgumentParser& root, Console& console);
Command add_grad(ArgumentParser& root, Console& console);
Command add_compile(ArgumentParser& root, Console& console);
Command add_inspect(ArgumentParser& root, Console& console);
Command add_bench(ArgumentParser& root, Console& console);
Command add_doctor(ArgumentParser& root, Console& console);
Command add_cache(ArgumentParser& root, Console& console);

}  // namespace gcomp::tools
