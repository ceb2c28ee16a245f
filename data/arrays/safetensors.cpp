// safetensors: tensors of one file as arrays, whose rows stay on disk.
#include "runtime/files/safetensors.h"

#include <bit>
#include <cstring>

#include "data/arrays/formats.h"
#include "data/arrays/stored_source.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

/// A header's length that the file can have, and an object of JSON.
bool recognises_safetensors(const PathFacts& facts) {
  std::uint64_t length = 0;
  if (facts.folder || facts.head.size() < sizeof(length) + 2) return false;
  std::memcpy(&length, facts.head.data(), sizeof(length));
  return length <= facts.size - sizeof(length) && begins_with(facts.head.subspan(sizeof(length)), "{\"");
}

std::unique_ptr<Source> open_safetensors(const OpenRequest& request) {
  const auto file = std::make_shared<const RandomAccessFile>(request.path);
  runtime::SafetensorsHeader header;
  try {
    header = runtime::read_safetensors_header(file->size(), file->reader());
  } catch (const UserError& error) { throw UserError(file->naming(error.what())); }
  std::vector<FoundArray> found;
  for (const auto& tensor : header.tensors) found.push_back({.name = tensor.name, .type = tensor.type});
  ArrayChoice choice = choose_arrays(file->path(), found, request.wanted);
  std::vector<StoredArray> arrays;
  for (const std::size_t i : choice.chosen) {
    const auto& [name, type, offset] = header.tensors[i];
    StoredArray array{.name = name, .row = {type.dtype, Shape(type.shape.begin() + 1, type.shape.end())}};
    array.runs = {{file, offset, static_cast<std::uint64_t>(array.row.bytes()), type.shape[0]}};
    array.booleans = StoredBool::zero_or_one;
    arrays.push_back(std::move(array));
  }
  return std::make_unique<StoredSource>(file->path(), std::move(arrays), std::move(choice.notes));
}

}  // namespace

constinit const Format kSafetensorsFormat{
    {"safetensors", "tensors of one file, larger than memory"}, recognises_safetensors, open_safetensors};

}  // namespace gcomp::data
