#include "data/arrays/gzip_reader.h"

#include <zlib.h>

#include <algorithm>

#include "data/format.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

constexpr int kGzipWindow = 16 + MAX_WBITS;  // zlib's way to say gzip alone
constexpr std::size_t kGzipBuffer = 1 << 16;
constexpr std::size_t kLargestCall = 1 << 30;

Bytef* pointer_of(std::byte* bytes) { return reinterpret_cast<Bytef*>(bytes); }

}  // namespace

bool is_gzip(std::span<const std::byte> head) { return begins_with(head, "\x1f\x8b\x08"); }

std::vector<std::byte> inflate_head(std::span<const std::byte> head, std::size_t count) {
  std::vector<std::byte> bytes(count);
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) return {};
  stream.next_in = pointer_of(const_cast<std::byte*>(head.data()));  // zlib does not write there
  stream.avail_in = static_cast<uInt>(head.size());
  stream.next_out = pointer_of(bytes.data());
  stream.avail_out = static_cast<uInt>(count);
  const int status = inflate(&stream, Z_SYNC_FLUSH);
  bytes.resize(status == Z_OK || status == Z_STREAM_END ? count - stream.avail_out : 0);
  inflateEnd(&stream);
  return bytes;
}

void GzipReader::End::operator()(z_stream_s* stream) const {
  inflateEnd(stream);
  delete stream;
}

GzipReader::GzipReader(const RandomAccessFile& file) : file_(&file), buffer_(kGzipBuffer), stream_(new z_stream{}) {
  check_internal(inflateInit2(stream_.get(), kGzipWindow) == Z_OK, "zlib does not begin");
}
GzipReader::GzipReader(GzipReader&&) noexcept = default;
GzipReader::~GzipReader() = default;

void GzipReader::fill() {
  const std::uint64_t left = file_->size() - at_;
  const std::span<std::byte> part = std::span(buffer_).first(static_cast<std::size_t>(std::min<std::uint64_t>(left, kGzipBuffer)));
  file_->read(at_, part);
  at_ += part.size();
  stream_->next_in = pointer_of(part.data());
  stream_->avail_in = static_cast<uInt>(part.size());
}

std::size_t GzipReader::inflate_some(std::span<std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size() && !ended_) {
    if (stream_->avail_in == 0) fill();
    const std::size_t room = std::min(bytes.size() - done, kLargestCall);
    stream_->next_out = pointer_of(bytes.data() + done);
    stream_->avail_out = static_cast<uInt>(room);
    const int status = inflate(stream_.get(), Z_NO_FLUSH);
    done += room - stream_->avail_out;
    const bool all_taken = stream_->avail_in == 0 && at_ == file_->size();
    if (status == Z_STREAM_END) {
      ended_ = all_taken;
      check_user(ended_ || inflateReset(stream_.get()) == Z_OK, "gzip's next member does not begin");
      continue;
    }
    check_user(status == Z_OK || status == Z_BUF_ERROR, "damaged gzip: ", stream_->msg ? stream_->msg : "no stream");
    check_user(!all_taken || stream_->avail_out == 0, "truncated gzip: its last bytes are missing");
  }
  return done;
}

void GzipReader::read(std::span<std::byte> bytes) {
  const std::size_t done = inflate_some(bytes);
  check_user(done == bytes.size(), "inflates to too few bytes: ", bytes.size() - done, " are missing");
}

void GzipReader::expect_end() {
  std::byte extra;
  check_user(inflate_some({&extra, 1}) == 0, "inflates to more bytes than it should");
}

}  // namespace gcomp::data
