// Generated CUDA text as a host library: compiled behind device.h by the host's C++ compiler, and loaded.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cuda/shim/emulator.h"

namespace gcomp::cuda_shim {

struct HostCompilation {
  std::vector<std::byte> library;  ///< empty where the compiler refused
  std::string log;
};

/// Names of the `extern "C"` kernels that the text defines.
std::vector<std::string> kernels_of(std::string_view text);

/// Whether the emulator hears of each access to memory, and so finds races (accesses.h). That takes tens of times as long.
enum class Watch : bool { nothing, accesses };

/// What GCOMP_EMULATED_RACES asks for.
Watch watch_by_environment();

/// How much the compiler does for a kernel's speed.
enum class Runs : bool { often, once };

/// Compiles text that defines kernels of the given names. Safe from several threads.
HostCompilation compile_for_host(const std::string& text, const std::vector<std::string>& kernels,
                                 Watch watch = watch_by_environment(), Runs runs = Runs::often);

/// What, beside the text, decides what compile_for_host gives: the compiler, its flags, device.h.
std::string host_compiler_identity();

class HostModule {
 public:
  /// Throws InternalError with the compiler's log where it refuses.
  HostModule(const std::string& text, const std::vector<std::string>& kernels, Watch watch = watch_by_environment(),
             Runs runs = Runs::often);
  /// Of a library that compile_for_host made. Throws InternalError where it does not load.
  explicit HostModule(std::span<const std::byte> library);
  ~HostModule();
  HostModule(const HostModule&) = delete;
  HostModule& operator=(const HostModule&) = delete;

  bool has(const std::string& name) const;
  /// Whether the emulator hears of its accesses.
  bool is_watched() const;
  /// Throws InternalError for a name that the module lacks.
  Function function(const std::string& name) const;

 private:
  void* handle_ = nullptr;
};

}  // namespace gcomp::cuda_shim
