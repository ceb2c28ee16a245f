#include "tools/gcomp/compile_progress.h"

#include "ir/base/error.h"

namespace gcomp::tools {

CompileProgress::CompileProgress(const Console& console) : console_(console), said_(std::chrono::steady_clock::now()) {}

CompileProgress::~CompileProgress() { console_.clear_status(); }

bool CompileProgress::say(std::string_view text, bool due) {
  if (console_.terminal()) {
    console_.status(text);
    return true;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!due && now - said_ < std::chrono::seconds(1)) return false;
  said_ = now;
  console_.say(text);
  return true;
}

void CompileProgress::begin(std::string_view phase) { say(concat("compiling: ", phase), false); }

void CompileProgress::kernels(const runtime::KernelProgress& progress) {
  const bool first = progress.done == 0, last = progress.done == progress.kernels;
  const std::string text = concat("compiling: kernels, ", progress.done, " of ", progress.kernels);
  if (say(text, first || (last && midway_))) midway_ = !first && !last;
}

void CompileProgress::watch(runtime::DeviceOptions& device) {
  device.kernel_progress = [this](const runtime::KernelProgress& progress) { kernels(progress); };
}

void CompileProgress::watch(driver::CompileHooks& hooks, runtime::DeviceOptions& device) {
  hooks.begin = [this](std::string_view phase) { begin(phase); };
  watch(device);
}

}  // namespace gcomp::tools
