// The emulated NVRTC: CUDA text becomes a host library that the emulated driver loads in place of a cubin.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/cuda/nvrtc_api.h"
#include "tests/cuda/nvrtc/compile_cache.h"
#include "tests/cuda/record/environment.h"
#include "tests/cuda/record/image.h"
#include "tests/cuda/record/library_calls.h"

#define GCOMP_EXPORT extern "C" __attribute__((visibility("default")))

namespace gcomp::emulated {

using namespace gcomp::runtime::cuda;

namespace {

constexpr auto kInvalidInput = static_cast<nvrtcResult>(3), kInvalidProgram = static_cast<nvrtcResult>(4),
               kInvalidOption = static_cast<nvrtcResult>(5);

struct Program {
  std::string source, log;
  std::vector<std::byte> image;
};

Version version() { return version_setting("NVRTC", "13.0"); }

std::vector<int> architectures() {
  const Version v = version();
  std::vector<int> all = {75, 80, 86, 87, 89, 90};
  if (v.major < 13) all.insert(all.begin(), {50, 52, 53, 60, 61, 62, 70, 72});
  if (v.major > 12 || v.minor >= 8) all.insert(all.end(), {100, 120});
  if (v.major > 12) {
    all.insert(all.begin() + 4, 88);
    all.insert(all.end() - 1, {103, 110});
    all.push_back(121);
  }
  if (const std::string chosen = setting("NVRTC_ARCHITECTURES"); !chosen.empty()) {
    all.clear();
    std::istringstream in(chosen);
    for (std::string one; std::getline(in, one, ',');) all.push_back(std::atoi(one.c_str()));
  }
  return all;
}

/// The number of --gpu-architecture=sm_NUMBER; 0 where there is none or NVRTC does not know it.
int architecture_of(int count, const char* const* options) {
  int found = 0;
  for (int i = 0; i < count; ++i) {
    const std::string option = options[i];
    for (const char* prefix : {"--gpu-architecture=sm_", "-arch=sm_"})
      if (option.rfind(prefix, 0) == 0) found = std::atoi(option.c_str() + std::strlen(prefix));
  }
  const std::vector<int> known = architectures();
  return std::find(known.begin(), known.end(), found) != known.end() ? found : 0;
}

Program* program_of(nvrtcProgram handle) { return reinterpret_cast<Program*>(handle); }

nvrtcResult entered(const char* name) { return static_cast<nvrtcResult>(calls().enter(name)); }

}  // namespace

std::string reported_name() { return "libnvrtc"; }
std::map<std::string, std::int64_t> reported_figures(const Calls& calls) { return {{"programs", calls.count("live programs")}}; }

GCOMP_EXPORT nvrtcResult nvrtcVersion(int* major, int* minor) {
  if (const nvrtcResult error = entered("nvrtcVersion")) return error;
  // What watched modules are kept as is nothing for runs that watch none, nor the other way round.
  constexpr int kWatching = 100;
  const Version v = version();
  *major = v.major;
  *minor = v.minor + (cuda_shim::watch_by_environment() == cuda_shim::Watch::accesses ? kWatching : 0);
  return NVRTC_SUCCESS;
}

GCOMP_EXPORT const char* nvrtcGetErrorString(nvrtcResult error) {
  switch (static_cast<int>(error)) {
    case 0: return "NVRTC_SUCCESS";
    case 1: return "NVRTC_ERROR_OUT_OF_MEMORY";
    case 3: return "NVRTC_ERROR_INVALID_INPUT";
    case 4: return "NVRTC_ERROR_INVALID_PROGRAM";
    case 5: return "NVRTC_ERROR_INVALID_OPTION";
    case 6: return "NVRTC_ERROR_COMPILATION";
    case 11: return "NVRTC_ERROR_INTERNAL_ERROR";
    default: return "NVRTC_ERROR unknown";
  }
}

GCOMP_EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  if (const nvrtcResult error = entered("nvrtcGetNumSupportedArchs")) return error;
  *count = static_cast<int>(architectures().size());
  return NVRTC_SUCCESS;
}

GCOMP_EXPORT nvrtcResult nvrtcGetSupportedArchs(int* all) {
  if (const nvrtcResult error = entered("nvrtcGetSupportedArchs")) return error;
  const std::vector<int> known = architectures();
  std::copy(known.begin(), known.end(), all);
  return NVRTC_SUCCESS;
}

GCOMP_EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int headers, const char* const*,
                                            const char* const*) {
  if (const nvrtcResult error = entered("nvrtcCreateProgram")) return error;
  if (!source || headers != 0) return kInvalidInput;
  *program = reinterpret_cast<nvrtcProgram>(new Program{source, "", {}});
  calls().add("live programs", 1);
  return NVRTC_SUCCESS;
}

GCOMP_EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  if (const nvrtcResult error = entered("nvrtcDestroyProgram")) return error;
  if (!program || !*program) return kInvalidProgram;
  delete program_of(*program);
  *program = nullptr;
  calls().add("live programs", -1);
  return NVRTC_SUCCESS;
}

GCOMP_EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram handle, int count, const char* const* options) {
  if (const nvrtcResult error = entered("nvrtcCompileProgram")) return error;
  if (!handle) return kInvalidProgram;
  if (const std::string marker = setting("NVRTC_HANGS"); !marker.empty()) {
    std::ofstream(marker) << "hanging";
    for (;;) pause();
  }
  Program& program = *program_of(handle);
  const int architecture = architecture_of(count, options);
  if (architecture == 0) {
    program.log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
    return kInvalidOption;
  }
  const cuda_shim::HostCompilation made = compile_cached(program.source);
  program.log = made.log;
  if (made.library.empty()) return NVRTC_ERROR_COMPILATION;
  program.image = make_image(static_cast<std::uint32_t>(architecture), made.library);
  return NVRTC_SUCCESS;
}

GCOMP_EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram handle, std::size_t* bytes) {
  if (const nvrtcResult error = entered("nvrtcGetProgramLogSize")) return error;
  if (!handle) return kInvalidProgram;
  *bytes = program_of(handle)->log.size() + 1;
  return NVRTC_SUCCESS;
}

GCOMP_EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram handle, char* log) {
  if (const nvrtcResult error = entered("nvrtcGetProgramLog")) return error;
  if (!handle) return kInvalidProgram;
  std::strcpy(log, program_of(handle)->log.c_str());
  return NVRTC_SUCCESS;
}

GCOMP_EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram handle, std::size_t* bytes) {
  if (const nvrtcResult error = entered("nvrtcGetCUBINSize")) return error;
  if (!handle) return kInvalidProgram;
  *bytes = program_of(handle)->image.size();
  return NVRTC_SUCCESS;
}

GCOMP_EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram handle, char* image) {
  if (const nvrtcResult error = entered("nvrtcGetCUBIN")) return error;
  if (!handle) return kInvalidProgram;
  std::memcpy(image, program_of(handle)->image.data(), program_of(handle)->image.size());
  return NVRTC_SUCCESS;
}

}  // namespace gcomp::emulated
