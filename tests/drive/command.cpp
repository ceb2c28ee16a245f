#include "tests/drive/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "ir/base/error.h"
#include "runtime/device.h"
#include "runtime/library_search.h"

extern char** environ;

namespace gcomp::test {
namespace {

/// Both ends of a pipe; what is still open is closed in the end.
struct Pipe {
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  }
  ~Pipe() {
    for (int& end : ends) close_end(end);
  }
  static void close_end(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
  int ends[2] = {-1, -1};
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

/// Appends what can be read now; false at the end of the stream.
bool drain(int end, std::string& text) {
  char buffer[4096];
  const ssize_t got = read(end, buffer, sizeof buffer);
  if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
  return got > 0;
}

/// The variables and those of this process that are not among them; of a name given twice the first counts. No name comes twice:
/// the loader would take the last.
std::vector<std::string> with_environment(const std::vector<std::string>& more) {
  std::vector<std::string> variables;
  const auto add = [&](const std::string& variable) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    for (const std::string& known : variables)
      if (known.rfind(name, 0) == 0) return;
    variables.push_back(variable);
  };
  for (const std::string& variable : more) add(variable);
  for (char** variable = environ; *variable; ++variable) add(*variable);
  return variables;
}

std::string binary() {
  const char* elsewhere = std::getenv("GCOMP_TEST_BINARY");
  return elsewhere ? elsewhere : GCOMP_BINARY;
}

/// What programs for a device of that name are compiled for, such as "cuda:sm_90".
std::string target_of(const char* device) {
  static const std::string target = [device] {
    runtime::DeviceOptions options;
    options.libraries = runtime::search_by_variables([](const char* name) -> const char* { return std::getenv(name); });
    return to_string(runtime::open_device(runtime::parse_device(device).request, options)->target());
  }();
  return target;
}

/// GCOMP_TEST_DEVICE=cuda runs what trains or predicts there, and compiles artifacts for it, where the test does not say.
void add_device(std::vector<std::string>& arguments) {
  const char* device = std::getenv("GCOMP_TEST_DEVICE");
  const auto says = [&](const char* flag) { return std::find(arguments.begin(), arguments.end(), flag) != arguments.end(); };
  if (!device || arguments.empty() || says("--device")) return;
  if (arguments[0] == "compile" && !says("--target") && !says("--emit"))
    arguments.insert(arguments.begin() + 1, {"--target", target_of(device)});
  for (const char* command : {"train", "grad", "run", "bench"})
    if (arguments[0] == command) arguments.insert(arguments.begin() + 1, {"--device", device});
}

CommandResult run(std::vector<std::string> arguments, const CommandOptions& options, const std::string& marker,
                  const std::function<void(pid_t)>& action) {
  add_device(arguments);
  arguments.insert(arguments.begin(), binary());
  if (!options.limits.empty()) {
    const std::vector<std::string> shell{"/bin/sh", "-c", options.limits + "; exec \"$0\" \"$@\""};
    arguments.insert(arguments.begin(), shell.begin(), shell.end());
  }
  std::vector<std::string> variables = with_environment(options.environment);
  Pipe output, errors;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output.ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.ends[1], STDERR_FILENO);
  // What nohup, or a shell's &, ignores would be ignored by the command too.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t usual;
  sigemptyset(&usual);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&usual, signal);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, arguments[0].c_str(), &actions, &attributes, pointers(arguments).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) throw std::runtime_error("cannot start " + binary());
  Pipe::close_end(output.ends[1]);
  Pipe::close_end(errors.ends[1]);

  CommandResult result;
  bool sent = marker.empty();
  pollfd streams[] = {{output.ends[0], POLLIN, 0}, {errors.ends[0], POLLIN, 0}};
  std::string* texts[] = {&result.output, &result.errors};
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    if (poll(streams, 2, -1) < 0) break;
    for (int i = 0; i < 2; ++i)
      if (streams[i].fd >= 0 && streams[i].revents != 0 && !drain(streams[i].fd, *texts[i])) streams[i].fd = -1;
    if (!sent && result.errors.find(marker) != std::string::npos) {
      action(child);
      sent = true;
    }
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  result.peak_bytes = std::int64_t{usage.ru_maxrss} * 1024;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace

bool on_another_device() {
  const char* device = std::getenv("GCOMP_TEST_DEVICE");
  return device && std::string_view(device) != "cpu";
}

CommandResult run_gcomp(std::vector<std::string> arguments, const CommandOptions& options) {
  return run(std::move(arguments), options, "", {});
}

CommandResult run_gcomp_until(std::vector<std::string> arguments, const std::string& marker,
                              const std::function<void(pid_t)>& action, const CommandOptions& options) {
  return run(std::move(arguments), options, marker, action);
}

CommandResult interrupt_gcomp(std::vector<std::string> arguments, const std::string& marker, int signal) {
  return run(std::move(arguments), {}, marker, [signal](pid_t child) { kill(child, signal); });
}

}  // namespace gcomp::test
