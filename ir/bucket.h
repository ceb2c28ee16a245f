// How the ops bucket and unbucket lay arrays out: what they are defined by and what generates code for them agree here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/base/integers.h"
#include "ir/base/tensor.h"

namespace gcomp::ir {

/// Every part begins at a multiple of so many elements, and so does every row: multiples of 64 bytes of any dtype, as buffers are.
inline constexpr std::int64_t kBucketPlace = 64;

/// Where the arrays of a bucket lie. Each is cut into as many equal parts as all rows have together, and a row has its parts of
/// every array, one array after another: what a rank gets of a bucket is its parts of every array.
struct BucketLayout {
  std::vector<std::int64_t> places;  ///< element within a row at which the parts of each array begin
  std::vector<std::int64_t> shares;  ///< how many elements of it a row has, zeros behind the array's end included
  std::int64_t row_elements = 0;     ///< of one of the bucket's equal rows
};

/// How many elements a part has of an array that is cut into so many; the last ones may be shorter, or empty.
inline std::int64_t part_elements(std::int64_t elements, std::int64_t parts) {
  return round_up(quotient_up(elements, parts), kBucketPlace);
}

/// Of arrays of one dtype in `rows` rows with `parts` parts of each array in a row.
inline BucketLayout bucket_layout(std::span<const TensorType> arrays, std::int64_t rows, std::int64_t parts = 1) {
  BucketLayout layout;
  for (const TensorType& array : arrays) {
    layout.places.push_back(layout.row_elements);
    layout.shares.push_back(part_elements(array.elements(), rows * parts) * parts);
    layout.row_elements += layout.shares.back();
  }
  return layout;
}

/// The elements of array `i`, from `begin` to `end`, that row `row` has, from `place` of the bucket on.
struct BucketRange {
  std::int64_t begin = 0, end = 0, place = 0;
};
inline BucketRange range_in_row(const BucketLayout& layout, std::size_t i, std::int64_t row, std::int64_t elements) {
  const std::int64_t share = layout.shares[i], begin = std::min(row * share, elements);
  return {begin, std::min(begin + share, elements), row * layout.row_elements + layout.places[i]};
}

/// "[3,4] [5] []": how unbucket is told of them.
inline std::string bucket_shapes(std::span<const TensorType> arrays) {
  std::string text;
  for (const TensorType& array : arrays) text += (text.empty() ? "" : " ") + to_string(array).substr(name_of(array.dtype).size());
  return text;
}

}  // namespace gcomp::ir
