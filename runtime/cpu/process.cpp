#include "runtime/cpu/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "ir/base/error.h"

extern char** environ;

namespace gcomp::runtime::cpu {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The caller's environment with messages in English, whatever its language.
std::vector<char*> english_environment() {
  static char locale[] = "LC_ALL=C";
  std::vector<char*> variables;
  for (char** variable = environ; *variable; ++variable)
    if (std::strncmp(*variable, "LC_ALL=", 7) != 0) variables.push_back(*variable);
  variables.push_back(locale);
  variables.push_back(nullptr);
  return variables;
}

/// Running processes as file descriptors that poll() waits for.
class PolledProcesses {
 public:
  explicit PolledProcesses(const std::vector<pid_t>& ids) {
    for (const pid_t id : ids) entries_.push_back({static_cast<int>(syscall(SYS_pidfd_open, id, 0)), POLLIN, 0});
  }
  ~PolledProcesses() {
    for (const pollfd& entry : entries_)
      if (entry.fd >= 0) close(entry.fd);
  }
  PolledProcesses(const PolledProcesses&) = delete;
  PolledProcesses& operator=(const PolledProcesses&) = delete;

  /// Returns when one has ended, or earlier: at the latest after `most` milliseconds, -1 for any number. Kernels before 5.3 have no
  /// such descriptors: there a short while has to do.
  void wait(int most) const {
    constexpr int kShortWhile = 5;
    std::vector<pollfd> entries = entries_;
    const bool all = std::all_of(entries.begin(), entries.end(), [](const pollfd& entry) { return entry.fd >= 0; });
    poll(entries.data(), entries.size(), all ? most : kShortWhile);
  }

 private:
  std::vector<pollfd> entries_;
};

}  // namespace

std::string find_program(std::string_view name) {
  if (name.find('/') != std::string_view::npos) return access(std::string(name).c_str(), X_OK) == 0 ? std::string(name) : "";
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "/usr/bin:/bin";
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    const std::string_view folder = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
    if (folder.empty()) continue;
    const std::string candidate = concat(folder, "/", name);
    std::error_code error;
    if (std::filesystem::is_regular_file(candidate, error) && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

Process::Process(std::vector<std::string> arguments, std::filesystem::path log, std::function<bool()> cancelled)
    : cancelled_(std::move(cancelled)), log_(std::move(log)) {
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);
  std::vector<char*> environment = english_environment();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t usual;  // a signal that this process ignores would be ignored by the child too
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGDEF | (cancelled_ ? POSIX_SPAWN_SETPGROUP : 0)));
  const int error = posix_spawn(&id_, raw[0], &actions, &attributes, raw.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return;
  id_ = -1;
  failure_ = concat("cannot start ", arguments[0], ": ", std::strerror(error));
}

Process::Process(Process&& other) noexcept
    : id_(std::exchange(other.id_, -1)),
      cancelled_(std::move(other.cancelled_)),
      failure_(std::move(other.failure_)),
      log_(std::move(other.log_)) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(cancelled_, other.cancelled_);
  std::swap(failure_, other.failure_);
  std::swap(log_, other.log_);
  return *this;
}

Process::~Process() {
  if (id_ <= 0) return;
  if (cancelled_) kill(-id_, SIGTERM);  // a compiler removes its temporary files
  wait_for_end();
}

ProcessResult Process::wait() {
  if (id_ <= 0) return {false, failure_};
  if (cancelled_) wait_any({this, 1});
  return wait_for_end();
}

ProcessResult Process::wait_for_end() {
  int status = 0;
  pid_t ended;
  do ended = waitpid(id_, &status, 0);
  while (ended < 0 && errno == EINTR);
  id_ = -1;
  std::string text = read_text(log_);
  if (ended < 0) return {false, concat("waitpid: ", std::strerror(errno))};
  if (WIFSIGNALED(status)) text += concat("ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")\n");
  return {WIFEXITED(status) && WEXITSTATUS(status) == 0, std::move(text)};
}

bool Process::has_ended() const {
  if (id_ <= 0) return true;
  siginfo_t ended{};
  // The process stays for wait() to reap. What is no child any more has ended too.
  return waitid(P_PID, static_cast<id_t>(id_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ? errno != EINTR : ended.si_pid != 0;
}

std::size_t wait_any(std::span<const Process> processes) {
  check_internal(!processes.empty(), "a wait for no process");
  std::vector<pid_t> ids;
  for (const Process& process : processes) ids.push_back(process.id_);
  const PolledProcesses polled(ids);
  const bool cancellable = std::any_of(processes.begin(), processes.end(), [](const Process& p) { return bool(p.cancelled_); });
  constexpr int kBetweenQueries = 100;  // milliseconds
  for (;;) {
    for (std::size_t i = 0; i < processes.size(); ++i)
      if (processes[i].has_ended()) return i;
    for (const Process& process : processes)
      if (process.cancelled_ && process.cancelled_())
        throw DeviceError("compiling the kernels was cancelled", ExitCode::kernel_compile);
    polled.wait(cancellable ? kBetweenQueries : -1);
  }
}

}  // namespace gcomp::runtime::cpu
