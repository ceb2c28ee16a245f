// Devices: which one a model runs on, and how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/function.h"
#include "gcomp/optional.h"
#include "gcomp/path.h"

namespace gcomp {

/// The device that suits best, or one of the kinds that gcomp computes on.
enum class DeviceRequest : std::uint8_t { automatic, cpu, cuda };

/// The vector instructions that the CPU's kernels use, from narrow to wide. Baseline is what every processor of its architecture
/// has (on x86-64 SSE2, on ARM NEON), avx2 comes with FMA (x86-64-v3), avx512 with its F, DQ, BW and VL parts, amx with AVX-512 and
/// AVX512-BF16: its tiles multiply bf16, everything else is as with avx512.
enum class InstructionSet : std::uint8_t { baseline, avx2, avx512, amx };

/// Which products of f32 matrices a GPU may round to TF32 (10 bits) before it multiplies.
enum class MatmulPrecision : std::uint8_t { strict, tf32 };

/// Receives one-line notices, such as an unusable cache directory. May be empty.
using LogSink = Function<void(std::string_view)>;

/// How the kernels of one program came to be.
struct KernelReport {
  std::size_t kernels = 0;
  bool cached = false;  ///< taken from the cache: nothing was compiled
  double seconds = 0;
};
using KernelSink = Function<void(const KernelReport&)>;

/// How far the compilation of one program's kernels is. None is told where all come from the CPU's cache.
struct KernelProgress {
  std::size_t done = 0, kernels = 0;
};
using KernelProgressSink = Function<void(const KernelProgress&)>;

/// Whether to give up: what waits then ends its child processes and throws DeviceError. Must not throw.
using CancelQuery = Function<bool()>;

/// Libraries of NVIDIA that are looked for at run time.
enum class LibraryKind : std::uint8_t { driver, nvrtc, cublaslt, cudnn, nccl };
inline constexpr LibraryKind kAllLibraries[] = {LibraryKind::driver, LibraryKind::nvrtc, LibraryKind::cublaslt, LibraryKind::cudnn,
                                                LibraryKind::nccl};

/// Where to look beside the loader's own places. Nothing in the library reads the environment.
struct LibrarySearch {
  Path explicit_path[std::size(kAllLibraries)];  ///< by kind; a file, or a folder that holds one
  Path cuda_home;                                ///< of a toolkit
  Path conda_prefix;
  std::vector<Path> python_prefixes;  ///< of environments; their site-packages may hold NVIDIA's wheels
  bool usual_places = true;           ///< /usr/local/cuda, and what pip installs as root

  Path& explicit_of(LibraryKind kind) { return explicit_path[static_cast<std::size_t>(kind)]; }
  const Path& explicit_of(LibraryKind kind) const { return explicit_path[static_cast<std::size_t>(kind)]; }
};

class Communicator;  // gcomp/communicator.h

/// Which of a library's ways to compute a product are timed: none; those among its favourites whose results are the very bits of
/// its first; all its favourites; all that it has.
enum class Tuning : std::uint8_t { off, equal_bits, favourites, all };

struct DeviceOptions {
  int threads = 0;       ///< of the CPU; 0 for one per processor that this process may use
  std::string compiler;  ///< the C++ compiler for CPU kernels; empty searches c++, g++, clang++ on PATH
  Path cache_directory;  ///< for compiled kernels; empty for $XDG_CACHE_HOME/gcomp, else ~/.cache/gcomp
  bool use_cache = true;
  /// The widest vector instructions that the CPU's kernels may use; the processor's own where there is none.
  Optional<InstructionSet> instruction_set;
  /// CPU: demands the same bits as every x86-64 processor with AVX2 and FMA gives, with AVX2 and AVX-512, whichever compiler makes
  /// the kernels: they come by themselves with these instructions, but for products and convolutions of bf16 by AMX's tiles, which
  /// are then not used; a device with narrower ones is not opened: DeviceError (exit 6).
  /// Trigonometric functions and erf of f64 are the C library's, and as portable as it is.
  bool portable_bits = false;
  /// CPU: convolutions of 3 x 3 taps that move by one position by Winograd's F(2x2, 3x3), faster and with other last digits
  /// (docs/training.md); those of f32, one group, channels last and 32 channels or more, and their gradients.
  bool winograd = false;
  LogSink log;
  KernelSink kernels;                    ///< told of every program's kernels; may be empty
  KernelProgressSink kernel_progress;    ///< told when compiling begins, and after each part of it; may be empty
  CancelQuery cancelled;                 ///< asked while a compiler runs; may be empty
  double compiler_timeout = 300;         ///< seconds that a compiler may take for one file or kernel; 0 for any number
  LogSink detail;                        ///< told of each command to a compiler, quoted for a shell, and its time; may be empty
  Communicator* communicator = nullptr;  ///< between the ranks of a training, the caller's; null for one process alone
  /// Whether what ranks exchange goes on while they compute, where the communicator can do that (Communicator::beside). Bits are
  /// the same. Where nothing is said, GPUs do, and CPUs with more processors than all ranks have threads.
  Optional<bool> overlap;

  // CUDA.
  /// Among those that the driver shows. Where none is said it is the first; several ranks on a machine take one each, in order.
  Optional<int> gpu;
  int rank_on_host = 0;                   ///< this process among the ranks of its machine: choose_device() finds it
  LibrarySearch libraries;                ///< where NVIDIA's libraries may be, beside the loader's own places
  Optional<std::string> visible_devices;  ///< the value of CUDA_VISIBLE_DEVICES, for messages
  MatmulPrecision precision = MatmulPrecision::strict;
  /// Time cuBLASLt's algorithms for each product once and remember the fastest in the cache directory. With equal_bits that changes
  /// no result, and small products are not timed. With the others another algorithm may give other last digits; what is remembered
  /// gives the same ones again.
  Tuning tune = Tuning::equal_bits;
  /// With `tune` of favourites or all: what was chosen where a training began, for one that goes on (RunDirectory::timed_choices; a
  /// .gcx brings its own). It comes before what is remembered, and is not taken where GPU, driver or library are others: fit() says
  /// so then. Throws UserError where it is no such text. "" for none.
  std::string timed_choices;
  bool use_cublaslt = true;   ///< else the generated products
  bool use_cudnn = true;      ///< where it is found, for convolutions and attention; else the generated ones
  bool prefer_cudnn = false;  ///< also to generated kernels that are expected to be faster
  bool check_steps = false;   ///< wait after each step of a program, so that an error names the step; slow
};

}  // namespace gcomp
