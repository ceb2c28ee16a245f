// Whether cuDNN's plans give the same bits twice. Its notes on engines have been wrong, so each plan that a program would use runs
// twice over the same numbers once on each kind of GPU; what came out is remembered in the cache directory.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "runtime/cuda/cudnn.h"
#include "runtime/cuda/session.h"
#include "runtime/device.h"
#include "runtime/files/disk_cache.h"

namespace gcomp::runtime::cuda {

class ConvolutionProof {
 public:
  /// Reads what earlier runs found with this library on this kind of GPU; a damaged file is begun anew, and options.log is told.
  ConvolutionProof(const Session& session, const DeviceOptions& options);

  /// Makes the convolution use its first plan that repeats its bits. False, with the reason, where none does or where memory is too
  /// short to try.
  bool prove(CudnnConvolution& convolution, const ConvolutionCall& call, std::string& reason);
  /// Writes what is new.
  void save();

 private:
  enum class Verdict { repeats, varies, untried };

  void read(const DeviceOptions& options);
  Verdict verdict_of(const CudnnConvolution& convolution, const ConvolutionCall& call, const std::string& plan);
  std::shared_ptr<const DeviceMemory> scratch(std::int64_t bytes) const;
  Verdict replay(const CudnnConvolution& convolution, const ConvolutionCall& call) const;

  const Session& session_;
  LogSink log_;
  DiskCache cache_;
  std::string key_;
  std::map<std::string, bool> repeats_;  // by shape and plan
  bool changed_ = false;
};

/// What a plan is of: kind, types, sizes, layout.
std::string shape_key(const ConvolutionCall& call);

}  // namespace gcomp::runtime::cuda
