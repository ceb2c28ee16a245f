#include "runtime/dataset.h"

#include <algorithm>
#include <cstdint>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/convert.h"

namespace gcomp::runtime {
namespace {

std::vector<std::string> names_of(const std::vector<NamedTensor>& arrays) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : arrays) names.push_back(name);
  return names;
}

}  // namespace

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
    check_user(!tensor.shape().empty(), where(name), ": it is a scalar, wanted one row for each sample");
  const auto& [first, first_tensor] = arrays_[0];
  rows_ = first_tensor.shape()[0];
  for (const auto& [name, tensor] : arrays_)
    check_user(tensor.shape()[0] == rows_, "'", source_, "': array '", first, "' has ", rows_, " rows, but array '", name, "' has ",
               tensor.shape()[0]);
  check_user(rows_ > 0, "'", source_, "' has no rows");
  for (const auto& [name, tensor] : arrays_) gathered_.push_back(tensor.dtype());
}

std::string Dataset::where(std::string_view name) const { return concat("'", source_, "', array '", name, "'"); }

std::size_t Dataset::find(std::string_view name) const {
  const auto found = std::find_if(arrays_.begin(), arrays_.end(), [&](const NamedTensor& array) { return array.first == name; });
  if (found != arrays_.end()) return static_cast<std::size_t>(found - arrays_.begin());
  const std::vector<std::string> names = names_of(arrays_);
  throw UserError(concat("'", source_, "' has no array '", name, "', it has ", listing(names), did_you_mean(name, names)));
}

void Dataset::require(std::string_view name, const TensorType& batch) {
  const std::size_t index = find(name);
  const Tensor& tensor = arrays_[index].second;
  check_internal(batch.rank() >= 1, "dataset: input '", name, "' is ", to_string(batch), ", which has no batch dimension");
  const Shape row(tensor.shape().begin() + 1, tensor.shape().end()), wanted(batch.shape.begin() + 1, batch.shape.end());
  check_user(row == wanted, where(name), ": each row is ", to_string(TensorType{tensor.dtype(), row}), ", wanted ",
             to_string(TensorType{batch.dtype, wanted}));
  check_convertible(tensor, batch.dtype, where(name));
  gathered_[index] = batch.dtype;
}

void Dataset::gather(std::size_t array, std::span<const std::int64_t> rows, std::span<std::byte> destination) const {
  const Tensor& tensor = arrays_[array].second;
  const auto elements = static_cast<std::size_t>(tensor.elements() / rows_);
  const std::size_t from = elements * size_of(tensor.dtype()), to = elements * size_of(gathered_[array]);
  check_internal(destination.size() == to * rows.size(), "dataset: array '", arrays_[array].first, "': ", rows.size(), " rows of ",
                 to, " bytes into ", destination.size());
  for (const std::int64_t row : rows) {
    check_internal(row >= 0 && row < rows_, "dataset: row ", row, " of ", rows_);
    convert_elements(tensor.dtype(), tensor.bytes().subspan(static_cast<std::size_t>(row) * from, from), gathered_[array],
                     destination.first(to));
    destination = destination.subspan(to);
  }
}

}  // namespace gcomp::runtime
