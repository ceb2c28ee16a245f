// Child processes without a shell and without a terminal.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gcomp/function.h"
#include "runtime/cpu/bounded_log.h"
#include "runtime/files/descriptor.h"
#include "runtime/files/left_behind.h"

namespace gcomp::runtime::cpu {

struct ProcessOptions {
  std::vector<std::string> environment = {};  ///< as NAME=VALUE, and nothing else
  Function<bool()> cancelled = {};            ///< asked ten times a second while it is waited for; may be empty
  double timeout = 0;                         ///< seconds from its start; 0 for none
};

struct ProcessResult {
  bool succeeded = false;
  bool timed_out = false;
  double seconds = 0;
  std::string log;  ///< standard output and error, long ones cut in the middle; or why it could not start, or how it ended
};

/// A started process, which reads nothing and leads a session of its own: no terminal reaches it. What is left of its group when it
/// has ended is ended too, so nothing that it started holds up a wait.
class Process {
 public:
  /// `arguments` begins with the program's path.
  explicit Process(std::vector<std::string> arguments, ProcessOptions options = {});
  /// Ends it where it still runs: SIGTERM, by which a compiler removes its temporary files, and a second later SIGKILL.
  ~Process();
  Process(Process&& other) noexcept = default;
  Process& operator=(Process&& other) noexcept;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Throws DeviceError where it was cancelled. A process that takes longer than its time is ended.
  ProcessResult wait();

 private:
  using Clock = std::chrono::steady_clock;
  /// A process's number, -1 once it is moved from or reaped.
  struct Id {
    Id() = default;
    Id(Id&& other) noexcept : value(std::exchange(other.value, -1)) {}
    Id& operator=(Id&& other) noexcept {
      std::swap(value, other.value);
      return *this;
    }
    pid_t value = -1;
  };
  friend std::size_t wait_any(std::span<Process> processes);
  bool has_ended() const;
  bool is_overdue() const;
  void read_output();
  void ask_to_end();
  void end();
  /// Whether it is known how it ended.
  bool reap(ProcessResult& result);

  Id id_;
  ProcessOptions options_;
  Descriptor output_, ended_;  // of its pipe; readable when it has ended, where the system has such
  BoundedLog log_;
  std::string failure_;
  EndsWithProcess tied_;
  Clock::time_point started_;
  std::optional<Clock::time_point> asked_to_end_;
};

/// Waits until one of them has ended, has used up its time or could not start, and gives its place; its wait() does not wait then.
/// Throws DeviceError where one was cancelled.
std::size_t wait_any(std::span<Process> processes);

/// A command as one could type it into a shell.
std::string shell_command(std::span<const std::string> arguments);

}  // namespace gcomp::runtime::cpu
