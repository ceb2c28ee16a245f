#include "runtime/dataset.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ir/base/error.h"
#include "runtime/row_reader.h"

namespace gcomp::runtime {
Dataset Dataset::open(const std::filesystem::path& path, std::span<const std::string> names) {
  const NpzFile file(path);
  std::vector<NamedTensor> arrays;
  for (const std::string& name : names) arrays.emplace_back(name, file.load(name));
  Dataset dataset(path.string(), std::move(arrays));
  for (const std::string& name : file.names())
    if (std::find(names.begin(), names.end(), name) == names.end()) dataset.unused_.push_back(name);
  return dataset;
}

Dataset::Dataset(std::string source, std::vector<NamedTensor> arrays) : source_(std::move(source)), arrays_(std::move(arrays)) {
  check_user(!arrays_.empty(), "'", source_, "': no arrays to train on");
  for (const auto& [name, tensor] : arrays_)
    check_user(!tensor.shape().empty(), where_of(source_, name), ": it is a scalar, wanted one row for each sample");
  const auto& [first, first_tensor] = arrays_[0];
  rows_ = first_tensor.shape()[0];
  for (const auto& [name, tensor] : arrays_)
    check_user(tensor.shape()[0] == rows_, "'", source_, "': array '", first, "' has ", rows_, " rows, but array '", name, "' has ",
               tensor.shape()[0]);
  check_user(rows_ > 0, "'", source_, "' has no rows");
}

std::vector<NamedType> Dataset::arrays() const {
  std::vector<NamedType> types;
  for (const auto& [name, tensor] : arrays_)
    types.emplace_back(name, TensorType{tensor.dtype(), Shape(tensor.shape().begin() + 1, tensor.shape().end())});
  return types;
}

const Tensor& Dataset::array(std::string_view name) const { return arrays_[find_array(*this, name)].second; }

void Dataset::fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const {
  const std::span<const std::byte> all = arrays_[array].second.bytes();
  std::memcpy(bytes.data(), all.data() + static_cast<std::size_t>(row) * bytes.size(), bytes.size());
}

}  // namespace gcomp::runtime

namespace gcomp {

Owned<Dataset> dataset_of(std::vector<NamedTensor> arrays, std::string source) {
  return Owned<Dataset>(new runtime::Dataset(std::move(source), std::move(arrays)));
}

}  // namespace gcomp
