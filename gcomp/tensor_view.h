// Elements that somebody else owns, with dtype and shape: how batches are handed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/tensor.h"

namespace gcomp {

/// The IR's element type of a C++ type.
template <class T>
struct ElementType;
template <>
struct ElementType<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct ElementType<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct ElementType<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct ElementType<std::int16_t> {
  static constexpr DType value = DType::i16;
};
template <>
struct ElementType<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct ElementType<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct ElementType<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct ElementType<std::uint16_t> {
  static constexpr DType value = DType::u16;
};
template <>
struct ElementType<std::uint32_t> {
  static constexpr DType value = DType::u32;
};
template <>
struct ElementType<std::uint64_t> {
  static constexpr DType value = DType::u64;
};
template <>
struct ElementType<bool> {
  static constexpr DType value = DType::boolean;
};

/// Dense, row-major. The elements must outlive the view.
class TensorView {
 public:
  /// From a Tensor; not from one about to vanish.
  TensorView(const Tensor& tensor) : type_(tensor.type()), bytes_(tensor.bytes()) {}  // NOLINT: meant to convert
  TensorView(Tensor&&) = delete;
  /// From any contiguous range of numbers. Throws UserError where their count is not the shape's.
  template <class Range>
  TensorView(const Range& elements, Shape shape) : TensorView(std::span(elements), std::move(shape)) {}
  template <class T, std::size_t N>
  TensorView(std::span<T, N> elements, Shape shape)
      : type_{ElementType<std::remove_const_t<T>>::value, std::move(shape)}, bytes_(std::as_bytes(elements)) {
    check_user(static_cast<std::int64_t>(elements.size()) == type_.elements(), "a view of ", elements.size(), " elements as ",
               to_string(type_));
  }

  const TensorType& type() const { return type_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  TensorType type_;
  std::span<const std::byte> bytes_;
};

/// One array for each of a model's inputs, by name, and `label`.
using Batch = std::vector<std::pair<std::string, TensorView>>;

}  // namespace gcomp
