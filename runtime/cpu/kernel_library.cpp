#include "runtime/cpu/kernel_library.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "ir/base/error.h"
#include "runtime/cpu/compiler.h"
#include "runtime/cpu/elf.h"
#include "runtime/files/disk_cache.h"
#include "runtime/files/sha256.h"

namespace gcomp::runtime::cpu {
namespace {

DeviceError cannot_load(const std::string& reason) {
  return DeviceError(concat("cannot load the compiled kernels: ", reason), ExitCode::kernel_compile);
}

/// A file in memory that holds `bytes`.
int memory_file(std::span<const std::byte> bytes) {
  const int file = memfd_create("gcomp-kernels", MFD_CLOEXEC);
  if (file < 0) throw cannot_load(concat("memfd_create: ", std::strerror(errno)));
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const std::string reason = std::strerror(errno);
      close(file);
      throw cannot_load(reason);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return file;
}

}  // namespace

std::string why_unfit(std::span<const std::byte> object, const Program& program, InstructionSet set) {
  if (std::string reason = why_no_shared_object(object); !reason.empty()) return reason;
  const auto machine = exported_text(object, kMachineSymbol), text = exported_text(object, kTextSymbol);
  if (!machine || !text) return "they do not say what they were compiled for";
  if (*text != kernel_text_digest(program)) return "they were compiled from other kernel texts";
  if (*machine != sha256(machine_description(set))) return "they were compiled for another processor or instruction set";
  const std::unordered_set<std::string> exported = exported_names(object);
  for (const Kernel& kernel : program.kernels)
    if (!exported.contains(kernel.name)) return concat("they lack the kernel '", kernel.name, "'");
  return {};
}

// The file stays open as long as the library: the loader knows libraries by path, and a reused descriptor would give another
// library the same path.
KernelLibrary::KernelLibrary(std::vector<std::byte> object) : object_(std::move(object)) {
  // Mapping the end of an object that is cut short would end the process by SIGBUS.
  if (const std::string reason = why_no_shared_object(object_); !reason.empty()) throw cannot_load(reason);
  file_ = memory_file(object_);
  handle_ = dlopen(concat("/proc/self/fd/", file_).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_) return;
  const char* reason = dlerror();
  close(file_);
  throw cannot_load(reason ? reason : "the loader gave no reason");
}

KernelLibrary::~KernelLibrary() {
  dlclose(handle_);
  close(file_);
}

KernelFunction KernelLibrary::function(const std::string& name) const {
  void* symbol = dlsym(handle_, name.c_str());
  check_internal(symbol, "the compiled kernels lack '", name, "'");
  return reinterpret_cast<KernelFunction>(symbol);
}

}  // namespace gcomp::runtime::cpu
