#include "tests/cuda/driver/driver.h"

#include <cstdlib>
#include <map>
#include <sstream>

namespace gcomp::emulated {
namespace {

constexpr std::uint64_t kMemory = std::uint64_t{8} << 30;

ContextOptions options_by_environment() {
  return {.memory = bytes_setting("MEMORY", kMemory),
          .poison = static_cast<std::byte>(integer_setting("POISON", 0xff)),
          .delayed = setting("ORDER") == "delayed",
          .races = integer_setting("RACES", 0) != 0,
          .told_times = !setting("CUBLASLT_TIMES").empty(),
          .kernel_time = std::chrono::microseconds(integer_setting("KERNEL_TIME", 0))};
}

/// As CUDA reads it: numbers up to the first that is none of a GPU; unset means all.
std::vector<int> visible_gpus(int count) {
  std::vector<int> all;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!text) {
    for (int i = 0; i < count; ++i) all.push_back(i);
    return all;
  }
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) {
    char* end = nullptr;
    const long number = std::strtol(one.c_str(), &end, 10);
    if (end == one.c_str() || *end != '\0' || number < 0 || number >= count) break;
    all.push_back(static_cast<int>(number));
  }
  return all;
}

Driver*& instance() {
  static Driver* made = nullptr;
  return made;
}

__attribute__((destructor)) void report_at_exit() {
  if (const Driver* d = instance()) d->calls.report("libcuda", d->figures());
}

}  // namespace

Driver::Driver()
    : options(options_by_environment()),
      version(version_setting("DRIVER", "13.0")),
      compute(version_setting("COMPUTE", "9.0")),
      visible(visible_gpus(static_cast<int>(integer_setting("GPUS", 1)))),
      gpus(visible.size()),
      host(std::uint64_t{1} << 40, options.poison) {}

int most_shared_memory(const Version& compute) {
  switch (10 * compute.major + compute.minor) {
    case 70: return 96 * 1024;
    case 75: return 64 * 1024;
    case 80:
    case 87: return 163 * 1024;
    case 86:
    case 89:
    case 120:
    case 121: return 99 * 1024;
    case 90:
    case 100:
    case 103:
    case 110: return 227 * 1024;
    default: return 48 * 1024;
  }
}

Driver& driver() {
  static std::once_flag once;
  std::call_once(once, [] { instance() = new Driver(); });
  return *instance();
}

void reset_driver() {
  static auto* const old = new std::vector<Driver*>();  // they stay: other threads may hold their locks
  old->push_back(&driver());
  instance() = new Driver();
  current_context() = nullptr;
}

Context*& current_context() {
  static thread_local Context* current = nullptr;
  return current;
}

std::shared_ptr<Stream> Driver::stream(CUstream handle) const {
  if (!handle) return current_context()->legacy;
  return streams.find(handle);
}

std::map<std::string, std::int64_t> Driver::figures() const {
  std::map<std::string, std::int64_t> all;
  for (const auto& context : contexts) {
    all["device_allocations"] += static_cast<std::int64_t>(context->memory.blocks());
    all["device_bytes"] += static_cast<std::int64_t>(context->memory.used());
    all["device_bytes_peak"] += static_cast<std::int64_t>(context->memory.peak());
  }
  all["host_allocations"] = static_cast<std::int64_t>(host.blocks());
  all["host_bytes"] = static_cast<std::int64_t>(host.used());
  all["modules"] = static_cast<std::int64_t>(modules.size());
  all["streams"] = static_cast<std::int64_t>(streams.size());
  all["events"] = static_cast<std::int64_t>(events.size());
  all["graphs"] = static_cast<std::int64_t>(graphs.size());
  all["executables"] = static_cast<std::int64_t>(executables.size());
  for (const Gpu& gpu : gpus) all["contexts"] += gpu.retained;
  return all;
}

}  // namespace gcomp::emulated
