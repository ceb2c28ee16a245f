// Static shapes (gcomp/tensor.h): counts, strides, text.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "gcomp/tensor.h"

namespace gcomp {

/// Dimensions that an array in a file may have.
inline constexpr std::size_t kLargestRank = 32;

/// Product of the dimensions; throws SizeError where it exceeds 2^48, so that sums of bytes stay in 64 bits,
/// and UserError where a dimension is negative.
std::int64_t element_count(std::span<const std::int64_t> shape);
/// Row-major strides in elements.
Shape row_major_strides(std::span<const std::int64_t> shape);
/// "32x20"; "" for a scalar.
std::string to_string(std::span<const std::int64_t> shape);

/// Advances `index` to the next position in row-major order; false after the last.
bool next_index(std::span<std::int64_t> index, std::span<const std::int64_t> shape);

}  // namespace gcomp
