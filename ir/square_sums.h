// How the op square_sums cuts its operands: what it is defined by and what generates code for it agree here.
#pragma once

#include "ir/base/integers.h"
#include "ir/bucket.h"

namespace gcomp::ir {

/// How many elements of an array one partial sum has, and of how many partial sums the place of an array is a multiple: places
/// begin at multiples of 64 bytes, as buffers do.
inline constexpr std::int64_t kSquareSumBlock = 8192, kSquareSumPlace = 8;

/// Of an array of so many elements that is cut into equal parts, which are places of a bucket (ir/bucket.h): a norm of what ranks
/// hold parts of adds what a norm of the whole does.
inline std::int64_t square_sum_part(std::int64_t elements, std::int64_t parts) {
  return parts == 1 ? elements : part_elements(elements, parts);
}

/// Of an array, or a part of one, of so many elements; those behind its blocks are 0.
inline std::int64_t square_sums_of(std::int64_t elements) {
  return round_up(quotient_up(elements, kSquareSumBlock), kSquareSumPlace);
}

}  // namespace gcomp::ir
