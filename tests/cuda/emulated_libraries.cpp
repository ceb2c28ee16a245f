#include "tests/cuda/emulated_libraries.h"

#include <dlfcn.h>
#include <stdlib.h>

namespace gcomp::tests {

using namespace cuda;

LibrarySearch emulated_libraries() {
  LibrarySearch search;
  search.usual_places = false;
  for (const LibraryKind kind : kAllLibraries) search.explicit_of(kind) = GCOMP_EMULATED_LIBRARIES;
  return search;
}

void* open_emulated(const char* file) {
  const std::string path = std::string(GCOMP_EMULATED_LIBRARIES) + "/" + file;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  return handle;
}

void EmulatedDriver::load() {
  void* library = open_emulated("libcuda.so.1");
  ASSERT_NE(library, nullptr);
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    EXPECT_NE(function, nullptr) << name;
  };
  for_each_function(f, find);
  find("gcompEmulatedReset", reset_);
  find("gcompEmulatedCount", count_);
  find("gcompEmulatedFigure", figure_);
}

void EmulatedDriver::restart_bare(const std::map<std::string, std::string>& settings) {
  if (!reset_) load();
  for (const std::string& name : set_) unsetenv(name.c_str());
  set_.clear();
  for (const auto& [name, value] : settings) {
    set_.push_back("GCOMP_EMULATED_" + name);
    setenv(set_.back().c_str(), value.c_str(), 1);
  }
  reset_();
}

void EmulatedDriver::restart(const std::map<std::string, std::string>& settings) {
  restart_bare(settings);
  CUcontext context = nullptr;
  ASSERT_EQ(f.cuInit(0), CUDA_SUCCESS);
  ASSERT_EQ(f.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(f.cuCtxSetCurrent(context), CUDA_SUCCESS);
}

CUdeviceptr EmulatedDriver::allocate(std::size_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(f.cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
  return address;
}

CUstream EmulatedDriver::stream() {
  CUstream made = nullptr;
  EXPECT_EQ(f.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  return made;
}

CUevent EmulatedDriver::event() {
  CUevent made = nullptr;
  EXPECT_EQ(f.cuEventCreate(&made, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  return made;
}

std::vector<char> EmulatedDriver::compile(const std::string& text, const std::string& architecture) {
  void* library = open_emulated("libnvrtc.so.13");
  NvrtcFunctions n;
  for_each_function(n, [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    ASSERT_NE(function, nullptr) << name;
  });
  nvrtcProgram program = nullptr;
  EXPECT_EQ(n.CreateProgram(&program, text.c_str(), "test.cu", 0, nullptr, nullptr), NVRTC_SUCCESS);
  const std::string option = "--gpu-architecture=" + architecture;
  const char* options[] = {"--std=c++17", option.c_str()};
  const nvrtcResult result = n.CompileProgram(program, 2, options);
  std::size_t bytes = 0;
  n.GetProgramLogSize(program, &bytes);
  std::vector<char> log(bytes);
  n.GetProgramLog(program, log.data());
  EXPECT_EQ(result, NVRTC_SUCCESS) << log.data();
  n.GetCUBINSize(program, &bytes);
  std::vector<char> image(bytes);
  n.GetCUBIN(program, image.data());
  n.DestroyProgram(&program);
  return image;
}

CUfunction EmulatedDriver::kernel(const std::string& text, const char* name) {
  const std::vector<char> image = compile(text);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_EQ(f.cuModuleLoadDataEx(&module, image.data(), 0, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(f.cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
  return function;
}

}  // namespace gcomp::tests
