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
#include <cstring>
#include <utility>

#include "ir/base/error.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr int kBetweenQueries = 100;   // milliseconds between two questions whether to give up
constexpr int kWithoutDescriptor = 5;  // where no descriptor tells of a process's end: kernels before 5.3
constexpr auto kGrace = std::chrono::seconds(1);

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

/// Starts it in a session of its own with /dev/null for input; gives an errno.
int spawn(pid_t& id, std::vector<std::string> arguments, std::vector<std::string> environment, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t usual, none;  // a signal that this process ignores or blocks would be so in the child too
  sigemptyset(&none);
  sigemptyset(&usual);
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGXFSZ}) sigaddset(&usual, signal);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID));
  const int error =
      posix_spawn(&id, arguments[0].c_str(), &actions, &attributes, pointers(arguments).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || std::strchr("_@%+=:,./-", c);
}

int milliseconds_of(std::chrono::steady_clock::duration time) {
  const auto count = std::chrono::ceil<std::chrono::milliseconds>(time).count();
  return static_cast<int>(std::clamp<std::int64_t>(count, 0, 1 << 30));
}

}  // namespace

Process::Process(std::vector<std::string> arguments, ProcessOptions options)
    : options_(std::move(options)), started_(Clock::now()) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    failure_ = concat("cannot start ", arguments[0], ": pipe: ", std::strerror(errno));
    return;
  }
  output_ = Descriptor(ends[0]);
  const Descriptor input(ends[1]);
  fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  pid_t id = -1;
  const StartingEntry starting;
  if (const int error = spawn(id, arguments, options_.environment, input.get()); error != 0) {
    failure_ = concat("cannot start ", arguments[0], ": ", std::strerror(error));
    return;
  }
  id_.value = id;
  ended_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, id, 0)));
  tied_ = EndsWithProcess::process_group(id);
}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(options_, other.options_);
  std::swap(output_, other.output_);
  std::swap(ended_, other.ended_);
  std::swap(log_, other.log_);
  std::swap(failure_, other.failure_);
  std::swap(tied_, other.tied_);
  std::swap(started_, other.started_);
  std::swap(asked_to_end_, other.asked_to_end_);
  return *this;
}

Process::~Process() {
  if (id_.value <= 0) return;
  end();
  ProcessResult ignored;
  reap(ignored);
}

ProcessResult Process::wait() {
  ProcessResult result;
  if (id_.value <= 0) {
    result.log = failure_;
    return result;
  }
  wait_any({this, 1});
  result.timed_out = !has_ended();
  if (result.timed_out) end();
  const bool known = reap(result);
  if (!known)
    throw DeviceError(
        "how a command ended cannot be told, as this process ignores SIGCHLD; set that to SIG_DFL (sigaction) while "
        "gcomp compiles",
        ExitCode::kernel_compile);
  return result;
}

void Process::ask_to_end() {
  if (id_.value <= 0 || asked_to_end_) return;
  kill(-id_.value, SIGTERM);
  asked_to_end_ = Clock::now();
}

/// Returns when it has ended.
void Process::end() {
  ask_to_end();
  while (!has_ended() && Clock::now() - *asked_to_end_ < kGrace) {
    pollfd entry{ended_.get(), POLLIN, 0};
    poll(&entry, 1, ended_ ? milliseconds_of(*asked_to_end_ + kGrace - Clock::now()) : kWithoutDescriptor);
  }
  kill(-id_.value, SIGKILL);
}

/// The rest of its group is ended before its number is given back, which until then no other group can have.
bool Process::reap(ProcessResult& result) {
  kill(-id_.value, SIGKILL);
  int status = 0;
  pid_t ended;
  do ended = waitpid(id_.value, &status, 0);
  while (ended < 0 && errno == EINTR);
  const bool known = ended > 0 || errno != ECHILD;
  tied_.release();
  id_.value = -1;
  read_output();
  result.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  result.log = log_.text();
  if (ended < 0) result.log += concat("waitpid: ", std::strerror(errno), "\n");
  else if (WIFSIGNALED(status) && !result.timed_out)
    result.log += concat("ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")\n");
  result.succeeded = ended > 0 && !result.timed_out && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return known;
}

bool Process::has_ended() const {
  if (id_.value <= 0) return true;
  siginfo_t ended{};
  // The process stays for wait() to reap. What is no child any more has ended too.
  return waitid(P_PID, static_cast<id_t>(id_.value), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ? errno != EINTR : ended.si_pid != 0;
}

bool Process::is_overdue() const {
  return options_.timeout > 0 && std::chrono::duration<double>(Clock::now() - started_).count() >= options_.timeout;
}

/// What there is, a part of it at a time: a process may write faster than this reads.
void Process::read_output() {
  constexpr int kMostReads = 16;
  char buffer[1 << 16];
  for (int i = 0; output_ && i < kMostReads; ++i) {
    const ssize_t got = ::read(output_.get(), buffer, sizeof buffer);
    if (got > 0) log_.append({buffer, static_cast<std::size_t>(got)});
    else if (got < 0 && errno == EINTR) continue;
    else if (got < 0 && errno == EAGAIN) return;
    else output_ = Descriptor();
  }
}

std::size_t wait_any(std::span<Process> processes) {
  check_internal(!processes.empty(), "a wait for no process");
  using Clock = Process::Clock;
  for (;;) {
    for (std::size_t i = 0; i < processes.size(); ++i) {
      processes[i].read_output();
      if (processes[i].has_ended() || processes[i].is_overdue()) return i;
    }
    int most = -1;
    const auto within = [&](int milliseconds) { most = most < 0 ? milliseconds : std::min(most, milliseconds); };
    std::vector<pollfd> entries;
    for (const Process& process : processes) {
      if (process.options_.cancelled && process.options_.cancelled()) {
        for (Process& other : processes) other.ask_to_end();
        throw DeviceError("compiling the kernels was cancelled", ExitCode::kernel_compile);
      }
      entries.push_back({process.ended_.get(), POLLIN, 0});
      entries.push_back({process.output_.get(), POLLIN, 0});
      if (!process.ended_) within(kWithoutDescriptor);
      if (process.options_.cancelled) within(kBetweenQueries);
      if (process.options_.timeout <= 0) continue;
      const auto left = process.started_ + std::chrono::duration<double>(process.options_.timeout) - Clock::now();
      within(milliseconds_of(std::chrono::ceil<Clock::duration>(left)));
    }
    poll(entries.data(), entries.size(), most);
  }
}

std::string shell_command(std::span<const std::string> arguments) {
  std::string command;
  for (const std::string& argument : arguments) {
    if (!command.empty()) command += ' ';
    const bool plain = !argument.empty() && std::all_of(argument.begin(), argument.end(), is_plain);
    if (!plain) command += '\'';
    for (const char c : argument) command += c == '\'' ? std::string("'\\''") : std::string(1, c);
    if (!plain) command += '\'';
  }
  return command;
}

}  // namespace gcomp::runtime::cpu
