// A test of plans by the emulated cuDNN: a session on the emulated driver, a cache and a log of its own.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <string>

#include "runtime/cuda/session.h"
#include "tests/cuda/emulated_libraries.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::tests {

class CudnnPlanTest : public testing::Test {
 protected:
  /// `memory`: how much the device has, as the emulated driver reads it; "" for its own.
  explicit CudnnPlanTest(const char* memory = "") {
    setenv("GCOMP_EMULATED_MEMORY", memory, 1);
    emulated<void()>("gcompEmulatedReset")();
    runtime::LibrarySearch search;
    search.usual_places = false;
    for (const runtime::LibraryKind kind : runtime::kAllLibraries) search.explicit_of(kind) = GCOMP_EMULATED_LIBRARIES;
    const auto driver = runtime::cuda::Driver::open(search);
    session_.context = std::make_shared<runtime::cuda::Context>(driver, runtime::cuda::choose_gpu(*driver, 0));
    session_.compute = runtime::cuda::make_stream(session_.context);
    std::string reason;
    session_.cudnn = runtime::cuda::Cudnn::open(session_.context, search, reason);
    EXPECT_NE(session_.cudnn, nullptr) << reason;
    options_.cache_directory = (folder_.path() / "cache").string();
    options_.log = [this](std::string_view line) { log_ += std::string(line) + "\n"; };
  }
  ~CudnnPlanTest() override {
    unsetenv("GCOMP_EMULATED_CUDNN_ENGINES");
    unsetenv("GCOMP_EMULATED_MEMORY");
    session_ = {};
    emulated<void()>("gcompEmulatedReset")();  // the next test of this process finds a device as large as ever
  }

  /// A function of the emulated driver.
  template <class F>
  static F* emulated(const char* name) {
    return reinterpret_cast<F*>(dlsym(open_emulated("libcuda.so.1"), name));
  }

  /// The numbers of the engines that the library has from now on.
  static void offer(const char* engines) { setenv("GCOMP_EMULATED_CUDNN_ENGINES", engines, 1); }

  runtime::test::TemporaryDirectory folder_;
  runtime::cuda::Session session_;
  runtime::DeviceOptions options_;
  std::string log_;
};

}  // namespace gcomp::tests
