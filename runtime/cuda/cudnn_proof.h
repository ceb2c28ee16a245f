// Whether cuDNN's plans give the same bits twice. Its notes on engines have been wrong, so each plan that a program would use runs
// twice over the same numbers once on each kind of GPU; what came out is remembered in the cache directory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/cudnn.h"
#include "runtime/cuda/session.h"
#include "runtime/cuda/trial_numbers.h"
#include "runtime/device.h"
#include "runtime/files/disk_cache.h"

namespace gcomp::runtime::cuda {

/// What a plan is tried with.
struct CudnnTrial {
  struct Block {
    DType dtype = DType::f32;
    std::int64_t elements = 0;
    bool written = false;  ///< compared; the others are read
  };
  std::string shape;   ///< what plans are of: kind, types, sizes, layout
  std::string origin;  ///< the IR node, for messages
  std::vector<Block> blocks;
  std::int64_t own_workspace = 0;  ///< bytes beside those of the plan
  /// Queues the plan in use over blocks at these addresses.
  std::function<void(const std::vector<CUdeviceptr>& blocks, CUdeviceptr workspace, CUstream stream)> queue;
};

class CudnnProof {
 public:
  /// Reads what earlier runs found with this library on this kind of GPU; a damaged file is begun anew, and options.log is told.
  CudnnProof(const Session& session, const DeviceOptions& options);

  /// Takes the first plan that repeats its bits. False, with the reason, where none does or where memory is too short to try.
  bool prove(CudnnPlans& plans, const CudnnTrial& trial, std::string& reason);
  /// Writes what is new.
  void save();

 private:
  enum class Verdict { repeats, varies, untried };

  void read(const DeviceOptions& options);
  Verdict verdict_of(const CudnnPlans& plans, const CudnnTrial& trial, const std::string& plan);
  std::shared_ptr<const DeviceMemory> scratch(std::int64_t bytes) const;
  Verdict replay(const CudnnPlans& plans, const CudnnTrial& trial);
  std::vector<std::byte> written_bytes(const std::vector<CUdeviceptr>& addresses, const CudnnTrial& trial) const;

  const Session& session_;
  LogSink log_;
  DiskCache cache_;
  std::string key_;
  TrialNumbers numbers_;
  std::map<std::string, bool> repeats_;  // by shape and plan
  bool changed_ = false;
};

}  // namespace gcomp::runtime::cuda
