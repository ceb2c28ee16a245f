// gcomp: the command line. Exit codes are ExitCode's, and 128 plus the signal's number after a signal.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <vector>

#include "gcomp/version.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/files/left_behind.h"
#include "tools/gcomp/allocator.h"
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
    "7 out of memory, 8 numeric failure, 75 interrupted and to be resumed (train --run-dir), 129, 130, 143 ended by SIGHUP, "
    "SIGINT, SIGTERM (train writes the model as it is then)";
constexpr const char* kDataFooter =
    "Examples:\n"
    "  gcomp data inspect photos --preview sheet.png\n"
    "  gcomp data convert photos -o photos.shard --size 256 --quality 90\n"
    "  gcomp data bench photos --augment 'random_resized_crop(224), hflip' --workers 2\n"
    "  gcomp data COMMAND --help";

struct GlobalFlags {
  bool json = false, quiet = false, verbose = false;
};

void add_global(ArgumentParser parser, GlobalFlags& flags) {
  parser.add_flag("--json", flags.json, "results as JSON on stdout").group("Output");
  parser.add_flag("--quiet,-q", flags.quiet, "results, warnings and errors only").group("Output");
  parser.add_flag("--verbose,-v", flags.verbose, "more detail").group("Output");
}

/// --output is easily taken for the option that names a file, and then that one is missing.
std::string path_hint(const ArgumentParser& parser, const std::string& message) {
  const std::vector<std::string> given = parser.given();
  const bool output = std::find(given.begin(), given.end(), "--output") != given.end();
  return output && message.find("--out") != message.npos ? "; --output names an output of the model, not a file" : "";
}

/// The subcommands of gcomp, or those of one of them, which `group` names.
std::vector<std::string> subcommands_of(const std::vector<Command>& commands, const std::string& group) {
  std::vector<std::string> names;
  for (const Command& command : commands) {
    std::string name = command.parser.name();
    if (!group.empty() && !name.starts_with(group + " ")) continue;
    if (!group.empty()) name.erase(0, group.size() + 1);
    name = name.substr(0, name.find(' '));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

/// What was refused, in one line with the nearest name. `data` has subcommands of its own.
std::string explain(const ArgumentParser& root, const ArgumentParser& data, const Parsed& parsed,
                    const std::vector<Command>& commands) {
  const std::string group = data.chosen() ? data.name() : "";
  const std::vector<std::string> names = subcommands_of(commands, group);
  for (const Command& command : commands) {
    if (!command.parser.chosen()) continue;
    for (const std::string& word : command.parser.unknown()) {
      if (word.size() < 2 || word[0] != '-') return concat("unexpected argument '", word, "'");
      const std::string flag = word.substr(0, word.find('='));
      return concat("unknown option ", flag, flag.size() > 2 ? did_you_mean(flag, command.parser.option_names()) : "", " (gcomp ",
                    command.parser.name(), " --help lists them)");
    }
    return concat(parsed.message, path_hint(command.parser, parsed.message));
  }
  for (const std::string& word : root.unknown())
    return concat("unknown command '", word, "'", did_you_mean(word, names), "; there are ", listing(names));
  return concat("no command is given; there are ", listing(names), " (gcomp ", group.empty() ? "" : group + " ",
                "--help says what they do)");
}

/// The subcommand that the command line gives, or "".
std::string chosen_name(const std::vector<Command>& commands, const ArgumentParser& data) {
  for (const Command& command : commands)
    if (command.parser.chosen()) return command.parser.name();
  return data.chosen() ? data.name() : "";
}

int fail(const Console& console, const std::string& command, const std::string& message, int code, nlohmann::json results = {}) {
  console.error(concat("gcomp", command.empty() ? "" : " " + command, ": ", message));
  results["error"] = message;
  results["exit_code"] = code;
  console.result_json(std::move(results));
  return code;
}

int run(const Command& command, const Console& console) {
  const std::string name = command.parser.name();
  try {
    command.run();
    console.check_results();
    return static_cast<int>(ExitCode::ok);
  } catch (const Unfinished& run) {
    return fail(console, name, run.message, run.exit_code, run.results ? *run.results : nlohmann::json());
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
  keep_freed_memory();
  occupy_standard_streams();
  leave_nothing_behind();
  std::signal(SIGXFSZ, SIG_IGN);  // a file at the limit of its size is an error of that write, not the end of the process
  Console console;
  GlobalFlags global;
  ArgumentParser root("gcomp compiles and trains neural networks from ONNX files", "gcomp");
  root.set_footer(kFooter);
  root.set_version(concat("gcomp ", version()));
  root.require_subcommand();
  ArgumentParser data = root.add_subcommand("data", "looks at data, converts them, times their reading: gcomp data COMMAND --help");
  data.require_subcommand();
  data.set_footer(kDataFooter);
  const std::vector<Command> commands{
      add_train(root, console),   add_run(root, console),          add_eval(root, console),         add_grad(root, console),
      add_compile(root, console), add_convert(root, console),      add_generate(root, console),     add_inspect(root, console),
      add_bench(root, console),   add_doctor(root, console),       add_cache(root, console),        add_scale(root, console),
      add_sign(root, console),    add_data_inspect(data, console), add_data_convert(data, console), add_data_bench(data, console)};
  for (const Command& command : commands) add_global(command.parser, global);
  std::vector<std::string> words(argv, argv + argc);
  console.set_json(std::find(words.begin(), words.end(), "--json") != words.end());  // what is refused is told as asked, too
  for (const Command& command : commands)
    if (command.expand && words.size() > 1 && words[1] == command.parser.name()) try {
        words = command.expand(std::move(words));
      } catch (const Error& error) { return fail(console, command.parser.name(), error.what(), static_cast<int>(error.code())); }
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  const Parsed parsed = root.parse(static_cast<int>(arguments.size()), arguments.data());
  if (parsed.outcome == Parsed::Outcome::answered) return static_cast<int>(ExitCode::ok);
  if (parsed.outcome == Parsed::Outcome::refused)
    return fail(console, chosen_name(commands, data), explain(root, data, parsed, commands), static_cast<int>(ExitCode::usage));
  console.set_json(global.json);
  console.set_level(global.quiet ? Console::Level::quiet : global.verbose ? Console::Level::verbose : Console::Level::normal);
  for (const Command& command : commands)
    if (command.parser.chosen()) return run(command, console);
  return static_cast<int>(ExitCode::usage);
}

}  // namespace
}  // namespace gcomp::tools

int main(int argc, char** argv) {
  const int code = gcomp::tools::main_of(argc, argv);
  if (!gcomp::runtime::has_abandoned_thread()) return code;
  std::fflush(nullptr);
  std::_Exit(code);
}
