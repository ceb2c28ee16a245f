// What a compilation can show of itself: IR, memory plan, kernel texts, cubins.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gcomp/driver/compile.h"
#include "runtime/device.h"
#include "runtime/program.h"
#include "tools/gcomp/console.h"

namespace gcomp::tools {

enum class EmitKind : std::uint8_t { ir, plan, cuda, cpp, cubin };
/// Throws UserError (exit 2) with the nearest name.
EmitKind parse_emit(std::string_view text);
/// The target, of whose kind one is needed for that; "" where any will do.
std::string_view needed_target(EmitKind kind);

/// A file name and its contents.
using EmittedFile = std::pair<std::string, std::string>;

EmittedFile emit_ir(const driver::LoweredGraph& lowered);
struct PlanOptions {
  codegen::ProgramLimits limits;
  bool tf32 = false;
  const runtime::DeviceOptions* compiler = nullptr;  ///< compiles the kernels, whose registers then count; null: they are not known
};
/// Where everything lies; for CUDA also what each step does, the least time that an H200 takes for it, and how long it would take
/// as it is written. Throws DeviceError (exit 5) where kernels are to be compiled and NVRTC is missing.
EmittedFile emit_plan(const driver::LoweredGraph& lowered, const runtime::Target& target, const PlanOptions& options);
/// One file a kernel; the prelude that they share stands in each, so that each compiles alone.
std::vector<EmittedFile> emit_kernels(const runtime::Program& program);
/// Throws DeviceError (exit 5) where NVRTC is missing or refuses a kernel.
std::vector<EmittedFile> emit_cubins(const runtime::Program& program, const runtime::DeviceOptions& options,
                                     const Console& console);

/// Into the folder (made where it is missing), or to stdout where `folder` is empty; binary files need a folder.
void write_emitted(const std::vector<EmittedFile>& files, const std::filesystem::path& folder, const Console& console);

}  // namespace gcomp::tools
