// Kernel texts to machine code: the system's C++ compiler, found and run when a program is loaded, and a cache of what it made.
// The product is a shared object as bytes; kernel_library.h loads it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/program.h"

namespace gcomp::runtime::cpu {

struct KernelCompilerOptions {
  std::string compiler;                   ///< path or name; empty searches c++, g++, clang++ on PATH
  std::filesystem::path cache_directory;  ///< empty for no cache
  int jobs = 0;                           ///< compiler processes at once; 0 for one per processor
  InstructionSet instruction_set = widest_instruction_set();
  LogSink log;
  KernelSink kernels;
  KernelProgressSink progress;
  CancelQuery cancelled;
  double timeout = 0;  ///< seconds that one run of the compiler may take; 0 for any number
  LogSink detail;      ///< told of each command and its time
};

/// What decides whether a binary compiled on one machine runs on another, and as it would there: processor model and instruction
/// sets, and `set` where kernels for it are not those for the widest.
std::string machine_description(InstructionSet set = widest_instruction_set());

/// SHA-256 of the program's prelude and kernels, in hexadecimal: what a kernel binary was made from.
std::string kernel_text_digest(const Program& program);

/// "/usr/bin/c++: c++ (Debian 12.2.0-14) 12.2.0". Throws DeviceError (exit 5) where there is none, or it does not run. An empty
/// name searches as KernelCompilerOptions::compiler does.
std::string describe_compiler(const std::string& compiler, double timeout = 0);

/// Compiles all kernels of the program into one shared object, or takes it from the cache. Where there is no compiler, or it does
/// not run, what another one made of exactly this text for this machine is taken from the cache. Throws DeviceError (exit 5) where
/// there is none either, and where the compiler fails, with its log and the path of the saved source, takes longer than its time,
/// or leaves something else than these kernels.
std::vector<std::byte> compile_kernels(const Program& program, const KernelCompilerOptions& options);

}  // namespace gcomp::runtime::cpu
