// Arrays whose rows lie at equal distances in files, as they are, or in memory: what most formats of arrays open.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/random_access_file.h"
#include "data/source.h"
#include "ir/base/tensor.h"

namespace gcomp::data {

/// Rows of a file, each `stride` bytes after the one before it.
struct RowRun {
  std::shared_ptr<const RandomAccessFile> file;
  std::uint64_t offset = 0;  ///< of the first row's first byte
  std::uint64_t stride = 0;
  std::int64_t rows = 0;
};

/// What a byte of a stored bool may be. NumPy takes all but 0 for true; safetensors has 0 and 1 alone.
enum class StoredBool : std::uint8_t { any, zero_or_one };

struct StoredArray {
  std::string name;
  TensorType row;                 ///< of one row
  std::vector<RowRun> runs = {};  ///< one after another; each file has them whole, which the caller has checked
  Tensor memory = {};             ///< [rows, row...] where there are no runs
  bool big_endian = false;        ///< in files
  StoredBool booleans = StoredBool::any;
  std::vector<std::string> class_names = {};
};

/// A row costs one read into its destination; arrays of short rows, as labels are, are read into memory once.
class StoredSource final : public Source {
 public:
  /// Throws UserError where there are no arrays or no rows, or where two have another number of rows.
  StoredSource(std::string source, std::vector<StoredArray> arrays, std::vector<std::string> notes = {});

  std::string source() const override { return source_; }
  std::int64_t rows() const override { return rows_; }
  std::vector<NamedType> arrays() const override;
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override;
  bool is_in_memory() const override {
    return std::all_of(arrays_.begin(), arrays_.end(), [](const StoredArray& array) { return array.runs.empty(); });
  }
  const Tensor* whole(std::size_t array) const override;
  std::vector<std::string> class_names(std::size_t array) const override { return arrays_[array].class_names; }
  std::vector<std::string> notes() const override { return notes_; }
  std::string where(std::int64_t row) const override;

 private:
  std::string source_;
  std::vector<StoredArray> arrays_;
  std::vector<std::string> notes_;
  std::int64_t rows_ = 0;
};

/// An array of a file, or why it cannot be read.
struct FoundArray {
  std::string name;
  TensorType type = {};      ///< with the dimension that counts rows
  std::string problem = {};  ///< "" where it can be read
};

/// Which of them become a source's arrays.
struct ArrayChoice {
  std::vector<std::size_t> chosen;
  std::vector<std::string> notes;
};

/// Those that are wanted, where they are all there, whatever is wrong with them: that is for the source to say. Else all that have
/// rows, as many as the first wanted one, or as most of them have (of equals, the larger number); a note tells of the others.
/// Throws UserError where none is left.
ArrayChoice choose_arrays(const std::string& source, std::span<const FoundArray> found, std::span<const WantedArray> wanted);

}  // namespace gcomp::data
