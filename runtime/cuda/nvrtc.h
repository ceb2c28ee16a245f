// CUDA text to machine code (cubins) through NVRTC, which is found at run time and needs neither toolkit headers nor a GPU.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/function.h"
#include "runtime/cuda/libraries.h"
#include "runtime/cuda/nvrtc_api.h"
#include "runtime/program.h"

namespace gcomp::runtime::cuda {

/// Machine code for one architecture.
struct Cubin {
  std::vector<std::byte> image;
  std::string log;  ///< of the compiler; empty where it said nothing or the cubin came from the cache
  bool cached = false;
};

/// The library, 12.4 or newer. Compiling is safe from several threads.
class Nvrtc {
 public:
  /// The first that is not newer than CUDA `newest_major`, the driver's (0 for no limit): an older driver does not load its cubins.
  /// Throws DeviceError that lists what was tried where none is found: exit 5, or 6 where only the driver is too old.
  static Nvrtc find(const LibrarySearch& search, int newest_major = 0);

  /// "13.0".
  std::string version() const { return std::to_string(major_) + "." + std::to_string(minor_); }
  const Library& library() const { return library_; }
  const LibraryResult& found() const { return found_; }
  /// Architectures it can compile for, ascending: 75, 80, ...
  std::vector<int> architectures() const;
  /// The architecture whose cubins run on this GPU: its own, else the newest older one of the same major. Throws DeviceError (exit
  /// 5) where this NVRTC knows none.
  int architecture_for(int gpu_architecture) const;
  /// Throws DeviceError (exit 5) naming those it can compile for where "sm_90" is not among them.
  void require(std::string_view architecture) const;

  /// Compiles one source. Throws DeviceError (exit 5) with the compiler's log; `name` stands for the source in it.
  Cubin compile(const std::string& source, std::string_view architecture, const std::string& name = "kernel.cu",
                std::span<const std::string> more_options = {}) const;

 private:
  Library library_, builtins_;
  LibraryResult found_;
  NvrtcFunctions functions_;
  int major_ = 0, minor_ = 0;
};

/// The option of a program that does not contract.
inline constexpr char kNoContraction[] = "--fmad=false";

struct CubinOptions {
  std::filesystem::path cache_directory;    ///< empty for no cache
  std::filesystem::path failure_directory;  ///< where the source of a kernel that does not compile is left; empty for the system's
  int jobs = 0;                             ///< threads; 0 for one for each processor
  std::vector<std::string> compiler_options;
  std::vector<std::string> names;           ///< of the sources, for errors; may be empty
  double timeout = 0;                       ///< seconds that NVRTC may take for one source; 0 for any number
  Function<bool()> cancelled;               ///< asked ten times a second; may be empty
  Function<void(std::string_view)> log;     ///< one-line notices; may be empty
  Function<void(std::string_view)> detail;  ///< told of NVRTC's options and the time that it took; may be empty
  /// How many of the distinct sources are done, one call at a time; may be empty.
  std::function<void(std::size_t done, std::size_t sources)> progress;
};

/// Compiles each source once, on several threads, or takes it from the cache; results in the order of `sources`. The first
/// failure, in that order, is thrown as a DeviceError (exit 5) with log and the path of the saved source, its lines numbered.
/// NVRTC cannot be stopped: where it takes longer than its time, or is cancelled, a DeviceError is thrown while it goes on in
/// threads that nobody waits for (runtime/files/left_behind.h).
std::vector<Cubin> compile_cubins(const Nvrtc& nvrtc, std::span<const std::string> sources, std::string_view architecture,
                                  const CubinOptions& options = {});

/// A cubin runs on GPUs of its own major architecture and of no smaller minor one: 80 on 86, not on 90.
bool runs_on(int cubin_architecture, int gpu_architecture);

/// What the compiler sees of a kernel: the program's prelude and the kernel's text.
std::string kernel_source(const Program& program, const Kernel& kernel);

/// A cubin for each of the program's kernels, for the program's architecture.
std::vector<Cubin> compile_program(const Nvrtc& nvrtc, const Program& program, const CubinOptions& options = {});

}  // namespace gcomp::runtime::cuda
