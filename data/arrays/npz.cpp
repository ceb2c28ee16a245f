// NumPy's .npz: each array that is wanted lies in memory, as it was stored.
#include "runtime/files/npz.h"

#include "data/arrays/formats.h"
#include "data/arrays/stored_source.h"
#include "ir/base/error.h"
#include "runtime/row_reader.h"

namespace gcomp::data {
namespace {

bool recognises_npz(const PathFacts& facts) {
  return begins_with(facts.head, "PK\x03\x04") || begins_with(facts.head, "PK\x05\x06");
}

FoundArray found_in(const runtime::NpzFile& file, const std::string& name) {
  try {
    return {.name = name, .type = file.type(name)};
  } catch (const UserError& error) {
    const std::string where = runtime::where_of(file.path(), name) + ": ", text = error.what();
    return {.name = name, .problem = text.starts_with(where) ? text.substr(where.size()) : text};
  }
}

std::unique_ptr<Source> open_npz(const OpenRequest& request) {
  const runtime::NpzFile file(request.path);
  std::vector<FoundArray> found;
  for (const std::string& name : file.names()) found.push_back(found_in(file, name));
  ArrayChoice choice = choose_arrays(file.path(), found, request.wanted);
  std::vector<StoredArray> arrays;
  for (const std::size_t i : choice.chosen) {
    const Shape& shape = found[i].type.shape;
    arrays.push_back({.name = found[i].name,
                      .row = {found[i].type.dtype, Shape(shape.begin() + 1, shape.end())},
                      .memory = file.load(found[i].name)});
  }
  return std::make_unique<StoredSource>(file.path(), std::move(arrays), std::move(choice.notes));
}

}  // namespace

constinit const Format kNpzFormat{{"npz", "NumPy's archive of arrays, in memory"}, recognises_npz, open_npz};

}  // namespace gcomp::data
