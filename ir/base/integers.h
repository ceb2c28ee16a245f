// Whole numbers: indices, extents, lists of axes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gcomp {

/// An index that is not negative, for a subscript.
inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// How many parts of `part` cover `whole`; neither is negative, `part` is not 0.
inline std::int64_t quotient_up(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

/// The next multiple of `unit`, which is not 0, from `whole` on.
inline std::int64_t round_up(std::int64_t whole, std::int64_t unit) { return quotient_up(whole, unit) * unit; }

/// Whether a list, of axes or the like, has this number.
inline bool contains(const std::vector<int>& list, int number) { return std::find(list.begin(), list.end(), number) != list.end(); }

}  // namespace gcomp
