#include "ir/packed_bits.h"

#include "ir/ops/table.h"

namespace gcomp::ir {

Var pack_bits(Builder& b, Var bits) {
  Shape shape = bits.shape(), low(shape.size()), high(shape.size());
  const std::int64_t n = shape.back(), bytes = bytes_of_bits(n);
  high.back() = bytes * kBitsOfByte - n;
  Var whole = b.cast(bits, DType::i32);
  if (high.back() > 0) whole = b.pad(whole, low, high, 0);
  shape.back() = bytes;
  shape.push_back(kBitsOfByte);
  const auto last = static_cast<std::int64_t>(shape.size()) - 1;
  const Var placed = b.apply(ops::kShiftLeft, {b.reshape(whole, shape), b.iota({DType::i32, shape}, last)});
  return b.cast(b.sum(placed, {last}), DType::u8);
}

Var unpack_bits(Builder& b, Var bytes, std::int64_t n) {
  Shape shape = bytes.shape(), rows = shape;
  const auto last = static_cast<std::int64_t>(shape.size());
  shape.push_back(kBitsOfByte);
  rows.back() *= kBitsOfByte;
  const TensorType wide{DType::i32, shape};
  const Var repeated = b.unreduce(b.cast(bytes, DType::i32), shape, {last});
  const Var bits = b.apply(ops::kBitAnd, {b.apply(ops::kShiftRight, {repeated, b.iota(wide, last)}), b.full(wide, 1)});
  return b.slice_axis(b.reshape(bits, rows) == b.full({DType::i32, rows}, 1), last - 1, 0, n);
}

}  // namespace gcomp::ir
