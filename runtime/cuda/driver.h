// The CUDA driver: libcuda found at run time, its functions, and its errors as DeviceErrors that say what failed where.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ir/base/error.h"
#include "runtime/cuda/driver_api.h"
#include "runtime/cuda/libraries.h"

namespace gcomp::runtime::cuda {

class Driver {
 public:
  /// Finds, loads and initialises the driver. `visible_devices` is the value of CUDA_VISIBLE_DEVICES, or null; it serves messages
  /// only. Throws DeviceError (exit 6) with the cause and its cure.
  static std::shared_ptr<const Driver> open(const LibrarySearch& search, const char* visible_devices = nullptr);

  /// All functions are there.
  const DriverFunctions& functions() const { return functions_; }
  const LibraryResult& found() const { return found_; }
  /// The newest CUDA that the driver knows: 13, 0.
  int major() const { return version_ / 1000; }
  int minor() const { return version_ % 1000 / 10; }
  /// Whether modules may be loaded while a stream is captured, as a library does that loads kernels at their first use: from 12.3
  /// on.
  bool loads_in_capture() const { return version_ >= 12030; }
  std::string version() const { return std::to_string(major()) + "." + std::to_string(minor()); }

  /// Throws DeviceError where `result` is an error: `call`, the error's name, number and text, and `where`, the part of the program
  /// that was at work ("" for none). Exit 7 where memory ran out, 5 where machine code was refused, else 6.
  void check(CUresult result, const char* call, std::string_view where) const {
    if (result != CUDA_SUCCESS) fail(result, call, where);
  }
  /// "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected".
  std::string describe(CUresult error) const;

 private:
  Driver() = default;
  [[noreturn]] void fail(CUresult error, const char* call, std::string_view where) const;

  LibraryResult found_;
  DriverFunctions functions_;
  int version_ = 0;
};

/// An error after which every later call in this process fails too.
bool is_sticky(CUresult error);

/// What to do about an error of cuInit or of the first use of a GPU; "" where there is nothing special to say.
std::string cure_of(CUresult error, const char* visible_devices = nullptr);

// Calls a function of the driver and throws where it fails: GCOMP_CUDA(driver, where, cuMemFree_v2, address).
#define GCOMP_CUDA(DRIVER, WHERE, NAME, ...) (DRIVER).check((DRIVER).functions().NAME(__VA_ARGS__), #NAME, WHERE)

}  // namespace gcomp::runtime::cuda
