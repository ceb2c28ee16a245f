// Devices: choosing one (`--device auto|cpu|cuda`), opening it, loading programs on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gcomp/device_options.h"
#include "runtime/executable.h"
#include "runtime/instruction_set.h"
#include "runtime/library_search.h"
#include "runtime/program.h"
#include "runtime/state_memory.h"
#include "runtime/timed_choices.h"

namespace gcomp::runtime {

using gcomp::CancelQuery;
using gcomp::DeviceOptions;
using gcomp::DeviceRequest;
using gcomp::KernelProgress;
using gcomp::KernelProgressSink;
using gcomp::KernelReport;
using gcomp::KernelSink;
using gcomp::LogSink;
using gcomp::MatmulPrecision;

/// A device by its name on the command line.
struct DeviceName {
  DeviceRequest request = DeviceRequest::automatic;
  Optional<int> gpu;  ///< of cuda:1; none where the name has no number

  bool operator==(const DeviceName&) const = default;
};

/// "auto", "cpu", "cuda" or "cuda:1"; throws UserError (exit 2) naming them otherwise.
DeviceName parse_device(std::string_view text);
/// What it takes: "auto, cpu, cuda or cuda:N".
std::string device_names();

struct Backend;  // runtime/backend.h

struct DeviceChoice {
  const Backend* backend = nullptr;
  std::string reason;    ///< one line, such as "cpu: no CUDA driver (libcuda.so.1) was found"
  int rank_on_host = 0;  ///< this process among the ranks of its machine
};

/// Automatic takes CUDA where a driver, a GPU that gcomp serves, and NVRTC and cuBLASLt for both are there. Throws DeviceError
/// (exit 6) saying what is missing where CUDA is asked for and cannot be had; never falls back from it. Several ranks
/// (DeviceOptions::communicator) choose together: all throw where one does, and where they would take devices of two kinds.
DeviceChoice choose_device(DeviceRequest request, const DeviceOptions& options = {});

/// $XDG_CACHE_HOME/gcomp, else ~/.cache/gcomp; empty where neither variable is set.
std::filesystem::path default_cache_directory();
/// The one that the options name, or that one.
std::filesystem::path cache_directory_of(const DeviceOptions& options);

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
  /// Whether programs that exchange data between ranks can be loaded for Lane::beside.
  virtual BesideExchanges exchanges_beside() const = 0;
  /// Compiles the kernels, or takes them from `kernel_binary` (Executable::kernel_binary of an earlier load) where that fits this
  /// machine; binds the program's states and allocates all memory. `shards` is Executable::shards(). Throws UserError where the
  /// program is for another target, DeviceError for a missing compiler or a failed compilation (exit 5) and for too little memory
  /// (exit 7). Programs of Lane::beside have neither inputs nor outputs.
  std::unique_ptr<Executable> load(Program program, std::shared_ptr<StateMemory> states,
                                   std::span<const std::byte> kernel_binary = {}, int shards = 1, Lane lane = Lane::main);

  /// Which ways to compute products were timed for the programs so far, and chosen: runtime/timed_choices.h. Of nothing where the
  /// options ask for no timing, or the device has one way only.
  virtual TimedChoices timed_choices() const { return {}; }
  /// Times what loading this program, with this kernel_binary, would, where the options ask for it.
  virtual void time_products(const Program&, std::span<const std::byte>) {}
  /// Programs that are loaded from now on compute their products as another rank does, whose choices these are.
  virtual void follow_choices(const TimedChoices&) {}

 protected:
  Device() = default;
  virtual std::unique_ptr<Executable> load_program(Program program, std::shared_ptr<StateMemory> states,
                                                   std::span<const std::byte> kernel_binary, int shards, Lane lane) = 0;
};

/// Throw as that of a kind of target does (runtime/targets.h).
std::unique_ptr<Device> open_device(const DeviceChoice& choice, const DeviceOptions& options);
std::unique_ptr<Device> open_device(DeviceRequest request, const DeviceOptions& options);

}  // namespace gcomp::runtime
