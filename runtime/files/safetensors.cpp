#include "runtime/files/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>
#include <utility>

#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/strict_json.h"

namespace gcomp::runtime {
namespace {

constexpr std::uint64_t kLargestSafetensorsHeader = 100'000'000;
constexpr std::uintmax_t kLargestSafetensorsFile = std::uintmax_t{1} << 40;
constexpr std::string_view kMetadata = "__metadata__";

struct Spelling {
  std::string_view name;
  DType dtype;
};
constexpr Spelling kSpellings[] = {{"F64", DType::f64},     {"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16},
                                   {"I8", DType::i8},       {"I16", DType::i16}, {"I32", DType::i32}, {"I64", DType::i64},
                                   {"U8", DType::u8},       {"U16", DType::u16}, {"U32", DType::u32}, {"U64", DType::u64},
                                   {"BOOL", DType::boolean}};

std::string_view spelling_of(DType dtype) {
  const auto* found =
      std::find_if(std::begin(kSpellings), std::end(kSpellings), [&](const Spelling& s) { return s.dtype == dtype; });
  return found->name;
}

/// One entry of the header, not yet compared with its neighbours.
struct TensorEntry {
  std::string name;
  TensorType type;
  std::uint64_t begin = 0, end = 0;
};

std::uint64_t read_size(const nlohmann::json& value, std::string_view what) {
  check_user(value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t{1} << 60, what,
             " is no number of at most 2^60");
  return value.get<std::uint64_t>();
}

const nlohmann::json& entry_member(const nlohmann::json& object, const char* key) {
  check_user(object.is_object() && object.contains(key), "its entry lacks '", key, "'");
  return object.at(key);
}

TensorEntry read_entry(const std::string& name, const nlohmann::json& object) {
  TensorEntry entry{.name = name, .type = {}, .begin = 0, .end = 0};
  const nlohmann::json& dtype = entry_member(object, "dtype");
  const nlohmann::json& shape = entry_member(object, "shape");
  const nlohmann::json& offsets = entry_member(object, "data_offsets");
  check_user(object.size() == 3, "its entry has keys besides dtype, shape and data_offsets");
  const std::string text = dtype.is_string() ? dtype.get<std::string>() : "";
  const auto* spelling =
      std::find_if(std::begin(kSpellings), std::end(kSpellings), [&](const Spelling& s) { return s.name == text; });
  check_user(spelling != std::end(kSpellings), "dtype '", text, "' is not supported");
  entry.type.dtype = spelling->dtype;
  check_user(shape.is_array() && shape.size() <= kLargestRank, "its shape is no list of at most ", kLargestRank, " dimensions");
  for (const nlohmann::json& dim : shape) entry.type.shape.push_back(static_cast<std::int64_t>(read_size(dim, "a dimension")));
  check_user(offsets.is_array() && offsets.size() == 2, "its data_offsets are no two numbers");
  entry.begin = read_size(offsets[0], "an offset");
  entry.end = read_size(offsets[1], "an offset");
  check_user(entry.begin <= entry.end && entry.end - entry.begin == static_cast<std::uint64_t>(entry.type.bytes()), "offsets ",
             entry.begin, " to ", entry.end, " for ", to_string(entry.type));
  return entry;
}

std::map<std::string, std::string> read_metadata(const nlohmann::json& object) {
  std::map<std::string, std::string> metadata;
  check_user(object.is_object(), "its __metadata__ is no object");
  for (const auto& [key, value] : object.items()) {
    check_user(value.is_string(), "its __metadata__ has a value that is no string, of key '", key, "'");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

/// The entries in the order of their bytes, which must fill `size` exactly.
std::vector<TensorEntry> read_entries(const nlohmann::json& header, std::uint64_t size) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, object] : header.items()) {
    if (name == kMetadata) continue;
    try {
      entries.push_back(read_entry(name, object));
    } catch (const UserError& error) { throw UserError(concat("tensor '", name, "': ", error.what())); }
  }
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t end = 0;
  for (const TensorEntry& entry : entries) {
    check_user(entry.begin == end, "tensor '", entry.name, "' begins at byte ", entry.begin, ", but the one before ends at ", end);
    end = entry.end;
  }
  check_user(end == size, "the tensors end at byte ", end, " of ", size);
  return entries;
}

Safetensors parse(std::vector<std::byte> held) {
  const auto bytes = std::make_shared<const std::vector<std::byte>>(std::move(held));
  std::span<const std::byte> rest = *bytes;
  SafetensorsHeader header = read_safetensors_header(bytes->size(), [&](std::span<std::byte> destination) {
    std::copy_n(rest.begin(), destination.size(), destination.begin());  // it asks for no more than there is
    rest = rest.subspan(destination.size());
  });
  Safetensors contents{.tensors = {}, .metadata = std::move(header.metadata)};
  for (const SafetensorsHeader::Entry& entry : header.tensors) {
    const std::span<const std::byte> lies =
        std::span(*bytes).subspan(entry.offset, static_cast<std::size_t>(entry.type.bytes()));  // compared with the file's size
    if (entry.type.dtype == DType::boolean)
      for (const std::byte value : lies) check_user(value <= std::byte{1}, "tensor '", entry.name, "': a BOOL is neither 0 nor 1");
    const bool aligned = reinterpret_cast<std::uintptr_t>(lies.data()) % size_of(entry.type.dtype) == 0;
    contents.tensors.emplace(
        entry.name, aligned && !lies.empty() ? Tensor::sharing(entry.type, {lies, bytes}) : Tensor::of_bytes(entry.type, lies));
  }
  return contents;
}

}  // namespace

SafetensorsHeader read_safetensors_header(std::uint64_t size, const ReadBytes& read) {
  std::uint64_t length = 0;
  check_user(size >= sizeof(length), "it has ", size, " bytes, too few for a header");
  read(std::as_writable_bytes(std::span(&length, 1)));
  check_user(length <= kLargestSafetensorsHeader && length <= size - sizeof(length), "a header of ", length, " bytes in ",
             size - sizeof(length), " bytes, the limit is ", kLargestSafetensorsHeader);
  std::string text(length, '\0');
  read(std::as_writable_bytes(std::span(text)));
  check_user(!text.empty() && text.front() == '{', "its header does not start with '{'");
  const nlohmann::json json = parse_strict_json(text, 3);
  SafetensorsHeader header;
  if (json.contains(kMetadata)) header.metadata = read_metadata(json.at(std::string(kMetadata)));
  const std::uint64_t first = sizeof(length) + length;
  for (TensorEntry& entry : read_entries(json, size - first))
    header.tensors.push_back({std::move(entry.name), std::move(entry.type), first + entry.begin});
  return header;
}

SafetensorsLayout safetensors_layout(std::span<const NamedType> tensors, const std::map<std::string, std::string>& metadata) {
  SafetensorsLayout layout;
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), std::size_t{0});
  std::ranges::stable_sort(layout.order, [&](std::size_t a, std::size_t b) {
    const std::size_t first = size_of(tensors[a].second.dtype), second = size_of(tensors[b].second.dtype);
    return first != second ? first > second : tensors[a].first < tensors[b].first;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  std::int64_t offset = 0;
  for (const std::size_t i : layout.order) {
    const auto& [name, type] = tensors[i];
    check_user(name != kMetadata, "a tensor cannot be called '", name, "' in safetensors");
    const std::int64_t end = offset + type.bytes();
    header.push_back({name, {{"dtype", spelling_of(type.dtype)}, {"shape", type.shape}, {"data_offsets", {offset, end}}}});
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) { throw UserError("a tensor's name is not UTF-8, which safetensors needs"); }
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  layout.header.resize(sizeof(length) + length);
  std::memcpy(layout.header.data(), &length, sizeof(length));
  std::memcpy(layout.header.data() + sizeof(length), text.data(), length);
  return layout;
}

SafetensorsParts safetensors_parts(const std::map<std::string, Tensor>& tensors,
                                   const std::map<std::string, std::string>& metadata) {
  std::vector<NamedType> types;
  std::vector<std::span<const std::byte>> bytes;
  for (const auto& [name, tensor] : tensors) {
    types.emplace_back(name, tensor.type());
    bytes.push_back(tensor.bytes());
  }
  SafetensorsLayout layout = safetensors_layout(types, metadata);
  SafetensorsParts parts{.header = std::move(layout.header), .tensors = {}};
  for (const std::size_t i : layout.order) parts.tensors.push_back(bytes[i]);
  return parts;
}

std::vector<std::byte> serialize_safetensors(const Safetensors& contents) {
  SafetensorsParts parts = safetensors_parts(contents.tensors, contents.metadata);
  std::vector<std::byte> bytes = std::move(parts.header);
  for (const std::span<const std::byte> part : parts.tensors) bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

Safetensors parse_safetensors(std::vector<std::byte> bytes, std::string_view source) {
  try {
    return parse(std::move(bytes));
  } catch (const UserError& error) { throw UserError(concat("'", source, "': ", error.what())); }
}

void write_safetensors(const std::filesystem::path& path, const Safetensors& contents) {
  const SafetensorsParts parts = safetensors_parts(contents.tensors, contents.metadata);
  AtomicFile file(path);
  file.write(parts.header);
  for (const std::span<const std::byte> part : parts.tensors) file.write(part);
  file.commit();
}

Safetensors read_safetensors(const std::filesystem::path& path) {
  return parse_safetensors(read_file(path, kLargestSafetensorsFile), path.string());
}

}  // namespace gcomp::runtime
