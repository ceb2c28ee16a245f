// The C interface of NVRTC (12.4 to 13) as far as gcomp calls it. Names and values are those of NVIDIA's documentation.
#pragma once

#include <cstddef>

namespace gcomp::runtime::cuda {

extern "C" {
typedef struct _nvrtcProgram* nvrtcProgram;
}

enum nvrtcResult : int { NVRTC_SUCCESS = 0, NVRTC_ERROR_COMPILATION = 6 };

/// Functions of libnvrtc, each under its exported name without the prefix `nvrtc`.
struct NvrtcFunctions {
  nvrtcResult (*Version)(int* major, int* minor) = nullptr;
  const char* (*GetErrorString)(nvrtcResult) = nullptr;
  nvrtcResult (*GetNumSupportedArchs)(int* count) = nullptr;
  nvrtcResult (*GetSupportedArchs)(int* architectures) = nullptr;
  nvrtcResult (*CreateProgram)(nvrtcProgram*, const char* source, const char* name, int headers, const char* const* texts,
                               const char* const* names) = nullptr;
  nvrtcResult (*DestroyProgram)(nvrtcProgram*) = nullptr;
  nvrtcResult (*CompileProgram)(nvrtcProgram, int options, const char* const* texts) = nullptr;
  nvrtcResult (*GetProgramLogSize)(nvrtcProgram, std::size_t*) = nullptr;
  nvrtcResult (*GetProgramLog)(nvrtcProgram, char*) = nullptr;
  nvrtcResult (*GetCUBINSize)(nvrtcProgram, std::size_t*) = nullptr;
  nvrtcResult (*GetCUBIN)(nvrtcProgram, char*) = nullptr;
};

/// Calls `visit(exported name, function pointer)` for each.
template <class F>
void for_each_function(NvrtcFunctions& f, const F& visit) {
  visit("nvrtcVersion", f.Version);
  visit("nvrtcGetErrorString", f.GetErrorString);
  visit("nvrtcGetNumSupportedArchs", f.GetNumSupportedArchs);
  visit("nvrtcGetSupportedArchs", f.GetSupportedArchs);
  visit("nvrtcCreateProgram", f.CreateProgram);
  visit("nvrtcDestroyProgram", f.DestroyProgram);
  visit("nvrtcCompileProgram", f.CompileProgram);
  visit("nvrtcGetProgramLogSize", f.GetProgramLogSize);
  visit("nvrtcGetProgramLog", f.GetProgramLog);
  visit("nvrtcGetCUBINSize", f.GetCUBINSize);
  visit("nvrtcGetCUBIN", f.GetCUBIN);
}

}  // namespace gcomp::runtime::cuda
