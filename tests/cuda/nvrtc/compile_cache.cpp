#include "tests/cuda/nvrtc/compile_cache.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ir/base/hash.h"
#include "tests/cuda/record/environment.h"

namespace gcomp::emulated {
namespace {

namespace fs = std::filesystem;

fs::path cache_folder() {
  if (const std::string chosen = setting("NVRTC_CACHE"); !chosen.empty()) return chosen;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return fs::path(cache) / "gcomp-emulated-nvrtc";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "gcomp-emulated-nvrtc";
  return {};
}

/// 128 bits of the text and of what compiles it.
std::string name_of(const std::string& text) {
  const std::string& identity = cuda_shim::host_compiler_identity();
  const std::uint64_t first = fnv1a(text, fnv1a(identity)), second = fnv1a(text, ~first);
  char name[48];
  std::snprintf(name, sizeof name, "%016llx%016llx.so", static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(second));
  return name;
}

std::vector<std::byte> read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::byte* data = reinterpret_cast<const std::byte*>(bytes.data());
  return {data, data + bytes.size()};
}

/// Whole or not at all: other processes read it at the same time.
void write(const fs::path& path, const std::vector<std::byte>& bytes) {
  static std::atomic<int> serial{0};
  const fs::path part = path.string() + "." + std::to_string(getpid()) + "." + std::to_string(serial++);
  std::ofstream out(part, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  std::error_code ignored;
  if (out) fs::rename(part, path, ignored);
  else fs::remove(part, ignored);
}

}  // namespace

cuda_shim::HostCompilation compile_cached(const std::string& text) {
  const fs::path folder = cache_folder();
  if (folder.empty()) return cuda_shim::compile_for_host(text, cuda_shim::kernels_of(text));
  const fs::path path = folder / name_of(text);
  if (std::vector<std::byte> known = read(path); !known.empty()) return {std::move(known), ""};
  cuda_shim::HostCompilation made = cuda_shim::compile_for_host(text, cuda_shim::kernels_of(text));
  if (made.library.empty()) return made;
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  write(path, made.library);
  return made;
}

}  // namespace gcomp::emulated
