#include "tools/gcomp/ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "ir/base/error.h"
#include "runtime/comm/launch.h"
#include "runtime/comm/mpi_communicator.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/files/descriptor.h"
#include "tools/gcomp/mpirun_watch.h"

namespace gcomp::tools {
namespace {

using runtime::comm::Launched;

constexpr std::int64_t kMostRanks = 1 << 16;

const char* environment(const char* name) { return std::getenv(name); }

[[noreturn]] void refuse_ranks(const std::string& message) { throw UserError(message, ExitCode::usage); }

void check_rank_flags(const RankFlags& flags) {
  if (flags.ranks < 0 || flags.ranks > kMostRanks) refuse_ranks(concat("--ranks ", flags.ranks, ": wanted 1 to ", kMostRanks));
  if (flags.distributed != "auto" && flags.distributed != "mpi" && flags.distributed != "none")
    refuse_ranks(concat("--distributed ", flags.distributed, ": wanted auto, mpi or none"));
  if (flags.distributed == "none" && flags.ranks > 1)
    refuse_ranks(concat("--distributed none: one process trains alone, and --ranks ", flags.ranks, " asks for several"));
}

constexpr char kAskedVariable[] = "GCOMP_ASKED_SIGNAL";  // of the ranks: a file with the signal that the first process got

volatile std::sig_atomic_t g_mpirun = 0;  // its process
volatile std::sig_atomic_t g_own_asked = 0;
volatile std::sig_atomic_t* g_asked = &g_own_asked;  // the first signal, in memory that ranks can read

/// mpirun passes SIGUSR1 on to the ranks, which then end as one process does; a second signal ends them at once.
void pass_on(int signal) {
  const bool is_first = *g_asked == 0;
  if (is_first) *g_asked = signal;
  if (g_mpirun != 0) ::kill(g_mpirun, is_first ? SIGUSR1 : SIGTERM);
}

/// The file of this process's memory that holds *g_asked; "" where there can be none, and ranks know of SIGUSR1 alone.
std::string share_asked_signal() {
  const int file = ::memfd_create("gcomp-asked-signal", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, sizeof *g_asked) != 0) return "";
  void* const memory = ::mmap(nullptr, sizeof *g_asked, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return "";
  g_asked = static_cast<volatile std::sig_atomic_t*>(memory);
  return concat("/proc/", ::getpid(), "/fd/", file);
}

void pass_signals_on() {
  struct sigaction action {};
  action.sa_handler = pass_on;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaction(signal, &action, nullptr);
}

/// In the child: mpirun by itself in a process group, so that a terminal's Ctrl-C comes to this process alone.
[[noreturn]] void exec_mpirun(const std::vector<char*>& arguments, pid_t parent, int errors, const std::string& asked) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(errors, STDERR_FILENO);
  if (!asked.empty()) ::setenv(kAskedVariable, asked.c_str(), 1);
  ::execvp(arguments[0], arguments.data());
  const std::string message = concat("gcomp train: mpirun cannot be started: ", std::strerror(errno),
                                     errno == ENOENT ? "; install an MPI (Debian: openmpi-bin)" : "", "\n");
  static_cast<void>(::write(STDERR_FILENO, message.data(), message.size()));
  ::_exit(static_cast<int>(ExitCode::no_device));
}

constexpr int kMpirunSilence = 2500;  // milliseconds, after which is asked whether mpirun has somebody left

/// Shows what comes until mpirun and all ranks have closed it. Gives the exit code where mpirun had to be ended, because it waited
/// for nobody and did not end.
std::optional<int> show_errors(int from, pid_t mpirun) {
  runtime::comm::MpirunReport report;
  MpirunWatch watch(mpirun);
  std::optional<int> code;
  std::string line;
  char bytes[4096];
  const auto show = [](const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  while (true) {
    struct pollfd errors {
      from, POLLIN, 0
    };
    const int ready = ::poll(&errors, 1, kMpirunSilence);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && watch.is_left_alone()) {
      ::kill(mpirun, SIGKILL);
      code = static_cast<int>(ExitCode::internal);  // unless more is known below
      break;
    }
    if (ready == 0) continue;
    const ssize_t count = ::read(from, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    for (const char c : std::string_view(bytes, static_cast<std::size_t>(count))) {
      if (c != '\n') line += c;
      else show(report.line(std::exchange(line, "")));
    }
    std::fflush(stderr);
  }
  show(line + report.end());
  if (code) {
    const std::optional<int> left = watch.left_status();
    if (report.signal()) {
      code = 128 + *report.signal();
    } else if (left && WIFSIGNALED(*left)) {
      code = 128 + WTERMSIG(*left);
      show(concat("gcomp train: a rank exited on signal ", WTERMSIG(*left), " (", strsignal(WTERMSIG(*left)),
                  "); the others were ended\n"));
    } else {
      show("gcomp train: mpirun has no rank left and did not end: it was ended, and has not said how all of them ended\n");
    }
  }
  std::fflush(stderr);
  return code;
}

[[noreturn]] void run_mpirun(int ranks, const std::vector<std::string>& words) {
  std::error_code none;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none);
  std::vector<std::string> command = runtime::comm::mpirun_command({.ranks = ranks,
                                                                    .program = program.empty() ? words.at(0) : program.string(),
                                                                    .arguments = {words.begin() + 1, words.end()},
                                                                    .is_root = ::geteuid() == 0,
                                                                    .processors = runtime::cpu::available_processors()});
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int errors[2];
  if (::pipe2(errors, O_CLOEXEC) != 0)
    throw DeviceError(concat("--ranks ", ranks, ": mpirun cannot be started: ", std::strerror(errno)));
  const std::string asked = share_asked_signal();
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) throw DeviceError(concat("--ranks ", ranks, ": mpirun cannot be started: ", std::strerror(errno)));
  if (child == 0) exec_mpirun(arguments, parent, errors[1], asked);
  g_mpirun = child;
  pass_signals_on();
  ::close(errors[1]);
  const std::optional<int> code = show_errors(errors[0], child);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (code) std::_Exit(*code);
  std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace

void RankFlags::add(ArgumentParser& parser) {
  const std::string group = "Several processes (docs/distributed.md)";
  parser
      .add_option("--ranks", ranks,
                  "train in so many processes, which mpirun starts on this machine; a launcher (mpirun, srun) says it by itself")
      .type_name("N")
      .group(group);
  parser
      .add_option("--distributed", distributed,
                  "auto: as one of several where a launcher started this process; mpi: always; none: alone")
      .type_name("auto|mpi|none")
      .group(group);
  parser
      .add_flag("--no-overlap", no_overlap,
                "no exchange goes on while this process computes; the result is the same (default: each as soon as it can, on CPUs "
                "where processors are left for that)")
      .group(group);
  parser.add_flag("--overlap", overlap, "exchanges go on while this process computes, whatever processors there are").group(group);
  parser.add_option("--mpi-plugin", plugin, "libgcomp_mpi.so, where it is not beside gcomp").type_name("FILE").group(group);
  parser
      .add_flag("--time-exchanges", time_exchanges,
                "how long the ranks waited for each other and moved data; each exchange then takes one small message more")
      .group(group);
}

int signal_asked(int noted) {
  const char* path = noted == SIGUSR1 ? environment(kAskedVariable) : nullptr;
  if (!path) return noted;
  const runtime::Descriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  std::sig_atomic_t asked = 0;
  return file && ::read(file.get(), &asked, sizeof asked) == sizeof asked && asked != 0 ? asked : noted;
}

OpenedRanks open_ranks(const RankFlags& flags, const std::vector<std::string>& words) {
  check_rank_flags(flags);
  if (flags.distributed == "none") return {};
  const std::optional<Launched> launched = runtime::comm::launched_by(environment);
  if (!launched && flags.ranks > 1) {
    runtime::comm::find_mpi(flags.plugin);  // what is missing is said once
    run_mpirun(static_cast<int>(flags.ranks), words);
  }
  if (!launched && flags.distributed == "auto") return {};
  if (launched && flags.ranks > 0 && flags.ranks != launched->size)
    refuse_ranks(concat("--ranks ", flags.ranks, ": ", launched->launcher, " started ", launched->size));
  OpenedRanks opened{runtime::comm::open_mpi(flags.plugin), launched ? launched->on_this_machine : 1};
  if (launched && opened.communicator->size() != launched->size)
    throw DeviceError(concat(launched->launcher, " started ", launched->size, " processes, and gcomp's plug-in for MPI (",
                             opened.communicator->description(), ") sees ", opened.communicator->size(),
                             ": it was built for another MPI; runtime/comm/README.md says how it is built for this one"));
  if (flags.time_exchanges) {
    auto timed = std::make_unique<runtime::comm::TimedCommunicator>(std::move(opened.communicator));
    opened.timed = timed.get();
    opened.communicator = std::move(timed);
  }
  return opened;
}

}  // namespace gcomp::tools
