// NumPy's .npz: a zip archive of .npy arrays. See runtime/files/npy.h for what an array may be.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/tensor.h"
#include "runtime/files/npy.h"
#include "runtime/files/zip_archive.h"

namespace gcomp::runtime {

using gcomp::NamedTensor;

class NpzFile;

/// The rows of one array, front to back, some at a time: an array of any length takes the memory of one part. (One stored in
/// Fortran order is read whole.) The NpzFile must stay alive; several may be read side by side.
class NpzRows {
 public:
  /// Of the whole array, which has a first dimension.
  const TensorType& type() const { return header_.type; }
  std::int64_t rows() const { return type().shape[0]; }
  /// Of the row that next() gives first.
  std::int64_t position() const { return position_; }

  /// The next `count` rows, [count, row...], fewer at the end and none after it; valid until the next call. Throws UserError naming
  /// file and array where the archive is damaged. A wrong checksum shows with the last row: what was made of the rows before is not
  /// to be believed until then.
  const Tensor& next(std::int64_t count);

 private:
  friend class NpzFile;
  NpyHeader header_;
  std::string where_;  // "'x.npz', array 'x'"
  ZipStream stream_;
  Tensor part_, whole_;  // `whole_` has elements where the array is not row-major
  std::int64_t position_ = 0;
};

/// An open archive. Headers are read at once, elements when asked for, straight to where they stay. An array that gcomp cannot read
/// (text, objects, a damaged header) is an error only when it is asked for. Not safe to use from two threads at once.
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
  /// The same a few rows at a time. Throws for a scalar too.
  NpzRows open_rows(std::string_view name) const;

 private:
  struct Array {
    NpyHeader header;
    std::string error;  // why it cannot be read; empty where it can
  };
  std::size_t find(std::string_view name) const;
  std::string where(std::string_view name) const;
  ZipStream open_elements(std::size_t index) const;

  std::string path_;
  ZipReader archive_;
  std::vector<std::string> names_;
  std::vector<Array> arrays_;  // one for each entry of the archive
};

/// Writes atomically; equal arrays give equal bytes. `compression` deflated is numpy.savez_compressed.
void write_npz(const std::filesystem::path& path, std::span<const NamedTensor> arrays,
               Compression compression = Compression::stored);

}  // namespace gcomp::runtime
