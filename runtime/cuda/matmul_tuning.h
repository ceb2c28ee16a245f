// Which of cuBLASLt's algorithms is the fastest for a product, timed once on the GPU and remembered in the cache directory. Without
// being asked, among those that give the bits of the library's favourite, so that nothing depends on what is chosen. On request
// among all of them, and whether that is with its epilogue or with a kernel after it: such choices are given out for a training to
// keep.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/matmul_timing.h"
#include "runtime/cuda/session.h"
#include "runtime/device.h"
#include "runtime/files/disk_cache.h"

namespace gcomp::runtime::cuda {

/// How the library computes a product: with its epilogue, or plain, before a kernel. Null where it does not.
struct MatmulWays {
  std::unique_ptr<CublasLtMatmul> fused, plain;
};

/// A product of a program, and the cubins that came with that.
struct ProgramProduct {
  const Program& program;
  const MatmulCall& call;
  std::span<const std::byte> kernel_binary;
};

class MatmulTuning {
 public:
  /// Reads what earlier runs found with this library on this kind of GPU; a damaged file is begun anew, and options.log is told.
  /// Without options.tune, or without the library, this object takes what is fused and the library's favourites. Throws UserError
  /// where options.timed_choices is no such text. Keeps `session`.
  MatmulTuning(const Session& session, const DeviceOptions& options);

  /// Whether choose() wants both ways where there are two.
  bool compares() const { return times_ && !equal_bits_; }
  /// Whether anything is timed.
  bool times() const { return times_; }
  /// The way, and the algorithm in use, that is known of the product's shape: from options.timed_choices or choices that are
  /// followed, else what is remembered in the cache, else what the timing comes to. An algorithm that fails when it is timed is
  /// passed over, which options.log is told. Where memory is too short for timing it is the library's favourite, fused where that
  /// can be. Null where there is no way. Throws DeviceError where all algorithms fail, or those that are followed are not there.
  std::unique_ptr<CublasLtMatmul> choose(MatmulWays ways, const ProgramProduct& product);
  /// Writes what is new into the cache.
  void save();

  /// All choices that bits depend on, those of options.timed_choices that nobody has asked for among them.
  const TimedChoices& choices() const { return choices_; }
  /// From now on those of another rank count.
  void follow(const TimedChoices& choices);

 private:
  class Trial;
  enum class Origin : std::uint8_t { known, timed };

  void read_cache();
  std::string key_of(const ProgramProduct& product, const LibraryEpilogue* epilogue) const;
  const std::string* known(const std::string& key) const;
  void keep(const std::string& key, const std::string& choice, Origin origin);
  bool is_worth_timing(const CublasLtMatmul& matmul, const ProgramProduct& product) const;
  bool take_known(CublasLtMatmul& matmul, const ProgramProduct& product);
  struct Timed {
    MatmulAlgorithm algorithm;
    float milliseconds = 0;
  };
  std::vector<Timed> time_all(CublasLtMatmul& matmul, const MatmulTiming& timing, const MatmulCall& call) const;
  std::optional<float> take_fastest(CublasLtMatmul& matmul, Trial& trial) const;
  bool settle(CublasLtMatmul& matmul, Trial& trial);
  std::optional<float> time_with_kernel(const CublasLtMatmul& plain, Trial& trial) const;
  bool is_plain_faster(MatmulWays& ways, Trial& trial);

  const Session& session_;
  DeviceOptions options_;
  bool times_ = false, equal_bits_ = false, followed_ = false, changed_ = false;  // changed_: what the cache is to hold
  DiskCache cache_;
  std::string cache_key_;
  std::map<std::string, std::string> cached_;  // of the cache: choices by product
  TimedChoices choices_;                       // of the run, that bits depend on
  TrialNumbers numbers_;
};

/// What the choice depends on, beside the alignment of the buffers: types, sizes, strides, offsets within buffers, the epilogue
/// that the library computes (null for none).
std::string shape_key(const MatmulCall& call, const LibraryEpilogue* epilogue = nullptr);

}  // namespace gcomp::runtime::cuda
