#include "tests/structure_fuzz/cases.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>

#include "ir/base/error.h"
#include "tests/temporary_directory.h"

namespace gcomp::tests {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Flags {
  std::string only, keep = ".";
  std::int64_t seed = 1, first = 0, runs = 0, seconds = 0, case_seconds = 10, memory = 4096;
};

/// What a worker tells the process that watches it.
struct Shared {
  volatile std::int64_t number;  ///< of the case in work
  volatile std::int64_t accepted, refused;
  char what[200], problem[1000];
};

Random random_of(const Subject& subject, const Flags& flags, std::int64_t number) {
  std::seed_seq seed{static_cast<std::uint32_t>(std::hash<std::string>{}(subject.name)), static_cast<std::uint32_t>(flags.seed),
                     static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32)};
  return Random(seed);
}

template <std::size_t Size>
void copy_text(char (&to)[Size], std::string_view text) {
  std::snprintf(to, Size, "%.*s", static_cast<int>(std::min(text.size(), Size)), text.data());
}

/// One case; what gcomp must not do ends up in `problem`.
void run_case(const Subject& subject, const Flags& flags, std::int64_t number, const fs::path& folder, Shared& shared) {
  Random random = random_of(subject, flags, number);
  const auto [file, what] = subject.make(random, folder);
  copy_text(shared.what, what);
  try {
    subject.read(random, folder / file);
    shared.accepted = shared.accepted + 1;
  } catch (const InternalError& error) {
    copy_text(shared.problem, concat("internal error: ", error.what()));
  } catch (const Error&) { shared.refused = shared.refused + 1; } catch (const std::bad_alloc&) {
    copy_text(shared.problem, "out of memory");
  } catch (const std::exception& error) { copy_text(shared.problem, concat("exit 1: ", error.what())); }
}

/// Cases from `number` on, until one has a problem or `enough` says so.
template <class Enough>
void work(const Subject& subject, const Flags& flags, std::int64_t number, const fs::path& folder, Shared& shared,
          const Enough& enough) {
  for (; !enough(number) && !shared.problem[0]; ++number) {
    shared.number = number;
    run_case(subject, flags, number, folder, shared);
  }
  shared.number = number;
}

/// Resident MiB of a process.
std::int64_t resident(pid_t process) {
  std::ifstream in(concat("/proc/", process, "/statm"));
  std::int64_t all = 0, pages = 0;
  in >> all >> pages;
  return pages * sysconf(_SC_PAGESIZE) >> 20;
}

