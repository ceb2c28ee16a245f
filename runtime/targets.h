// What programs are compiled for. All that the runtime and the commands decide by it stands in one constant value for each kind
// (runtime/backend.h), in runtime/{cpu,cuda}/backend.cpp; targets.cpp lists them. A third kind is a folder beside those two, an
// enumerator here and a line there; likewise in codegen.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace gcomp {
struct DeviceOptions;
}

namespace gcomp::runtime {

/// The oldest architecture that gcomp's CUDA kernels and libraries serve: Turing, 2018.
inline constexpr int kOldestArchitecture = 75;

/// Artifacts store the number.
enum class TargetKind : std::uint8_t { cpu, cuda };

struct Target {
  TargetKind kind = TargetKind::cpu;
  std::string architecture;  ///< "sm_90" for CUDA; for the CPU "" (the machine that compiles)

  bool operator==(const Target&) const = default;
};

/// "cpu" or "cuda:sm_90".
std::string to_string(const Target& target);
/// Throws UserError (exit 2) naming the accepted forms, or the oldest architecture.
Target parse_target(std::string_view text);
/// Of the number in an artifact. Throws UserError where no kind has it.
Target stored_target(std::int64_t kind, std::string architecture);

class Device;
using gcomp::DeviceOptions;
/// Throws DeviceError (exit 6) where the device is missing, or a CPU lacks the instruction set that is asked for.
std::unique_ptr<Device> open_device(TargetKind kind, const DeviceOptions& options);

}  // namespace gcomp::runtime
