#include "data/tables/record_reader.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "ir/base/error.h"
#include "ir/base/units.h"

namespace gcomp::data {
namespace {

constexpr std::size_t kFirstRead = std::size_t{1} << 20;
/// A record is held in memory whole. One quote that nobody closed would otherwise take the rest of a large file.
constexpr std::size_t kLargestRecord = std::size_t{1} << 26;
constexpr std::size_t kMostFields = std::size_t{1} << 20;

/// One field of a record, with doubled quotes made single where they lie.
std::string_view without_doubled_quotes(char* begin, char* end) {
  char* to = begin;
  for (char* from = begin; from < end; ++from) {
    *to++ = *from;
    if (*from == '"') ++from;
  }
  return {begin, static_cast<std::size_t>(to - begin)};
}

}  // namespace

RecordReader::RecordReader(const RandomAccessFile& file, char separator) : file_(file), separator_(separator) {
  for (const char c : {separator, '\n', '\r', '\0'}) special_[static_cast<unsigned char>(c)] = true;
  read_more();
  skip_mark();
}

void RecordReader::refuse(std::int64_t line, std::string_view reason) const {
  throw UserError(concat("'", file_.path(), "', line ", line, ", field ", fields_.size() + 1, reason));
}

void RecordReader::skip_mark() {
  const std::string_view head(buffer_.data(), end_);
  for (const std::string_view mark : {"\xFF\xFE", "\xFE\xFF"})
    check_user(!head.starts_with(mark), "'", file_.path(), "' is text in UTF-16, wanted UTF-8; iconv -f UTF-16 -t UTF-8 '",
               file_.path(), "' writes it so");
  if (head.starts_with("\xEF\xBB\xBF")) begin_ = 3;
}

void RecordReader::read_more() {
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_), buffer_.begin() + static_cast<std::ptrdiff_t>(end_),
            buffer_.begin());
  end_ -= begin_;
  begin_ = 0;
  if (end_ >= kLargestRecord)
    throw UserError(concat("'", file_.path(), "', line ", line_, ": a record of more than ",
                           size_text(static_cast<double>(kLargestRecord)), "; a quote that opens there may not be closed"));
  const std::uint64_t left = file_.size() - offset_;
  const std::size_t wanted = std::max(kFirstRead, end_);
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left, wanted));
  buffer_.resize(std::max(buffer_.size(), end_ + count));
  file_.read(offset_, std::as_writable_bytes(std::span(buffer_).subspan(end_, count)));
  offset_ += count;
  end_ += count;
  at_end_ = offset_ == file_.size();
}

bool RecordReader::scan_plain(Field& field, std::size_t& at) const {
  field.begin = at;
  while (at < end_ && !special_[static_cast<unsigned char>(buffer_[at])]) ++at;
  field.end = at;
  if (at == end_) return at_end_;
  if (buffer_[at] == '\0') refuse(next_line_, ": a byte of zero, which text does not have");
  return true;
}

bool RecordReader::scan_quoted(Field& field, std::size_t& at) {
  const std::int64_t opened = next_line_;
  field.begin = ++at;
  for (;;) {
    const char* found = static_cast<const char*>(std::memchr(buffer_.data() + at, '"', end_ - at));
    const std::size_t quote = found ? static_cast<std::size_t>(found - buffer_.data()) : end_;
    for (; at < quote; ++at) {
      if (buffer_[at] == '\0') refuse(next_line_, ": a byte of zero, which text does not have");
      next_line_ += buffer_[at] == '\n';
    }
    if (!found) {
      if (at_end_) refuse(opened, ": its quote is not closed");
      return false;
    }
    ++at;
    if (at == end_ && !at_end_) return false;
    if (at == end_ || buffer_[at] != '"') break;
    field.doubled_quotes = true;
    ++at;
  }
  field.end = at - 1;
  const bool ends = at == end_ || buffer_[at] == separator_ || buffer_[at] == '\n' || buffer_[at] == '\r';
  if (!ends) refuse(next_line_, ": text follows its closing quote; a quote within quotes is written twice");
  return true;
}

bool RecordReader::skip_line_end(std::size_t& at) {
  if (at == end_) return true;
  if (buffer_[at] == '\r') {
    if (at + 1 == end_ && !at_end_) return false;
    if (at + 1 < end_ && buffer_[at + 1] == '\n') ++at;
  }
  ++at;
  ++next_line_;
  return true;
}

bool RecordReader::scan() {
  fields_.clear();
  next_line_ = line_;
  for (std::size_t at = begin_;; ++at) {
    if (at == end_ && !at_end_) return false;
    Field field;
    const bool quoted = at < end_ && buffer_[at] == '"';
    if (!(quoted ? scan_quoted(field, at) : scan_plain(field, at))) return false;
    fields_.push_back(field);
    if (fields_.size() > kMostFields) refuse(line_, concat(": more than ", kMostFields, " fields"));
    if (at < end_ && buffer_[at] == separator_) continue;
    record_end_ = at;
    return skip_line_end(record_end_);
  }
}

bool RecordReader::next(std::vector<std::string_view>& fields) {
  fields.clear();
  for (;;) {
    if (begin_ == end_ && at_end_) return false;
    while (!scan()) read_more();
    const bool empty = fields_.size() == 1 && fields_[0].begin == fields_[0].end && fields_[0].begin == begin_;
    record_line_ = line_;
    line_ = next_line_;
    begin_ = record_end_;
    if (!empty) break;
  }
  for (const Field& field : fields_) {
    char* const text = buffer_.data();
    if (field.doubled_quotes) fields.push_back(without_doubled_quotes(text + field.begin, text + field.end));
    else fields.emplace_back(text + field.begin, field.end - field.begin);
  }
  return true;
}

}  // namespace gcomp::data