/// Seconds of processor time that a process has used; what else runs on the machine does not count.
double processor_seconds(pid_t process) {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Watches a worker; "" where it ended by itself, else why it was killed or died.
std::string watch(pid_t worker, const Flags& flags, const Shared& shared) {
  std::int64_t number = -1;
  constexpr int kWaiting = 10;  // times what it may compute: a case that sleeps is found too
  Clock::time_point since;
  double computed = 0;
  for (int status = 0;;) {
    if (waitpid(worker, &status, WNOHANG) == worker) {
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return shared.problem;
      return WIFSIGNALED(status) ? concat("ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")")
                                 : concat("exit ", WEXITSTATUS(status));
    }
    if (shared.number != number) {
      number = shared.number;
      since = Clock::now();
      computed = processor_seconds(worker);
    }
    const bool slow = processor_seconds(worker) - computed > static_cast<double>(flags.case_seconds) ||
                      Clock::now() - since > kWaiting * std::chrono::seconds(flags.case_seconds);
    const bool large = resident(worker) > flags.memory;
    if (slow || large) {
      kill(worker, SIGKILL);
      waitpid(worker, &status, 0);
      return slow ? concat("took more than ", flags.case_seconds, " s") : concat("took more than ", flags.memory, " MiB");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void keep_case(const Subject& subject, const Flags& flags, std::int64_t number, const fs::path& folder) {
  Random random = random_of(subject, flags, number);
  const std::string file = subject.make(random, folder).first;
  const fs::path kept =
      fs::path(flags.keep) / concat(subject.name, "-", flags.seed, "-", number, fs::path(file).extension().string());
  std::error_code error;
  fs::copy(folder / file, kept, fs::copy_options::overwrite_existing | fs::copy_options::recursive, error);
  std::printf("  kept as %s; again with: --subject %s --seed %lld --first %lld --runs 1\n", kept.c_str(), subject.name.c_str(),
              static_cast<long long>(flags.seed), static_cast<long long>(number));
}

/// Runs the cases of one subject; how many had a problem.
int fuzz(const Subject& subject, const Flags& flags, double seconds) {
  auto* shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (shared == MAP_FAILED) throw UserError("no shared memory");
  const auto start = Clock::now();
  const auto enough = [&](std::int64_t number) {
    return flags.runs > 0 ? number >= flags.first + flags.runs
                          : std::chrono::duration<double>(Clock::now() - start).count() > seconds;
  };
  int problems = 0;
  std::int64_t number = flags.first;
  while (!enough(number)) {
    const test::TemporaryDirectory folder;
    shared->problem[0] = 0;
    const pid_t worker = fork();
    if (worker == 0) {
      constexpr rlimit kNone{};
      setrlimit(RLIMIT_CORE, &kNone);
      work(subject, flags, number, folder.path(), *shared, enough);
      _exit(0);
    }
    const std::string problem = watch(worker, flags, *shared);
    const std::int64_t at = shared->problem[0] ? shared->number - 1 : shared->number;
    number = problem.empty() ? shared->number : at + 1;
    if (problem.empty()) continue;
    ++problems;
    std::printf("%s %lld (%s): %s\n", subject.name.c_str(), static_cast<long long>(at), shared->what, problem.c_str());
    keep_case(subject, flags, at, folder.path());
  }
  std::printf("%s: %lld cases in %.0f s, %lld accepted, %lld refused, %d failed\n", subject.name.c_str(),
              static_cast<long long>(number - flags.first), std::chrono::duration<double>(Clock::now() - start).count(),
              static_cast<long long>(shared->accepted), static_cast<long long>(shared->refused), problems);
  std::fflush(stdout);
  munmap(shared, sizeof(Shared));
  return problems;
}

int run(const FuzzProgram& program, const tools::Parsed& parsed, const Flags& flags) {
  check_user(parsed.outcome == tools::Parsed::Outcome::run, parsed.message);
  check_user((flags.runs > 0) != (flags.seconds > 0), "give either --runs or --seconds");
  const test::TemporaryDirectory scratch;
  std::vector<Subject> all = program.subjects(scratch.path());
  std::erase_if(all, [&](const Subject& subject) { return !flags.only.empty() && subject.name != flags.only; });
  check_user(!all.empty(), "--subject ", flags.only, " is none of ", program.subject_names);
  int problems = 0;
  for (const Subject& subject : all)
    problems += fuzz(subject, flags, static_cast<double>(flags.seconds) / static_cast<double>(all.size()));
  return problems > 0;
}

}  // namespace

int run_fuzzer(int argc, char** argv, const FuzzProgram& program) {
  Flags flags;
  tools::ArgumentParser parser(program.summary, program.name);
  if (program.declare) program.declare(parser);
  parser.add_option("--subject", flags.only, concat(program.subject_names, " (default: all)"));
  parser.add_option("--seed", flags.seed, "of all cases");
  parser.add_option("--first", flags.first, "number of the first case");
  parser.add_option("--runs", flags.runs, "cases of each subject");
  parser.add_option("--seconds", flags.seconds, "or how long to go on with all of them");
  parser.add_option("--case-seconds", flags.case_seconds,
                    "of processor time that one case may take, and ten times that by the clock (default 10)");
  parser.add_option("--memory", flags.memory, "MiB that one case may take (default 4096)");
  parser.add_option("--keep", flags.keep, "folder for cases that fail (default: the current one)");
  const tools::Parsed parsed = parser.parse(argc, argv);
  if (parsed.outcome == tools::Parsed::Outcome::answered) return 0;
  try {
    return run(program, parsed, flags);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), error.what());
    return 2;
  }
}

}  // namespace gcomp::tests
