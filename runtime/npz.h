// NumPy's .npz: a zip archive of .npy arrays. See runtime/npy.h for what an array may be.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/tensor.h"
#include "runtime/npy.h"
#include "runtime/zip_archive.h"

namespace gcomp::runtime {

using NamedTensor = std::pair<std::string, Tensor>;

/// An open archive. Headers are read at once, elements when asked for. An array that gcomp cannot read (text, objects, a damaged
/// header) is an error only when it is asked for. Not safe to use from two threads at once.
class NpzFile {
 public:
  /// Throws UserError naming `path` where it is missing, no archive, or beyond a limit.
  explicit NpzFile(const std::filesystem::path& path, const ZipLimits& limits = {});

  const std::string& path() const { return path_; }
  /// Without ".npy", in the archive's order.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const;
  /// Both throw UserError naming file and array; for an unknown name with the nearest known one.
  const TensorType& type(std::string_view name) const;
  Tensor load(std::string_view name) const;

 private:
  struct Array {
    NpyHeader header;
    std::string error;  // why it cannot be read; empty where it can
  };
  std::size_t find(std::string_view name) const;

  std::string path_;
  ZipReader archive_;
  std::vector<std::string> names_;
  std::vector<Array> arrays_;  // one for each entry of the archive
};

/// Writes atomically; equal arrays give equal bytes. `compression` deflated is numpy.savez_compressed.
void write_npz(const std::filesystem::path& path, std::span<const NamedTensor> arrays,
               Compression compression = Compression::stored);

}  // namespace gcomp::runtime
