// What a compilation is doing, while it does it: a line that is redrawn on a terminal, a few lines in a pipe.
#pragma once

#include <chrono>
#include <string_view>

#include "gcomp/driver/compile.h"
#include "runtime/device.h"
#include "tools/gcomp/console.h"

namespace gcomp::tools {

class CompileProgress {
 public:
  explicit CompileProgress(const Console& console);
  /// Takes the line off the terminal.
  ~CompileProgress();
  CompileProgress(const CompileProgress&) = delete;
  CompileProgress& operator=(const CompileProgress&) = delete;

  /// A phase begins. In a pipe only what begins a second after the last line is said.
  void begin(std::string_view phase);
  /// So many of the kernels are compiled. In a pipe the first of a program is said at once, others a second after the last line,
  /// and the last of a program that such a line was said of.
  void kernels(const runtime::KernelProgress& progress);
  /// Adds itself to both; it must outlive their use.
  void watch(driver::CompileHooks& hooks, runtime::DeviceOptions& device);
  void watch(runtime::DeviceOptions& device);

 private:
  /// Whether it was said.
  bool say(std::string_view text, bool due);

  const Console& console_;
  std::chrono::steady_clock::time_point said_;
  bool midway_ = false;  ///< the last line said had some of the kernels, and not all
};

}  // namespace gcomp::tools
