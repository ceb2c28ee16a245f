// Devices: choosing one (`--device auto|cpu|cuda`), opening it, loading programs on it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/executable.h"
#include "runtime/instruction_set.h"
#include "runtime/library_search.h"
#include "runtime/program.h"
#include "runtime/state_memory.h"

namespace gcomp::runtime {

enum class DeviceRequest : std::uint8_t { automatic, cpu, cuda };

/// A device by its name on the command line.
struct DeviceName {
  DeviceRequest request = DeviceRequest::automatic;
  int gpu = 0;  ///< of cuda:1

  bool operator==(const DeviceName&) const = default;
};

/// "auto", "cpu", "cuda" or "cuda:1"; throws UserError (exit 2) naming them otherwise.
DeviceName parse_device(std::string_view text);

/// Receives one-line notices, such as an unusable cache directory. May be empty.
using LogSink = std::function<void(std::string_view)>;

/// How the kernels of one program came to be.
struct KernelReport {
  std::size_t kernels = 0;
  bool cached = false;  ///< taken from the cache: nothing was compiled
  double seconds = 0;
};
using KernelSink = std::function<void(const KernelReport&)>;

/// How far the compilation of one program's kernels is. None is told where all come from the CPU's cache.
struct KernelProgress {
  std::size_t done = 0, kernels = 0;
};
using KernelProgressSink = std::function<void(const KernelProgress&)>;

/// Whether to give up: what waits then ends its child processes and throws DeviceError. Must not throw.
using CancelQuery = std::function<bool()>;

/// Which products of f32 matrices a GPU may round to TF32 (10 bits) before it multiplies.
enum class MatmulPrecision : std::uint8_t { strict, tf32 };

struct DeviceOptions {
  int threads = 0;                        ///< of the CPU; 0 for one per processor that this process may use
  std::string compiler;                   ///< the C++ compiler for CPU kernels; empty searches c++, g++, clang++ on PATH
  std::filesystem::path cache_directory;  ///< for compiled kernels; empty for default_cache_directory()
  bool use_cache = true;
  /// The widest vector instructions that the CPU's kernels may use; the processor's own where there is none. oneDNN chooses its
  /// once in a process, so all devices of a process are opened with the same.
  std::optional<InstructionSet> instruction_set;
  LogSink log;
  KernelSink kernels;                  ///< told of every program's kernels; may be empty
  KernelProgressSink kernel_progress;  ///< told when compiling begins, and after each part of it; may be empty
  CancelQuery cancelled;               ///< asked while a compiler runs; may be empty
  double compiler_timeout = 300;       ///< seconds that a compiler may take for one file or kernel; 0 for any number
  LogSink detail;                      ///< told of each command to a compiler, quoted for a shell, and its time; may be empty

  // CUDA.
  int gpu = 0;                                 ///< among those that the driver shows
  LibrarySearch libraries;                     ///< where NVIDIA's libraries may be, beside the loader's own places
  std::optional<std::string> visible_devices;  ///< the value of CUDA_VISIBLE_DEVICES, for messages
  MatmulPrecision precision = MatmulPrecision::strict;
  /// Time cuBLASLt's algorithms for each product once and remember the fastest in the cache directory. Another algorithm may give
  /// other last digits; what is remembered gives the same ones again.
  bool tune = false;
  bool use_cublaslt = true;  ///< else the generated products
  bool check_steps = false;  ///< wait after each step of a program, so that an error names the step; slow
};

struct Backend;  // runtime/backend.h

struct DeviceChoice {
  const Backend* backend = nullptr;
  std::string reason;  ///< one line, such as "cpu: no CUDA driver (libcuda.so.1) was found"
};

/// Automatic takes CUDA where a driver, a GPU that gcomp serves, and NVRTC and cuBLASLt for both are there. Throws DeviceError
/// (exit 6) saying what is missing where CUDA is asked for and cannot be had; never falls back from it.
DeviceChoice choose_device(DeviceRequest request, const DeviceOptions& options = {});

/// $XDG_CACHE_HOME/gcomp, else ~/.cache/gcomp; empty where neither variable is set.
std::filesystem::path default_cache_directory();

class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// What programs for this device are compiled for.
  virtual Target target() const = 0;
  /// For the user: "cpu, 2 threads, AVX-512, AMD EPYC", or "cpu, 2 threads, AVX2 (as asked; the processor has AVX-512), AMD EPYC".
  virtual std::string description() const = 0;

  /// For all programs of one model.
  virtual std::shared_ptr<StateMemory> allocate_states() = 0;
  /// Compiles the kernels, or takes them from `kernel_binary` (Executable::kernel_binary of an earlier load) where that fits this
  /// machine; binds the program's states and allocates all memory. Throws UserError where the program is for another target,
  /// DeviceError for a missing compiler or a failed compilation (exit 5) and for too little memory (exit 7).
  virtual std::unique_ptr<Executable> load(Program program, std::shared_ptr<StateMemory> states,
                                           std::span<const std::byte> kernel_binary = {}) = 0;

 protected:
  Device() = default;
};

/// Throw as that of a kind of target does (runtime/targets.h).
std::unique_ptr<Device> open_device(const DeviceChoice& choice, const DeviceOptions& options);
std::unique_ptr<Device> open_device(DeviceRequest request, const DeviceOptions& options);

}  // namespace gcomp::runtime
