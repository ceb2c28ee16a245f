#include "runtime/row_reader.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/convert.h"

namespace gcomp::runtime {
namespace {

/// The numbers of bytes, each divided by 255 and rounded once.
void divide_pixels(std::span<const std::byte> bytes, DType to, std::byte* destination) {
  if (to == DType::f32) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const float value = static_cast<float>(bytes[i]) / 255.0f;
      std::memcpy(destination + i * sizeof value, &value, sizeof value);
    }
    return;
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double value = std::to_integer<int>(bytes[i]);
    store_from_double(to, destination, static_cast<std::int64_t>(i),
                      to == DType::f64 ? value / 255.0 : static_cast<float>(value) / 255.0f);
  }
}

TensorType with_rows(const TensorType& row, std::int64_t rows) {
  TensorType type{row.dtype, {rows}};
  type.shape.insert(type.shape.end(), row.shape.begin(), row.shape.end());
  return type;
}

/// One for all readers of a dataset that is read by one thread at a time; null for others.
std::shared_ptr<std::mutex> turns_of(const gcomp::Dataset& data) {
  if (data.thread_safe()) return nullptr;
  static std::mutex mutex;
  static std::unordered_map<const gcomp::Dataset*, std::weak_ptr<std::mutex>> all;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& one) { return one.second.expired(); });
  std::shared_ptr<std::mutex> turns = all[&data].lock();
  if (!turns) all[&data] = turns = std::make_shared<std::mutex>();
  return turns;
}

}  // namespace

std::string where_of(std::string_view source, std::string_view array) { return concat("'", source, "', array '", array, "'"); }

std::size_t find_array(const gcomp::Dataset& data, std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [array, type] : data.arrays()) {
    if (array == name) return names.size();
    names.push_back(array);
  }
  throw UserError(concat("'", data.source(), "' has no array '", name, "', it has ", listing(names), did_you_mean(name, names)));
}

RowReader::RowReader(const gcomp::Dataset& data) : data_(data), turns_(turns_of(data)), arrays_(data.arrays()) {
  check_user(data.rows() > 0, "'", data.source(), "' has no rows");
  for (const auto& [name, type] : arrays_) {
    gathered_.push_back(type.dtype);
    places_.push_back(where_of(data_.source(), name));
  }
  pixels_.resize(arrays_.size());
  rows_.resize(arrays_.size());
}

void RowReader::require(std::string_view name, const TensorType& batch, ByteForm bytes) {
  const std::size_t index = find(name);
  const TensorType& row = arrays_[index].second;
  const std::string& where = places_[index];
  check_internal(batch.rank() >= 1, "row reader: input '", name, "' is ", to_string(batch), ", which has no batch dimension");
  const Shape wanted(batch.shape.begin() + 1, batch.shape.end());
  check_user(row.shape == wanted, where, ": each row is ", to_string(row), ", wanted ", to_string(TensorType{batch.dtype, wanted}));
  const Tensor* whole = data_.whole(index);
  pixels_[index] = bytes == ByteForm::pixels && row.dtype == DType::u8 && is_float(batch.dtype);
  if (!pixels_[index] && whole) check_convertible(*whole, batch.dtype, where);
  if (!pixels_[index] && !whole) check_convertible(Tensor(with_rows(row, 0)), batch.dtype, where);
  gathered_[index] = batch.dtype;
  if (!whole && batch.dtype != row.dtype) rows_[index] = Tensor(with_rows(row, 1));
}

void RowReader::gather(std::size_t array, std::span<const std::int64_t> rows, std::span<std::byte> destination) {
  gather_rows(array, rows, nullptr, destination);
}

void RowReader::gather(std::size_t array, std::span<const std::int64_t> rows, const EpochKey& key,
                       std::span<std::byte> destination) {
  gather_rows(array, rows, &key, destination);
}

void RowReader::gather_rows(std::size_t array, std::span<const std::int64_t> rows, const EpochKey* key,
                            std::span<std::byte> destination) {
  const auto& [name, type] = arrays_[array];
  const auto elements = static_cast<std::size_t>(type.elements());
  const std::size_t from = elements * size_of(type.dtype), to = elements * size_of(gathered_[array]);
  check_internal(destination.size() == to * rows.size(), "row reader: array '", name, "': ", rows.size(), " rows of ", to,
                 " bytes into ", destination.size());
  const Tensor* whole = data_.whole(array);
  for (const std::int64_t row : rows) {
    check_internal(row >= 0 && row < data_.rows(), "row reader: row ", row, " of ", data_.rows());
    if (whole) {
      convert_row(array, whole->bytes().subspan(static_cast<std::size_t>(row) * from, from), destination.first(to));
    } else if (gathered_[array] == type.dtype) {
      fetch(key, array, row, destination.first(to));
    } else {
      Tensor& fetched = rows_[array];
      fetch(key, array, row, fetched.bytes());
      if (!pixels_[array]) check_convertible(fetched, gathered_[array], places_[array], row);
      convert_row(array, fetched.bytes(), destination.first(to));
    }
    destination = destination.subspan(to);
  }
}

void RowReader::fetch(const EpochKey* key, std::size_t array, std::int64_t row, std::span<std::byte> bytes) const {
  const auto turn = turns_ ? std::unique_lock(*turns_) : std::unique_lock<std::mutex>();
  if (key) data_.fetch_in(*key, array, row, bytes);
  else data_.fetch(array, row, bytes);
}

void RowReader::convert_row(std::size_t array, std::span<const std::byte> row, std::span<std::byte> destination) const {
  if (pixels_[array]) divide_pixels(row, gathered_[array], destination.data());
  else convert_elements(arrays_[array].second.dtype, row, gathered_[array], destination);
}

Tensor RowReader::row(std::size_t array, std::int64_t row, const EpochKey& key) const {
  Tensor fetched(arrays_[array].second);
  fetch(&key, array, row, fetched.bytes());
  return fetched;
}

}  // namespace gcomp::runtime
