// gzip (RFC 1952), inflated front to back; several members one after another count as one, as gunzip has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/random_access_file.h"

struct z_stream_s;

namespace gcomp::data {

/// Whether a file's first bytes are gzip's.
bool is_gzip(std::span<const std::byte> head);
/// What the first bytes of a gzip file inflate to, at most `count`; fewer or none where they are damaged.
std::vector<std::byte> inflate_head(std::span<const std::byte> head, std::size_t count);

/// The file must outlive it. Errors are UserErrors without the file's name. It never inflates more than it is asked for, so that a
/// bomb takes the memory that its reader has checked.
class GzipReader {
 public:
  explicit GzipReader(const RandomAccessFile& file);
  GzipReader(GzipReader&&) noexcept;
  ~GzipReader();

  /// Fills `bytes` or throws.
  void read(std::span<std::byte> bytes);
  /// Throws where something follows what was read.
  void expect_end();
  /// No file of this size can inflate to more: deflate's densest is 1,032 to 1.
  static std::uint64_t most_inflated(std::uint64_t file_size) {
    return file_size > (~std::uint64_t{0} >> 11) ? ~std::uint64_t{0} : file_size * 1040;
  }

 private:
  struct End {
    void operator()(z_stream_s* stream) const;
  };
  /// Inflates into `bytes`; how many, fewer only at the end.
  std::size_t inflate_some(std::span<std::byte> bytes);
  void fill();

  const RandomAccessFile* file_;
  std::vector<std::byte> buffer_;
  std::uint64_t at_ = 0;  // of the file's bytes, the next to take into the buffer
  std::unique_ptr<z_stream_s, End> stream_;
  bool ended_ = false;
};

}  // namespace gcomp::data
