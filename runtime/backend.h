// All that the runtime, the compile driver and the commands decide by kind of target: one constant value for each.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device.h"

namespace gcomp::runtime {

/// The most that one run takes of many rows, where nothing says how many.
struct RunLimits {
  std::int64_t bytes = 0;  ///< of the widest value
  std::int64_t rows = 0;
};

struct Backend {
  TargetKind kind = TargetKind::cpu;
  DeviceRequest request = DeviceRequest::cpu;  ///< by which --device asks for it
  std::string_view name = {};                  ///< of target and device: "cpu"
  std::string_view form = {};                  ///< how a target is written, for messages: "cuda:ARCHITECTURE such as cuda:sm_90"
  /// Whether a target has such an architecture; throws UserError (exit 2) for one that is too old. Null where there is none.
  bool (*has_architecture)(std::string_view architecture) = nullptr;

  std::string_view kernel_suffix = {};  ///< of a file that holds one kernel's text: ".cpp"
  std::string_view binary_folder = {};  ///< of an artifact, for kernels as machine code: "cpu/"
  /// Where in that folder an artifact keeps a program's Executable::kernel_binary.
  std::string (*binary_path)(const Program& program) = nullptr;
  /// Those of some programs, in their order; none, and options.log is told why, where the artifact can do with the text alone.
  /// Throws DeviceError (exit 5) where a kernel cannot be compiled.
  std::vector<std::vector<std::byte>> (*compile)(std::span<const Program> programs, const DeviceOptions& options) = nullptr;
  /// Whether this machine multiplies matrices of a type of 16 bits faster than those of f32. Null where every device does.
  bool (*gains_from)(DType half) = nullptr;
  bool product_kernels = false;    ///< whether a product's step may have generated kernels and an epilogue
  bool blocks_of_threads = false;  ///< whether a launch is a grid of those; else it is tasks of one thread

  bool numbered = false;           ///< a machine may have several devices, asked for as NAME:N
  bool everywhere = false;         ///< wherever gcomp runs there is such a device
  std::string_view presence = {};  ///< why it is taken where none is asked for, and everything that it takes is there
  /// Throw DeviceError (exit 6) where there is no such device; where anything is missing that using it to the full takes. Null for
  /// a device that is everywhere.
  void (*require)(const DeviceOptions& options) = nullptr;
  void (*require_all)(const DeviceOptions& options) = nullptr;
  /// Throws as open_device() does.
  std::unique_ptr<Device> (*open)(const DeviceOptions& options) = nullptr;
  RunLimits run_limits = {};
};

/// By kind, ascending; the first is everywhere, and of the others the first that is complete is taken where none is asked for.
std::span<const Backend* const> backends();
const Backend& backend_of(const Target& target);
/// Of a device that is asked for by name.
const Backend& backend_of(DeviceRequest request);

}  // namespace gcomp::runtime
