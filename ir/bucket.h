// How the ops bucket and unbucket lay arrays out: what they are defined by and what generates code for them agree here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/base/integers.h"
#include "ir/base/tensor.h"

namespace gcomp::ir {

/// Every array begins at a multiple of so many elements, and so does every row: multiples of 64 bytes of any dtype, as buffers are.
inline constexpr std::int64_t kBucketPlace = 64;

struct BucketLayout {
  std::vector<std::int64_t> places;  ///< element at which each array begins
  std::int64_t row_elements = 0;     ///< of one of the bucket's equal rows
};

/// Of arrays of one dtype, one after another in `rows` rows.
inline BucketLayout bucket_layout(std::span<const TensorType> arrays, std::int64_t rows) {
  BucketLayout layout;
  std::int64_t next = 0;
  for (const TensorType& array : arrays) {
    layout.places.push_back(next);
    next += round_up(array.elements(), kBucketPlace);
  }
  layout.row_elements = round_up(quotient_up(next, rows), kBucketPlace);
  return layout;
}

/// "[3,4] [5] []": how unbucket is told of them.
inline std::string bucket_shapes(std::span<const TensorType> arrays) {
  std::string text;
  for (const TensorType& array : arrays) text += (text.empty() ? "" : " ") + to_string(array).substr(name_of(array.dtype).size());
  return text;
}

}  // namespace gcomp::ir
