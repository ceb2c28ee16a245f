#include "tests/cuda/shim/host_module.h"

#include <dlfcn.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ir/base/error.h"
#include "tests/temporary_directory.h"

namespace gcomp::cuda_shim {
namespace {

namespace fs = std::filesystem;

constexpr char kDeviceHeader[] = GCOMP_SOURCE_DIR "/tests/cuda/shim/device.h";
/// Strict about rounding, as a GPU is about what it contracts: results differ from a device's in the last digits only. Variables
/// are the module's own, so that it can be unloaded.
constexpr char kFlags[] =
    "-std=c++17 -nostdinc++ -fPIC -w -fwrapv -fno-strict-aliasing -ffp-contract=off"
#if defined(__GNUC__) && !defined(__clang__)
    " -fno-gnu-unique"
#endif
    ;
/// What runs once takes twice as long to compile with -O1 as with -Og, products and steps of trainings run for longer than that.
const char* optimization(Runs runs) { return runs == Runs::once ? " -Og" : " -O1"; }
/// Each access becomes a call of one of device.h's functions; ThreadSanitizer's own library is not linked.
constexpr char kWatchFlags[] = " -fsanitize=thread -DGCOMP_SHIM_WATCHED";
/// The most dynamic shared memory that a block has on any GPU.
constexpr int kDynamicShared = 227 * 1024;

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// The position behind blanks, and behind `word(...)` where that stands there.
std::size_t skip(std::string_view text, std::size_t at, std::string_view word = "") {
  const auto blanks = [&] {
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
  };
  blanks();
  if (word.empty() || text.substr(at, word.size()) != word) return at;
  at = text.find(')', at);
  if (at == std::string_view::npos) return text.size();
  ++at;
  blanks();
  return at;
}

/// `extern __shared__ T name[];` stays a declaration; its definition goes behind the text.
std::string with_dynamic_shared(std::string_view text) {
  constexpr std::string_view kDeclaration = "extern __shared__ ";
  std::string source, definitions, seen = " ";
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(kDeclaration, done)) != std::string_view::npos;) {
    const std::size_t type = skip(text, skip(text, at + kDeclaration.size(), "__align__"), "alignas");
    const std::size_t end = text.find("[]", type);
    check_internal(end != std::string_view::npos, "an extern __shared__ declaration without []");
    std::size_t name = end;
    while (is_name(text[name - 1])) --name;
    source += concat(text.substr(done, at - done), "extern ", text.substr(type, end - type));
    done = end;
    const std::string what(text.substr(type, name - type)), called(text.substr(name, end - name));
    if (seen.find(" " + called + " ") != std::string::npos) continue;
    seen += called + " ";
    definitions += concat("GCOMP_SHIM_DYNAMIC alignas(1024) ", what, called, "[", kDynamicShared, " / sizeof(", what, ")];\n");
  }
  return source + std::string(text.substr(done)) + "\n" + definitions;
}

std::string host_source(const std::string& text, const std::vector<std::string>& kernels) {
  std::string source =
      concat("#include \"", kDeviceHeader, "\"\n#line 1 \"kernel.cu\"\n", with_dynamic_shared(text), "\nGCOMP_SHIM_MODULE\n");
  for (const std::string& kernel : kernels) source += concat("GCOMP_SHIM_KERNEL(", kernel, ")\n");
  return source;
}

}  // namespace

std::vector<std::string> kernels_of(std::string_view text) {
  constexpr std::string_view kStart = "extern \"C\" __global__", kBounds = "__launch_bounds__";
  std::vector<std::string> names;
  for (std::size_t at = 0; (at = text.find(kStart, at)) != std::string_view::npos;) {
    at = skip(text, at + kStart.size(), kBounds);
    if (text.substr(at, 4) != "void") continue;
    at = skip(text, at + 4, kBounds);
    const std::size_t name = at;
    while (at < text.size() && is_name(text[at])) ++at;
    names.emplace_back(text.substr(name, at - name));
  }
  return names;
}

