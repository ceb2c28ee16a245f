// Which of cuBLASLt's algorithms is the fastest for a product: timed once on the GPU, remembered in the cache directory.
#pragma once

#include <map>
#include <string>

#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/session.h"
#include "runtime/device.h"
#include "runtime/files/disk_cache.h"

namespace gcomp::runtime::cuda {

class MatmulTuning {
 public:
  /// Reads what earlier runs found with this library on this kind of GPU; a damaged file is begun anew, and options.log is told.
  /// Without options.tune this object does nothing.
  MatmulTuning(const Session& session, const DeviceOptions& options);

  /// Makes the product use the algorithm that is remembered for its shape, else the fastest of its candidates. What is remembered
  /// counts only where the library still offers it. Where memory is too short for timing, the library's favourite stays.
  void tune(CublasLtMatmul& matmul, const MatmulCall& call);
  /// Writes what is new.
  void save();

 private:
  void read(const DeviceOptions& options);
  const MatmulAlgorithm* fastest(CublasLtMatmul& matmul, const MatmulCall& call) const;

  const Session& session_;
  bool wanted_ = false, all_ = false, changed_ = false;  // all_: of all that the library has, which is remembered beside
  LogSink log_;
  DiskCache cache_;
  std::string key_;
  std::map<std::string, std::string> chosen_;  // a shape's algorithm, in hexadecimal
};

/// What the choice depends on: types, sizes, strides, alignments, the epilogue that the library computes (null for none).
std::string shape_key(const MatmulCall& call, const LibraryEpilogue* epilogue = nullptr);

}  // namespace gcomp::runtime::cuda
