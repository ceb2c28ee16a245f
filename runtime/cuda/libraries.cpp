#include "runtime/cuda/libraries.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>

#include "ir/base/error.h"

namespace gcomp::runtime::cuda {
namespace {

namespace fs = std::filesystem;

struct LibrarySpec {
  LibraryKind kind;
  std::string_view name;
  std::array<std::string_view, 3> files;   ///< newest first; the last, without a version, is what development packages install
  std::array<std::string_view, 3> wheels;  ///< folders below site-packages/nvidia
};

// CUDA 12 has one wheel for each library, CUDA 13 one folder for all. The driver comes with neither.
constexpr LibrarySpec kSpecs[] = {
    {LibraryKind::driver, "the CUDA driver", {"libcuda.so.1", "libcuda.so", ""}, {}},
    {LibraryKind::nvrtc, "NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, {"cu13/lib", "cuda_nvrtc/lib", ""}},
    {LibraryKind::cublaslt,
     "cuBLASLt",
     {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
     {"cu13/lib", "cublas/lib", ""}},
    {LibraryKind::cudnn, "cuDNN", {"libcudnn.so.9", "libcudnn.so", ""}, {"cudnn/lib", "", ""}},
    {LibraryKind::nccl, "NCCL", {"libnccl.so.2", "libnccl.so", ""}, {"nccl/lib", "", ""}},
};

/// How a rejection for the driver's sake begins.
constexpr std::string_view kTooNew = "it is newer than the driver";

bool is_too_new(const LibraryCandidate& candidate) { return candidate.reason.rfind(kTooNew, 0) == 0; }

const LibrarySpec& spec_of(LibraryKind kind) { return kSpecs[static_cast<std::size_t>(kind)]; }

/// Adds the library's files that exist in `folder`.
void add_folder(std::vector<LibraryCandidate>& all, const LibrarySpec& spec, const fs::path& folder, std::string_view origin) {
  for (std::string_view file : spec.files) {
    std::error_code error;
    if (!file.empty() && fs::exists(folder / file, error)) all.push_back({(folder / file).string(), std::string(origin), ""});
  }
}

void add_toolkit(std::vector<LibraryCandidate>& all, const LibrarySpec& spec, const fs::path& home, std::string_view origin) {
  if (home.empty()) return;
  for (const char* folder : {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"})
    add_folder(all, spec, home / folder, origin);
}

/// PREFIX/lib/python3.N/site-packages, and Debian's dist-packages, in the order of their names.
std::vector<fs::path> package_folders(const fs::path& prefix) {
  std::vector<fs::path> folders;
  for (const char* lib : {"lib", "lib64", "local/lib"}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(prefix / lib, error)) {
      if (entry.path().filename().string().rfind("python3", 0) != 0) continue;
      for (const char* packages : {"site-packages", "dist-packages"})
        if (fs::is_directory(entry.path() / packages / "nvidia", error)) folders.push_back(entry.path() / packages);
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

void add_wheels(std::vector<LibraryCandidate>& all, const LibrarySpec& spec, const fs::path& prefix, std::string_view origin) {
  if (prefix.empty()) return;
  for (const fs::path& packages : package_folders(prefix))
    for (std::string_view wheel : spec.wheels)
      if (!wheel.empty()) add_folder(all, spec, packages / "nvidia" / wheel, origin);
}

std::string loader_error() {
  const char* message = dlerror();
  return message ? message : "the loader gave no reason";
}

}  // namespace

std::string_view name_of(LibraryKind kind) { return spec_of(kind).name; }

Library Library::open(const std::string& path) {
  dlerror();
  // NODELETE: some of these libraries leave threads and exit handlers behind that must not lose their code.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) throw DeviceError(loader_error());
  Library library;
  library.handle_ = std::shared_ptr<void>(handle, [](void* opened) { dlclose(opened); });
  library.path_ = path;
  if (link_map* map = nullptr; dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name)
    library.path_ = map->l_name;
  return library;
}

void* Library::symbol(const char* name) const { return dlsym(handle_.get(), name); }

std::vector<LibraryCandidate> library_candidates(LibraryKind kind, const LibrarySearch& search) {
  const LibrarySpec& spec = spec_of(kind);
  std::vector<LibraryCandidate> all;
  if (const fs::path path = search.explicit_of(kind).string(); !path.empty()) {
    std::error_code error;
    if (fs::is_directory(path, error)) add_folder(all, spec, path, "given path");
    if (all.empty()) all.push_back({path.string(), "given path", ""});
    return all;
  }
  for (std::string_view file : spec.files)
    if (!file.empty()) all.push_back({std::string(file), "loader", ""});
  add_toolkit(all, spec, search.cuda_home.string(), "CUDA_HOME");
  add_toolkit(all, spec, search.conda_prefix.string(), "conda");
  add_wheels(all, spec, search.conda_prefix.string(), "conda");
  for (const Path& prefix : search.python_prefixes) add_wheels(all, spec, prefix.string(), "pip");
  if (search.usual_places) {
    add_toolkit(all, spec, "/usr/local/cuda", "usual place");
    add_wheels(all, spec, "/usr/local", "usual place");  // pip as root, as in containers
  }
  return all;
}

LibraryResult find_library(LibraryKind kind, const LibrarySearch& search,
                           const std::function<std::string(const Library&)>& why_unfit) {
  LibraryResult result;
  for (LibraryCandidate& candidate : library_candidates(kind, search)) {
    try {
      Library library = Library::open(candidate.path);
      candidate.loaded = true;
      candidate.reason = why_unfit ? why_unfit(library) : "";
      if (candidate.reason.empty()) {
        result.library = std::move(library);
        result.origin = candidate.origin;
        return result;
      }
    } catch (const DeviceError& error) { candidate.reason = error.what(); }
    result.rejected.push_back(std::move(candidate));
  }
  return result;
}

std::string LibraryResult::description(LibraryKind kind) const {
  std::string text(name_of(kind));
  text += library ? concat(" is ", library->path(), " (", origin, ")") : std::string(" was not found");
  for (std::size_t i = 0; i < rejected.size(); ++i) {
    // The loader opens its reasons with the path.
    std::string reason = rejected[i].reason;
    if (reason.rfind(rejected[i].path + ": ", 0) == 0) reason.erase(0, rejected[i].path.size() + 2);
    text += concat(i == 0 ? (library ? "; before it: " : "; tried ") : "; ", rejected[i].path, " (", rejected[i].origin, ": ",
                   reason, ")");
  }
  return text;
}

std::string newer_than_driver(std::string_view version, int driver_major) {
  return concat(kTooNew, ": it is version ", version, ", the driver knows CUDA up to ", driver_major);
}

bool LibraryResult::driver_is_too_old() const { return std::any_of(rejected.begin(), rejected.end(), is_too_new); }

std::string LibraryResult::absence(LibraryKind kind, std::string_view package, int newest_major) const {
  const std::string_view name = name_of(kind);
  const auto newer = std::find_if(rejected.begin(), rejected.end(), is_too_new);
  if (newer != rejected.end())
    return concat("the NVIDIA driver is too old for the ", name, " that is there: ", newer->path, " (", newer->origin,
                  newer->reason.substr(kTooNew.size()), "); update the driver, or install a ", name,
                  " of its major version (pip: ", package, newest_major > 12 ? "" : "-cu12", ")");
  return concat(description(kind), "; install it (pip: ", package, newest_major == 12 ? "-cu12" : "",
                "), or set CUDA_HOME or LD_LIBRARY_PATH to where it is");
}

}  // namespace gcomp::runtime::cuda
