#include "gcomp/arrays.h"

#include "runtime/files/npy.h"
#include "runtime/files/npz.h"

namespace gcomp {
namespace {

std::vector<NamedTensor> load(const runtime::NpzFile& file, std::span<const std::string> names) {
  std::vector<NamedTensor> arrays;
  for (const std::string& name : names) arrays.emplace_back(name, file.load(name));
  return arrays;
}

}  // namespace

std::vector<NamedTensor> read_npz(const Path& path) {
  const runtime::NpzFile file(path.string());
  return load(file, file.names());
}
std::vector<NamedTensor> read_npz(const Path& path, std::span<const std::string> names) {
  return load(runtime::NpzFile(path.string()), names);
}
void write_npz(const Path& path, std::span<const NamedTensor> arrays) { runtime::write_npz(path.string(), arrays); }

Tensor read_npy(const Path& path) { return runtime::read_npy(path.string()); }
void write_npy(const Path& path, const Tensor& array) { runtime::write_npy(path.string(), array); }

Batch batch_of(std::span<const NamedTensor> arrays) { return {arrays.begin(), arrays.end()}; }

}  // namespace gcomp
