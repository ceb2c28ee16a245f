// How the ops bucket and unbucket lay arrays out: what they are defined by and what generates code for them agree here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/base/integers.h"
#include "ir/base/tensor.h"

namespace gcomp::ir {

/// Every array begins at a multiple of so many bytes, as buffers do, and so does every row.
inline constexpr std::int64_t kBucketPlace = 64;

struct BucketLayout {
  std::vector<std::int64_t> places;  ///< element at which each array begins
  std::int64_t row_elements = 0;     ///< of one of the bucket's equal rows
};

/// Of arrays of one dtype that is at most kBucketPlace wide, one after another in `rows` rows.
inline BucketLayout bucket_layout(std::span<const TensorType> arrays, std::int64_t rows) {
  BucketLayout layout;
  const std::int64_t multiple = kBucketPlace / static_cast<std::int64_t>(size_of(arrays[0].dtype));
  std::int64_t next = 0;
  for (const TensorType& array : arrays) {
    layout.places.push_back(next);
    next += round_up(array.elements(), multiple);
  }
  layout.row_elements = round_up(quotient_up(next, rows), multiple);
  return layout;
}

}  // namespace gcomp::ir
