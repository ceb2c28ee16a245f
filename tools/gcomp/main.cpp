// gcomp: the command line. Exit codes are ExitCode's, and 130 after Ctrl-C.
#include <CLI/CLI.hpp>
#include <new>
#include <nlohmann/json.hpp>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/base/version.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/console.h"
#include "tools/gcomp/interrupt.h"

namespace gcomp::tools {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  gcomp train model.onnx --data train.npz --loss cross_entropy --optimizer adamw --lr 1e-3 --batch 64 --epochs 20 --out "
    "trained.onnx\n"
    "  gcomp run trained.onnx --inputs x.npz --outputs y.npz\n"
    "  gcomp compile model.onnx --train --loss mse --dim batch=32 --emit cuda -o kernels\n"
    "  gcomp COMMAND --help\n\n"
    "Exit codes: 0 ok, 1 internal error, 2 usage, 3 invalid model or data, 4 unsupported, 5 kernel compilation, 6 no usable "
    "device,\n"
    "7 out of memory, 8 numeric failure, 130 interrupted";

struct GlobalFlags {
  bool json = false, quiet = false, verbose = false;
};

void add_global(CLI::App& app, GlobalFlags& flags) {
  app.add_flag("--json", flags.json, "results as JSON on stdout")->group("Output");
  app.add_flag("--quiet,-q", flags.quiet, "warnings and errors only")->group("Output");
  app.add_flag("--verbose,-v", flags.verbose, "more detail")->group("Output");
}

/// Every long and short flag of a command, with its dashes.
std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

/// Turns CLI11's complaint into one line with the nearest name.
std::string explain(const CLI::App& app, const CLI::ParseError& error, const std::vector<Command>& commands) {
  if (const std::string text = error.what(); error.get_name() == "ArgumentMismatch" && text.find("At Most 1") != std::string::npos)
    return text.substr(0, text.find(": ")) + " is given more than once";
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.app->get_name());
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    for (const std::string& word : command.app->remaining()) {
      if (word.size() < 2 || word[0] != '-') return concat("unexpected argument '", word, "'");
      const std::vector<std::string> known = flags_of(*command.app);
      const std::string flag = word.substr(0, word.find('='));
      return concat("unknown option ", flag, did_you_mean(flag, known), " (gcomp ", command.app->get_name(), " --help lists them)");
    }
    return error.what();
  }
  for (const std::string& word : app.remaining())
    return concat("unknown command '", word, "'", did_you_mean(word, names), "; there are ", listing(names));
  return error.what();
}

int fail(const Console& console, const std::string& command, const std::string& message, int code) {
  console.error(concat("gcomp", command.empty() ? "" : " " + command, ": ", message));
  console.result_json({{"error", message}, {"exit_code", code}});
  return code;
}

int run(const Command& command, const Console& console) {
  const std::string name = command.app->get_name();
  try {
    command.run();
    return static_cast<int>(ExitCode::ok);
  } catch (const Interrupted& interrupted) {
    return fail(console, name, interrupted.message, kInterruptedExit);
  } catch (const InternalError& error) {
    return fail(console, name, concat("internal error, a fault of gcomp: ", error.what()), static_cast<int>(error.code()));
  } catch (const Error& error) {
    return fail(console, name, error.what(), static_cast<int>(error.code()));
  } catch (const std::bad_alloc&) {
    return fail(console, name, "out of memory", static_cast<int>(ExitCode::out_of_memory));
  } catch (const std::exception& error) {
    return fail(console, name, concat("internal error, a fault of gcomp: ", error.what()), static_cast<int>(ExitCode::internal));
  }
}

int main_of(int argc, char** argv) {
  Console console;
  GlobalFlags global;
  CLI::App app{"gcomp compiles and trains neural networks from ONNX files", "gcomp"};
  app.footer(kFooter);
  app.set_version_flag("--version", concat("gcomp ", version()));
  app.require_subcommand(1);
  const std::vector<Command> commands{add_train(app, console),   add_run(app, console),     add_grad(app, console),
                                      add_compile(app, console), add_inspect(app, console), add_bench(app, console),
                                      add_doctor(app, console),  add_cache(app, console)};
  for (const Command& command : commands) add_global(*command.app, global);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    return fail(console, "", explain(app, error, commands), static_cast<int>(ExitCode::usage));
  }
  console.set_json(global.json);
  console.set_level(global.quiet ? Console::Level::quiet : global.verbose ? Console::Level::verbose : Console::Level::normal);
  for (const Command& command : commands)
    if (command.app->parsed()) return run(command, console);
  return static_cast<int>(ExitCode::usage);
}

}  // namespace
}  // namespace gcomp::tools

int main(int argc, char** argv) { return gcomp::tools::main_of(argc, argv); }
