// Elements that somebody else owns, with dtype and shape: how batches are handed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gcomp/tensor.h"

namespace gcomp {

/// The element type that gcomp calls a C++ type by.
template <class T>
requires std::is_arithmetic_v<T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  else if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 8 ? DType::f64 : DType::f32;
  else if constexpr (sizeof(T) == 1) return std::is_signed_v<T> ? DType::i8 : DType::u8;
  else if constexpr (sizeof(T) == 2) return std::is_signed_v<T> ? DType::i16 : DType::u16;
  else if constexpr (sizeof(T) == 4) return std::is_signed_v<T> ? DType::i32 : DType::u32;
  else return std::is_signed_v<T> ? DType::i64 : DType::u64;
}

/// Dense, row-major. The elements must outlive the view.
class TensorView {
 public:
  /// From a Tensor; not from one about to vanish.
  TensorView(const Tensor& tensor) : type_(tensor.type()), bytes_(tensor.bytes()) {}  // NOLINT: meant to convert
  TensorView(Tensor&&) = delete;
  /// From any contiguous range of numbers; not from one that owns them and is about to vanish. Throws UserError where their count
  /// is not the shape's.
  template <class Range>
  requires(std::is_lvalue_reference_v<Range> || std::ranges::borrowed_range<Range>) TensorView(Range&& elements, Shape shape)
      : TensorView(std::span(std::as_const(elements)), std::move(shape)) {}
  template <class T, std::size_t N>
  TensorView(std::span<T, N> elements, Shape shape)
      : TensorView({dtype_of<std::remove_const_t<T>>(), std::move(shape)}, std::as_bytes(elements)) {}
  /// From the bytes of elements of this type; for f16 and bf16, which C++ has no names for. Throws UserError where their number is
  /// not the type's.
  TensorView(TensorType type, std::span<const std::byte> bytes);

  const TensorType& type() const { return type_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  TensorType type_;
  std::span<const std::byte> bytes_;
};

/// One array for each of a model's inputs, by name, and `label`.
using Batch = std::vector<std::pair<std::string, TensorView>>;

}  // namespace gcomp
