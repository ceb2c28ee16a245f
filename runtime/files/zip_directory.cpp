#include "runtime/files/zip_directory.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "ir/base/error.h"

namespace gcomp::runtime {
namespace {

constexpr std::size_t kEndRecord = 22, kLargestComment = 65535, kEntryRecord = 46, kLocalRecord = 30, kLocator = 20,
                      kEnd64Record = 56;
constexpr std::uint64_t kLargestDirectory = std::uint64_t{1} << 28;
constexpr std::uint64_t kIn64 = 0xffffffff;  // the number stands in the ZIP64 part

/// A little-endian number of `width` bytes. Throws where there are fewer.
std::uint64_t number_at(std::span<const std::byte> bytes, std::size_t at, std::size_t width) {
  check_user(at + width <= bytes.size(), "damaged: the archive's directory ends too early");
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data() + at, width);
  return number;
}

struct DirectoryPlace {
  std::uint64_t offset = 0, bytes = 0;
};

DirectoryPlace find_directory64(std::uint64_t locator, const ReadBytesAt& read) {
  std::vector<std::byte> bytes(kLocator);
  read(locator, bytes);
  check_user(number_at(bytes, 0, 4) == 0x07064b50, "damaged: the archive has no ZIP64 locator");
  const std::uint64_t end = number_at(bytes, 8, 8);
  bytes.resize(kEnd64Record);
  check_user(end <= locator && locator - end >= kEnd64Record, "damaged: the archive's ZIP64 end lies outside of it");
  read(end, bytes);
  check_user(number_at(bytes, 0, 4) == 0x06064b50, "damaged: the archive has no ZIP64 end");
  return {.offset = number_at(bytes, 48, 8), .bytes = number_at(bytes, 40, 8)};
}

DirectoryPlace find_directory(std::uint64_t size, const ReadBytesAt& read) {
  const auto searched = static_cast<std::size_t>(std::min<std::uint64_t>(size, kEndRecord + kLargestComment));
  std::vector<std::byte> tail(searched);
  read(size - searched, tail);
  const std::string_view text(reinterpret_cast<const char*>(tail.data()), tail.size());
  const std::size_t end = text.rfind(std::string_view("PK\5\6", 4));
  check_user(end != text.npos, "damaged: the archive has no end record");
  const std::span<const std::byte> record = std::span<const std::byte>(tail).subspan(end);
  const DirectoryPlace place{.offset = number_at(record, 16, 4), .bytes = number_at(record, 12, 4)};
  if (place.offset != kIn64 && place.bytes != kIn64) return place;
  const std::uint64_t at = size - searched + end;
  check_user(at >= kLocator, "damaged: the archive has no ZIP64 locator");
  return find_directory64(at - kLocator, read);
}

/// Replaces the numbers that stand in the ZIP64 part of the extra field; they are there in this order.
void read_zip64(std::span<const std::byte> extra, std::initializer_list<std::uint64_t*> numbers) {
  std::size_t at = 0;
  while (at + 4 <= extra.size() && number_at(extra, at, 2) != 1) at += 4 + number_at(extra, at + 2, 2);
  for (std::uint64_t* number : numbers) {
    if (*number != kIn64) continue;
    *number = number_at(extra, at + 4, 8);
    at += 8;
  }
}

}  // namespace

std::vector<ZipPlace> read_zip_directory(std::uint64_t size, const ReadBytesAt& read) {
  const DirectoryPlace place = find_directory(size, read);
  check_user(place.offset <= size && place.bytes <= size - place.offset && place.bytes <= kLargestDirectory,
             "damaged: a directory of ", place.bytes, " bytes at byte ", place.offset, " of ", size);
  std::vector<std::byte> directory(static_cast<std::size_t>(place.bytes));
  read(place.offset, directory);
  std::vector<ZipPlace> places;
  std::span<const std::byte> rest = directory;
  while (rest.size() >= kEntryRecord && number_at(rest, 0, 4) == 0x02014b50) {
    const std::uint64_t name = number_at(rest, 28, 2), extra = number_at(rest, 30, 2), comment = number_at(rest, 32, 2);
    check_user(kEntryRecord + name + extra + comment <= rest.size(), "damaged: the archive's directory ends too early");
    ZipPlace& entry = places.emplace_back();
    entry.name.assign(reinterpret_cast<const char*>(rest.data() + kEntryRecord), name);
    entry.stored = number_at(rest, 10, 2) == 0;
    entry.bytes = number_at(rest, 20, 4);
    entry.header = number_at(rest, 42, 4);
    std::uint64_t expanded = number_at(rest, 24, 4);
    read_zip64(rest.subspan(kEntryRecord + name, extra), {&expanded, &entry.bytes, &entry.header});
    rest = rest.subspan(kEntryRecord + name + extra + comment);
  }
  return places;
}

std::uint64_t begin_of(const ZipPlace& place, std::uint64_t size, const ReadBytesAt& read) {
  std::vector<std::byte> header(kLocalRecord);
  check_user(place.header <= size && size - place.header >= kLocalRecord, "damaged: entry '", place.name, "' begins at byte ",
             place.header, " of ", size);
  read(place.header, header);
  check_user(number_at(header, 0, 4) == 0x04034b50, "damaged: entry '", place.name, "' has no header");
  const std::uint64_t begin = place.header + kLocalRecord + number_at(header, 26, 2) + number_at(header, 28, 2);
  check_user(begin <= size && place.bytes <= size - begin, "damaged: entry '", place.name, "' ends beyond the file");
  return begin;
}

}  // namespace gcomp::runtime
