#include "runtime/cpu/backend.h"

#include "ir/base/error.h"
#include "runtime/cpu/device.h"
#include "runtime/instruction_set.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::string_view kBinaries = "cpu/";

std::string binary_path(const Program& program) { return concat(kBinaries, program.name, ".so"); }

/// Machine code for this kind of processor.
std::vector<std::vector<std::byte>> compile_programs(std::span<const Program> programs, const DeviceOptions& options) {
  const auto device = open_cpu_device(options);
  std::vector<std::vector<std::byte>> binaries;
  for (const Program& program : programs) {
    const auto executable = device->load(program, device->allocate_states());
    const std::span<const std::byte> binary = executable->kernel_binary();
    binaries.emplace_back(binary.begin(), binary.end());
  }
  return binaries;
}

bool gains_from(DType half) {
  return half == DType::bf16 && (has_bf16_products() || widest_instruction_set() == InstructionSet::amx);
}

}  // namespace

constexpr Backend kBackend{.kind = TargetKind::cpu,
                           .request = DeviceRequest::cpu,
                           .name = "cpu",
                           .form = "cpu",
                           .kernel_suffix = ".cpp",
                           .binary_folder = kBinaries,
                           .binary_path = binary_path,
                           .compile = compile_programs,
                           .gains_from = gains_from,
                           .everywhere = true,
                           .open = open_cpu_device,
                           .run_limits = {.bytes = std::int64_t{1} << 24, .rows = 256}};

}  // namespace gcomp::runtime::cpu