Watch watch_by_environment() {
  const char* const asked = std::getenv("GCOMP_EMULATED_RACES");
  return asked && *asked && std::string_view(asked) != "0" ? Watch::accesses : Watch::nothing;
}

std::string host_compiler_identity() {
  static const std::string identity = concat(GCOMP_HOST_COMPILER, " ", kFlags, optimization(Runs::often),
                                             watch_by_environment() == Watch::accesses ? kWatchFlags : "", "\n", kDynamicShared,
                                             "\n", test::contents(kDeviceHeader));
  return identity;
}

HostCompilation compile_for_host(const std::string& text, const std::vector<std::string>& kernels, Watch watch, Runs runs) {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "kernels.cpp", std::ios::binary) << host_source(text, kernels);
  const fs::path library = folder / "kernels.so", log = folder / "log";
  // Without what C++ starts and ends with, which kernels lack, the linker takes a third of its time.
  const std::string command = concat(
      "'", GCOMP_HOST_COMPILER, "' ", kFlags, optimization(runs), watch == Watch::accesses ? kWatchFlags : "",
      " -shared -nostdlib '", (folder / "kernels.cpp").string(), "' -o '", library.string(), "' -lm -lgcc 2> '", log.string(), "'");
  HostCompilation result;
  const bool accepted = std::system(command.c_str()) == 0;
  result.log = test::contents(log);
  if (!accepted) return result;
  const std::string bytes = test::contents(library);
  const std::byte* data = reinterpret_cast<const std::byte*>(bytes.data());
  result.library.assign(data, data + bytes.size());
  return result;
}

HostModule::HostModule(const std::string& text, const std::vector<std::string>& kernels, Watch watch, Runs runs)
    : HostModule([&] {
        HostCompilation made = compile_for_host(text, kernels, watch, runs);
        if (made.library.empty()) throw InternalError(concat("the host compiler refused CUDA text:\n", made.log.substr(0, 4000)));
        return made.library;
      }()) {}

HostModule::HostModule(std::span<const std::byte> library) {
  // A path of its own each time: the loader takes a path that it knows for what it loaded from there.
  const test::TemporaryDirectory folder;
  const fs::path path = folder / "kernels.so";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(library.data()), static_cast<std::streamsize>(library.size()));
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) throw InternalError(concat("a module of CUDA text does not load: ", dlerror()));
}

HostModule::~HostModule() {
  if (handle_) dlclose(handle_);
}

bool HostModule::has(const std::string& name) const { return dlsym(handle_, ("gcomp_shim_entry_" + name).c_str()) != nullptr; }

bool HostModule::is_watched() const { return dlsym(handle_, "gcomp_shim_is_watched") != nullptr; }

Function HostModule::function(const std::string& name) const {
  Function function;
  function.entry = reinterpret_cast<void (*)(void**)>(dlsym(handle_, ("gcomp_shim_entry_" + name).c_str()));
  function.bind = reinterpret_cast<void (*)(void*)>(dlsym(handle_, "gcomp_shim_bind"));
  const auto shared = reinterpret_cast<void (*)(char**)>(dlsym(handle_, "gcomp_shim_shared"));
  const auto parameter =
      reinterpret_cast<std::size_t (*)(std::size_t, int*)>(dlsym(handle_, ("gcomp_shim_parameter_" + name).c_str()));
  check_internal(function.entry && function.bind && shared && parameter, "kernel ", name, " is not in the module");
  int pointer = 0;
  for (std::size_t i = 0, bytes; (bytes = parameter(i, &pointer)) != 0; ++i) function.parameters.push_back({bytes, pointer != 0});
  char* ends[4] = {};
  shared(ends);
  if (ends[0]) function.shared = {ends[0], static_cast<std::size_t>(ends[1] - ends[0])};
  if (ends[2]) function.dynamic_shared = {ends[2], static_cast<std::size_t>(ends[3] - ends[2])};
  return function;
}

}  // namespace gcomp::cuda_shim
