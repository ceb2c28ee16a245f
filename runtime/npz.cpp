#include "runtime/npz.h"

#include <algorithm>

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
  check_user(arrays_[index].error.empty(), "'", path_, "', array '", name, "': ", arrays_[index].error);
  return index;
}

const TensorType& NpzFile::type(std::string_view name) const { return arrays_[find(name)].header.type; }

Tensor NpzFile::load(std::string_view name) const {
  const std::size_t index = find(name);
  try {
    ZipStream stream = archive_.open(index);
    const ReadBytes read = [&](std::span<std::byte> bytes) { stream.read(bytes); };
    std::vector<std::byte> header(arrays_[index].header.bytes);
    read(header);
    Tensor tensor = read_npy_elements(arrays_[index].header, read);
    stream.expect_end();
    return tensor;
  } catch (const UserError& error) { throw UserError(concat("'", path_, "', array '", name, "': ", error.what())); }
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
