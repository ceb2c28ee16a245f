// A tensor in host memory: dtype, shape, and dense row-major bytes. A value: what is written to one shows in no other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "gcomp/shared_bytes.h"

namespace gcomp {

enum class DType : std::uint8_t { f64, f32, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean };

/// Dimensions, outermost first. Rank 0 is a scalar; a dimension of 0 is legal.
using Shape = std::vector<std::int64_t>;

/// The type of an array: element type and shape.
struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  bool operator==(const TensorType&) const = default;
  /// The product of the dimensions. Throws UserError where it exceeds 2^48, or a dimension is negative.
  std::int64_t elements() const;
  std::int64_t bytes() const;
  std::int64_t rank() const { return static_cast<std::int64_t>(shape.size()); }
};

/// "f32[64,784]", "i64[]".
std::string to_string(const TensorType& type);

class Tensor {
 public:
  /// f32[0].
  Tensor() = default;
  /// Zero-filled.
  explicit Tensor(TensorType type);
  Tensor(DType dtype, Shape shape) : Tensor(TensorType{dtype, std::move(shape)}) {}

  /// From values, each converted to `dtype` by gcomp's cast rules; `values` holds one entry per element, or one for all.
  static Tensor of(DType dtype, Shape shape, std::span<const double> values);
  static Tensor of(DType dtype, Shape shape, std::initializer_list<double> values);
  static Tensor scalar(DType dtype, double value) { return of(dtype, {}, {value}); }
  /// Copies dense row-major bytes, as many as the type has.
  static Tensor of_bytes(TensorType type, std::span<const std::byte> bytes);
  /// Reads dense row-major bytes where they lie, as many as the type has, aligned for its elements; copies of the tensor do too.
  /// Whichever is asked for bytes to write (the accessors that are not const) copies them first.
  static Tensor sharing(TensorType type, SharedBytes bytes);
  /// An i64 vector, exact.
  static Tensor of_integers(std::span<const std::int64_t> values);

  const TensorType& type() const { return type_; }
  DType dtype() const { return type_.dtype; }
  const Shape& shape() const { return type_.shape; }
  std::int64_t elements() const { return type_.elements(); }

  std::span<std::byte> bytes() {
    if (shared_) own();
    return own_;
  }
  std::span<const std::byte> bytes() const { return shared_ ? shared_.bytes() : std::span<const std::byte>(own_); }
  std::byte* data() { return bytes().data(); }
  const std::byte* data() const { return bytes().data(); }
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data()), bytes().size() / sizeof(T)};
  }
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data()), bytes().size() / sizeof(T)};
  }

  /// One element, by its row-major position, as double; set() rounds and saturates by gcomp's cast rules.
  double at(std::int64_t element) const;
  void set(std::int64_t element, double value);
  /// All elements as i64 (exact for 64-bit integers).
  std::vector<std::int64_t> to_integers() const;
  std::vector<double> to_doubles() const;

  /// Every element converted to `dtype`; exact between integer types that hold the value.
  Tensor cast(DType dtype) const;
  /// The same bytes under another shape of the same element count.
  Tensor reshaped(Shape shape) &&;

  /// Bitwise equality of type and contents (so NaN equals NaN, and 0.0 differs from -0.0).
  bool operator==(const Tensor& other) const;

 private:
  /// Copies what it shares with others.
  void own();

  TensorType type_{DType::f32, {0}};
  std::vector<std::byte> own_;
  SharedBytes shared_;  // in the place of own_, where there are any
};

using NamedTensor = std::pair<std::string, Tensor>;
using NamedType = std::pair<std::string, TensorType>;

}  // namespace gcomp
