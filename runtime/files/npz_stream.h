// Writing a .npz of any size a few rows at a time.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/tensor.h"
#include "runtime/files/zip_archive.h"

namespace gcomp::runtime {

/// An archive stores one array behind the other, yet their rows come side by side: each array waits in a file of its own, which
/// lies in the folder of the final one and has no name, until commit() joins them. Gives the bytes that write_npz() gives for the
/// same arrays. All errors are UserErrors with the final name and the system's reason.
class NpzStream {
 public:
  /// Creates the files; names and types of the whole arrays are known from the start.
  NpzStream(const std::filesystem::path& path, std::vector<std::pair<std::string, TensorType>> arrays);

  /// The next elements of an array, in C order.
  void append(std::size_t array, std::span<const std::byte> elements);
  /// Writes the archive; without it nothing appears. Throws InternalError where an array lacks elements.
  void commit();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct Array {
    std::string name;
    std::int64_t bytes = 0, missing = 0;  // of header and elements; of elements that are to come
    std::unique_ptr<std::FILE, Close> file;
  };
  void write(const Array& array, std::span<const std::byte> bytes);

  std::string shown_;  // the path as the caller gave it
  ZipWriter archive_;
  std::vector<Array> arrays_;
};

}  // namespace gcomp::runtime
