// Records of separated fields, front to back (RFC 4180): fields in double quotes may hold separators, line ends and, doubled,
// quotes. Lines end in LF, CRLF or CR; empty ones are passed over, and so is a byte order mark.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/random_access_file.h"

namespace gcomp::data {

/// The file must outlive it. Errors are UserErrors with file, line and field.
class RecordReader {
 public:
  RecordReader(const RandomAccessFile& file, char separator);

  /// The fields of the next record, without their quotes; valid until the next call. False at the end.
  bool next(std::vector<std::string_view>& fields);
  /// Where the record began, from 1.
  std::int64_t line() const { return record_line_; }

 private:
  struct Field {
    std::size_t begin = 0, end = 0;
    bool doubled_quotes = false;
  };

  /// Finds the fields of the record at begin_. False where it goes on beyond what has been read.
  bool scan();
  bool scan_quoted(Field& field, std::size_t& at);
  bool scan_plain(Field& field, std::size_t& at) const;
  /// Whether a line ends at `at`, which is then after it; nothing is known (false) where more has to be read.
  bool skip_line_end(std::size_t& at);
  void read_more();
  void skip_mark();
  [[noreturn]] void refuse(std::int64_t line, std::string_view reason) const;

  const RandomAccessFile& file_;
  char separator_;
  bool special_[256] = {};
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what has been read and not taken
  std::uint64_t offset_ = 0;         // of the file, the next to read
  bool at_end_ = false;              // the file has no more
  std::vector<Field> fields_;
  std::int64_t record_line_ = 1, line_ = 1;
  std::size_t record_end_ = 0;
  std::int64_t next_line_ = 1;
};

}  // namespace gcomp::data
