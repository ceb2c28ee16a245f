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

/// Why a kernel object is not the program's, or not for this machine and its instruction set `set`; "" where it fits. Reads the
/// bytes, and loads nothing: what is loaded may run code at once.
std::string why_unfit(std::span<const std::byte> object, const Program& program, InstructionSet set);

class KernelLibrary {
 public:
  /// Throws DeviceError (exit 5) where the bytes are no whole shared object, or the loader refuses them.
  explicit KernelLibrary(std::vector<std::byte> object);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  /// Throws InternalError where the kernel is missing.
  KernelFunction function(const std::string& name) const;
  std::span<const std::byte> object() const { return object_; }

 private:
  std::vector<std::byte> object_;
  void* handle_ = nullptr;
  int file_ = -1;
};

}  // namespace gcomp::runtime::cpu
