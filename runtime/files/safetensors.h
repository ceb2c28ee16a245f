// safetensors (https://github.com/huggingface/safetensors#format): a JSON header, then the elements of all tensors, dense.
// Read strictly: no key twice, offsets without gaps or overlaps from 0 to the end of the file, exactly the bytes of each shape.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/tensor.h"
#include "runtime/files/read_bytes.h"

namespace gcomp::runtime {

struct Safetensors {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;

  bool operator==(const Safetensors&) const = default;
};

/// A file as the parts that follow each other in it: a header, and views of the tensors' own bytes.
struct SafetensorsParts {
  std::vector<std::byte> header;
  std::vector<std::span<const std::byte>> tensors;
};
/// Equal contents give equal bytes; larger element types come first, so that all are aligned. Throws UserError where a name is
/// not UTF-8 or is "__metadata__".
SafetensorsParts safetensors_parts(const std::map<std::string, Tensor>& tensors,
                                   const std::map<std::string, std::string>& metadata = {});
/// The same as one block of bytes.
std::vector<std::byte> serialize_safetensors(const Safetensors& contents);
/// `source` names the bytes in messages. Tensors share these where they lie aligned. Throws UserError.
Safetensors parse_safetensors(std::vector<std::byte> bytes, std::string_view source);

/// The header alone: where each tensor lies, for a reader that takes parts of a file.
struct SafetensorsHeader {
  struct Entry {
    std::string name;
    TensorType type;
    std::uint64_t offset = 0;  ///< from the file's first byte on
  };
  std::vector<Entry> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};
/// Of a file of `size` bytes, from its first on; checks all that is strict but that a BOOL is 0 or 1. Throws UserError without the
/// file's name.
SafetensorsHeader read_safetensors_header(std::uint64_t size, const ReadBytes& read);

/// A file whose tensors are written one after another, from wherever they lie: its first bytes, and the order of the rest.
struct SafetensorsLayout {
  std::vector<std::byte> header;
  std::vector<std::size_t> order;  ///< of the types that it was made of
};
/// Throws as serialize_safetensors() does.
SafetensorsLayout safetensors_layout(std::span<const NamedType> tensors, const std::map<std::string, std::string>& metadata = {});

/// Writes atomically.
void write_safetensors(const std::filesystem::path& path, const Safetensors& contents);
Safetensors read_safetensors(const std::filesystem::path& path);

}  // namespace gcomp::runtime
