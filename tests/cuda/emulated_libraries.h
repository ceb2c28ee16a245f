// The emulated libraries within a test's own process, called as the runtime calls them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "gcomp/device_options.h"
#include "runtime/cuda/api.h"

namespace gcomp::tests {

namespace cuda = gcomp::runtime::cuda;

/// The emulated libraries and no others.
LibrarySearch emulated_libraries();

/// Opens build/tests/cuda/lib/FILE. The test ends where that fails.
void* open_emulated(const char* file);

/// The driver with a context current, made anew for each test with the settings of that test.
class EmulatedDriver : public testing::Test {
 protected:
  void SetUp() override { restart({}); }
  void TearDown() override { restart({}); }

  /// Sets GCOMP_EMULATED_<name> for each, none else, and starts the driver again.
  void restart(const std::map<std::string, std::string>& settings);
  /// As restart, but without cuInit and a context.
  void restart_bare(const std::map<std::string, std::string>& settings);

  cuda::CUdeviceptr allocate(std::size_t bytes);
  cuda::CUstream stream();
  cuda::CUevent event();
  /// The image of CUDA text; the test fails where it does not compile.
  std::vector<char> compile(const std::string& text, const std::string& architecture = "sm_90");
  cuda::CUfunction kernel(const std::string& text, const char* name);
  template <class... A>
  cuda::CUresult launch(cuda::CUfunction function, unsigned blocks, unsigned threads, cuda::CUstream on, A... arguments) {
    void* parameters[] = {&arguments..., nullptr};
    return f.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, on, parameters, nullptr);
  }
  long long count(const char* name) const { return count_(name); }
  long long figure(const char* name) const { return figure_(name); }

  cuda::DriverFunctions f;

 private:
  void load();
  std::vector<std::string> set_;
  void (*reset_)() = nullptr;
  long long (*count_)(const char*) = nullptr;
  long long (*figure_)(const char*) = nullptr;
};

}  // namespace gcomp::tests
