// NumPy's .npz: each array that is wanted lies in memory, as it was stored.
#include "runtime/files/npz.h"

#include "data/arrays/formats.h"
#include "data/arrays/memory_source.h"

namespace gcomp::data {
namespace {

bool recognises(const PathFacts& facts) { return begins_with(facts.head, "PK\x03\x04") || begins_with(facts.head, "PK\x05\x06"); }

/// The arrays that somebody wants, or all that are no scalars.
std::unique_ptr<Source> open_npz(const OpenRequest& request) {
  const runtime::NpzFile file(request.path);
  std::vector<NamedTensor> arrays;
  for (const std::string& name : file.names()) arrays.emplace_back(name, file.load(name));
  return std::make_unique<MemorySource>(request.path.string(), std::move(arrays));
}

}  // namespace

constinit const Format kNpzFormat{{"npz", "NumPy's archive of arrays, in memory"}, recognises, open_npz};

}  // namespace gcomp::data
