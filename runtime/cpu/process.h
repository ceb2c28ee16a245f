// Child processes without a shell.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gcomp::runtime::cpu {

/// The first executable file of this name on PATH; a name with a slash is taken as it is. Empty where there is none.
std::string find_program(std::string_view name);

struct ProcessResult {
  bool succeeded = false;
  std::string log;  ///< standard output and error; or why the process could not start or how it ended
};

/// A started process; its output goes to a file, so several can run at once.
class Process {
 public:
  /// `arguments` begins with the program's path. `log` is created or overwritten. Where there is a `cancelled`, wait() and
  /// wait_any() ask it ten times a second, and the process leads a group of its own, which is ended with all its children where
  /// that says yes, and by the destructor.
  Process(std::vector<std::string> arguments, std::filesystem::path log, std::function<bool()> cancelled = {});
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Throws DeviceError where it was cancelled.
  ProcessResult wait();

 private:
  friend std::size_t wait_any(std::span<const Process> processes);
  bool has_ended() const;
  ProcessResult wait_for_end();

  pid_t id_ = -1;
  std::function<bool()> cancelled_;
  std::string failure_;
  std::filesystem::path log_;
};

/// Waits until one of them has ended, or could not start, and gives its place; its wait() returns at once. Throws DeviceError
/// where one was cancelled.
std::size_t wait_any(std::span<const Process> processes);

}  // namespace gcomp::runtime::cpu
