// A shared object of compiled kernels, loaded from bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/instruction_set.h"
#include "runtime/program.h"

namespace gcomp::runtime::cpu {

/// The entry point of every CPU kernel (see KernelLaunch).
using KernelFunction = void (*)(void* const* buffers, long extent, long first_task, long last_task, int* fault);

/// Strings that every kernel object exports: the SHA-256 of machine_description() and kernel_text_digest() that it was made for.
inline constexpr char kMachineSymbol[] = "gcomp_kernels_machine";
inline constexpr char kTextSymbol[] = "gcomp_kernels_text";

class KernelLibrary {
 public:
  /// Throws DeviceError (exit 5) where the loader refuses the bytes.
  explicit KernelLibrary(std::vector<std::byte> object);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  /// Why these kernels are not the program's, or not for this machine and its instruction set `set`; "" where they fit.
  std::string why_unfit(const Program& program, InstructionSet set) const;
  /// Throws InternalError where the kernel is missing.
  KernelFunction function(const std::string& name) const;
  std::span<const std::byte> object() const { return object_; }

 private:
  std::vector<std::byte> object_;
  void* handle_ = nullptr;
  int file_ = -1;
};

}  // namespace gcomp::runtime::cpu
