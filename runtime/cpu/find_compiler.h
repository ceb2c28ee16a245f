// The C++ compiler of CPU kernels: which one it is, and what it is called with.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/device.h"

namespace gcomp::runtime::cpu {

/// What tells one compiler's code from another's.
struct CompilerIdentity {
  std::string path;
  std::string version;  ///< first line of what --version says: "c++ (Debian 12.2.0-14) 12.2.0"
  std::string digest;   ///< SHA-256 of all that it says

  bool operator==(const CompilerIdentity&) const = default;
};

/// The options that its kernels are compiled with, those for the instruction set among them.
std::vector<std::string> compiler_flags(const CompilerIdentity& compiler, InstructionSet set, bool contracts);

/// The first executable file of this name on PATH; a name with a slash is taken as it is. Empty where there is none.
std::string find_program(std::string_view name);

/// By its path or name, or the first of c++, g++ and clang++ on PATH; it is asked for its version, for which it gets `timeout`
/// seconds (0 for any number). Throws DeviceError (exit 5) where there is none, where it does not run, and where `cancelled` says
/// so.
CompilerIdentity find_compiler(const std::string& asked, double timeout, const CancelQuery& cancelled);

}  // namespace gcomp::runtime::cpu
