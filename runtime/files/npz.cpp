#include "runtime/files/npz.h"

#include <algorithm>
#include <cstring>

#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::runtime {
namespace {

constexpr std::string_view kNpySuffix = ".npy";

bool is_array(std::string_view entry) {
  return entry.size() > kNpySuffix.size() && entry.substr(entry.size() - kNpySuffix.size()) == kNpySuffix;
}

NpyHeader read_header(const ZipReader& archive, std::size_t index) {
  const ZipEntry& entry = archive.entries()[index];
  check_user(is_array(entry.name), "no array: its name does not end in .npy");
  ZipStream stream = archive.open(index);
  const NpyHeader header = read_npy_header([&](std::span<std::byte> bytes) { stream.read(bytes); });
  const auto wanted = static_cast<std::uint64_t>(header.type.bytes());
  check_user(entry.bytes >= header.bytes && entry.bytes - header.bytes == wanted, "it has ", entry.bytes, " bytes, wanted ",
             header.bytes, " of header and ", wanted, " for ", to_string(header.type));
  return header;
}

}  // namespace

NpzFile::NpzFile(const std::filesystem::path& path, const ZipLimits& limits) : path_(path.string()), archive_(path, limits) {
  for (std::size_t i = 0; i < archive_.entries().size(); ++i) {
    const std::string& entry = archive_.entries()[i].name;
    names_.push_back(is_array(entry) ? entry.substr(0, entry.size() - kNpySuffix.size()) : entry);
    Array& array = arrays_.emplace_back();
    try {
      array.header = read_header(archive_, i);
    } catch (const UserError& error) { array.error = error.what(); }
  }
}

bool NpzFile::contains(std::string_view name) const { return std::find(names_.begin(), names_.end(), name) != names_.end(); }

std::size_t NpzFile::find(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end())
    throw UserError(concat("'", path_, "' has no array '", name, "', it has ", listing(names_), did_you_mean(name, names_)));
  const auto index = static_cast<std::size_t>(found - names_.begin());
  check_user(arrays_[index].error.empty(), where(name), ": ", arrays_[index].error);
  return index;
}

const TensorType& NpzFile::type(std::string_view name) const { return arrays_[find(name)].header.type; }

std::string NpzFile::where(std::string_view name) const { return concat("'", path_, "', array '", name, "'"); }

/// An entry's stream, past the header.
ZipStream NpzFile::open_elements(std::size_t index) const {
  ZipStream stream = archive_.open(index);
  std::vector<std::byte> header(arrays_[index].header.bytes);
  stream.read(header);
  return stream;
}

Tensor NpzFile::load(std::string_view name) const {
  const std::size_t index = find(name);
  try {
    ZipStream stream = open_elements(index);
    Tensor tensor = read_npy_elements(arrays_[index].header, [&](std::span<std::byte> bytes) { stream.read(bytes); });
    stream.expect_end();
    return tensor;
  } catch (const UserError& error) { throw UserError(concat(where(name), ": ", error.what())); }
}

NpzRows NpzFile::open_rows(std::string_view name) const {
  const std::size_t index = find(name);
  NpzRows rows;
  rows.header_ = arrays_[index].header;
  rows.where_ = where(name);
  check_user(!rows.type().shape.empty(), rows.where_, ": it is a scalar, wanted one row for each sample");
  if (is_row_major(rows.header_)) rows.stream_ = open_elements(index);
  else rows.whole_ = load(name);
  return rows;
}

const Tensor& NpzRows::next(std::int64_t count) {
  TensorType type = header_.type;
  type.shape[0] = std::clamp<std::int64_t>(count, 0, rows() - position_);
  if (part_.type() != type) part_ = Tensor(type);
  const std::size_t bytes = part_.bytes().size();
  try {
    if (is_row_major(header_)) {
      read_npy_rows(
          header_, [&](std::span<std::byte> part) { stream_.read(part); }, part_.bytes());
    } else if (bytes > 0) {
      const std::size_t row = bytes / static_cast<std::size_t>(type.shape[0]);
      std::memcpy(part_.data(), whole_.data() + static_cast<std::size_t>(position_) * row, bytes);
    }
    position_ += type.shape[0];
    if (position_ == rows() && is_row_major(header_)) stream_.expect_end();
  } catch (const UserError& error) { throw UserError(concat(where_, ": ", error.what())); }
  return part_;
}

void write_npz(const std::filesystem::path& path, std::span<const NamedTensor> arrays, Compression compression) {
  std::vector<std::string> headers;  // alive until commit()
  headers.reserve(arrays.size());
  ZipWriter archive(path);
  for (const auto& [name, tensor] : arrays) {
    headers.push_back(npy_header(tensor.type()));
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(headers.back())), tensor.bytes()};
    archive.add(name + std::string(kNpySuffix), parts, compression);
  }
  archive.commit();
}

}  // namespace gcomp::runtime
