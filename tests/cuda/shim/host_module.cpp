#include "tests/cuda/shim/host_module.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <fstream>
#include <iterator>

#include "ir/base/error.h"

namespace gcomp::cuda_shim {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Strict about rounding, as a GPU is about what it contracts: results differ from a device's in the last digits only.
constexpr char kFlags[] = "-std=c++17 -O1 -fPIC -shared -w -fwrapv -fno-strict-aliasing -ffp-contract=off";

}  // namespace

HostModule::HostModule(const std::string& text, const std::vector<std::string>& kernels) {
  std::string name = (std::filesystem::temp_directory_path() / "gcomp-shim-XXXXXX").string();
  check_internal(::mkdtemp(name.data()) != nullptr, "no temporary directory");
  folder_ = name;
  std::ofstream source(folder_ / "kernels.cpp", std::ios::binary);
  source << "#include \"" << GCOMP_SOURCE_DIR << "/tests/cuda/shim/device.h\"\n" << text << "\nGCOMP_SHIM_MODULE\n";
  for (const std::string& kernel : kernels) source << "GCOMP_SHIM_KERNEL(" << kernel << ")\n";
  source.close();
  const std::string library = (folder_ / "kernels.so").string();
  const std::string command = concat("'", GCOMP_HOST_COMPILER, "' ", kFlags, " '", (folder_ / "kernels.cpp").string(), "' -o '",
                                     library, "' 2> '", (folder_ / "log").string(), "'");
  if (std::system(command.c_str()) != 0)
    throw InternalError(concat("the host compiler refused CUDA text:\n", read_text(folder_ / "log").substr(0, 4000)));
  handle_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) throw InternalError(concat("a module of CUDA text does not load: ", dlerror()));
}

HostModule::~HostModule() {
  if (handle_) dlclose(handle_);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Function HostModule::function(const std::string& name) const {
  Function function;
  function.entry = reinterpret_cast<void (*)(void**)>(dlsym(handle_, ("gcomp_shim_entry_" + name).c_str()));
  function.bind = reinterpret_cast<void (*)(void*)>(dlsym(handle_, "gcomp_shim_bind"));
  const auto shared = reinterpret_cast<void (*)(char**, char**)>(dlsym(handle_, "gcomp_shim_shared"));
  check_internal(function.entry && function.bind && shared, "kernel ", name, " is not in the module");
  char *begin = nullptr, *end = nullptr;
  shared(&begin, &end);
  if (begin) function.shared = {begin, static_cast<std::size_t>(end - begin)};
  return function;
}

}  // namespace gcomp::cuda_shim
