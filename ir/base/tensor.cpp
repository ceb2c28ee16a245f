#include "ir/base/tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "gcomp/tensor_view.h"
#include "ir/base/error.h"

namespace gcomp {
namespace {

std::int64_t load_as_integer(DType dtype, const std::byte* data, std::int64_t index) {
  if (size_of(dtype) == 8 && is_integer(dtype)) {
    std::int64_t value;
    std::memcpy(&value, data + index * 8, 8);
    return value;
  }
  std::int64_t value = 0;
  std::byte buffer[8];
  store_from_double(DType::i64, buffer, 0, load_as_double(dtype, data, index));
  std::memcpy(&value, buffer, 8);
  return value;
}

}  // namespace

std::int64_t TensorType::elements() const { return element_count(shape); }
std::int64_t TensorType::bytes() const { return elements() * static_cast<std::int64_t>(size_of(dtype)); }

std::string to_string(const TensorType& type) {
  std::string text = std::string(name_of(type.dtype)) + "[";
  for (std::size_t i = 0; i < type.shape.size(); ++i) text += (i ? "," : "") + std::to_string(type.shape[i]);
  return text + "]";
}

Tensor::Tensor(TensorType type) : type_(std::move(type)), own_(static_cast<std::size_t>(type_.bytes())) {}

Tensor Tensor::of(DType dtype, Shape shape, std::span<const double> values) {
  Tensor tensor(dtype, std::move(shape));
  const std::int64_t count = tensor.elements();
  check_user(values.size() == 1 || static_cast<std::int64_t>(values.size()) == count, "tensor of ", count, " elements made from ",
             values.size(), " values");
  for (std::int64_t i = 0; i < count; ++i) tensor.set(i, values[values.size() == 1 ? 0 : static_cast<std::size_t>(i)]);
  return tensor;
}

Tensor Tensor::of(DType dtype, Shape shape, std::initializer_list<double> values) {
  return of(dtype, std::move(shape), std::span<const double>(values.begin(), values.size()));
}

Tensor Tensor::of_bytes(TensorType type, std::span<const std::byte> bytes) {
  check_user(static_cast<std::int64_t>(bytes.size()) == type.bytes(), to_string(type), " made from ", bytes.size(), " bytes");
  Tensor tensor;
  tensor.type_ = std::move(type);
  tensor.own_.assign(bytes.begin(), bytes.end());
  return tensor;
}

Tensor Tensor::sharing(TensorType type, SharedBytes bytes) {
  check_user(static_cast<std::int64_t>(bytes.bytes().size()) == type.bytes(), to_string(type), " made from ", bytes.bytes().size(),
             " bytes");
  Tensor tensor;
  tensor.type_ = std::move(type);
  tensor.shared_ = std::move(bytes);
  return tensor;
}

void Tensor::own() {
  own_.assign(shared_.bytes().begin(), shared_.bytes().end());
  shared_ = {};
}

bool Tensor::operator==(const Tensor& other) const { return type_ == other.type_ && std::ranges::equal(bytes(), other.bytes()); }

Tensor Tensor::of_integers(std::span<const std::int64_t> values) {
  Tensor tensor(DType::i64, {static_cast<std::int64_t>(values.size())});
  if (!values.empty()) std::memcpy(tensor.data(), values.data(), values.size_bytes());
  return tensor;
}

double Tensor::at(std::int64_t element) const { return load_as_double(type_.dtype, data(), element); }
void Tensor::set(std::int64_t element, double value) { store_from_double(type_.dtype, data(), element, value); }

std::vector<std::int64_t> Tensor::to_integers() const {
  std::vector<std::int64_t> values(static_cast<std::size_t>(elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = load_as_integer(dtype(), data(), static_cast<std::int64_t>(i));
  return values;
}

std::vector<double> Tensor::to_doubles() const {
  std::vector<double> values(static_cast<std::size_t>(elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = at(static_cast<std::int64_t>(i));
  return values;
}

Tensor Tensor::cast(DType to) const {
  if (to == dtype()) return *this;
  Tensor result(to, shape());
  const std::int64_t count = elements();
  if (is_float(dtype()) && is_float(to)) {
    convert_floats(dtype(), data(), to, result.data(), count);
    return result;
  }
  const bool integers = !is_float(dtype()) && is_integer(to);
  for (std::int64_t i = 0; i < count; ++i) {
    if (!integers) {
      result.set(i, at(i));
      continue;
    }
    const std::int64_t value = load_as_integer(dtype(), data(), i);  // integer to integer wraps: the low bytes
    std::memcpy(result.data() + i * static_cast<std::int64_t>(size_of(to)), &value, size_of(to));
  }
  return result;
}

Tensor Tensor::reshaped(Shape shape) && {
  check_user(element_count(shape) == elements(), "reshape of ", to_string(type_), " to [", to_string(shape), "]");
  type_.shape = std::move(shape);
  return std::move(*this);
}

SharedBytes::Held* SharedBytes::share(Held* held) noexcept {
  if (held) std::atomic_ref(held->users).fetch_add(1, std::memory_order_relaxed);
  return held;
}

void SharedBytes::drop(Held* held) noexcept {
  if (held && std::atomic_ref(held->users).fetch_sub(1, std::memory_order_acq_rel) == 1) delete held;
}

TensorView::TensorView(TensorType type, std::span<const std::byte> bytes) : type_(std::move(type)), bytes_(bytes) {
  check_user(static_cast<std::int64_t>(bytes.size()) == type_.bytes(), "a view of ", bytes.size() / size_of(type_.dtype),
             " elements as ", to_string(type_));
}

}  // namespace gcomp
