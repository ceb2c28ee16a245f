#include "ir/base/shape.h"

#include "ir/base/error.h"

namespace gcomp {

namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

}  // namespace

std::int64_t element_count(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  bool empty = false;
  for (std::int64_t dim : shape) {
    if (dim < 0) throw UserError(concat("shape [", to_string(shape), "] has a negative dimension"));
    if (dim == 0) empty = true;
    else if (__builtin_mul_overflow(count, dim, &count) || count > kMostElements)
      throw SizeError(concat("shape [", to_string(shape), "] has more than 2^48 elements"));
  }
  return empty ? 0 : count;
}

Shape row_major_strides(std::span<const std::int64_t> shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::string to_string(std::span<const std::int64_t> shape) {
  std::string text;
  for (std::int64_t dim : shape) text += (text.empty() ? "" : "x") + std::to_string(dim);
  return text;
}

bool next_index(std::span<std::int64_t> index, std::span<const std::int64_t> shape) {
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (++index[i] < shape[i]) return true;
    index[i] = 0;
  }
  return false;
}

}  // namespace gcomp
