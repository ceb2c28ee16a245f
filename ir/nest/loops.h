// Small constructors of loop nests.
#pragma once

#include <functional>

#include "ir/op.h"

namespace gcomp::ir {

/// All axes of a shape as indices; axis numbers start at `first`.
std::vector<Index> axes_of_shape(const Shape& shape, int first = 0);
std::vector<int> axis_numbers(std::size_t count, int first = 0);

/// One map statement over the axes of `type`, stored at the same indices.
LoopNest map_nest(const TensorType& type, const std::function<TermPtr(const std::vector<Index>&)>& value);
/// One reduce statement: axes of `kept`, then of `over`; the value sees both lists of indices.
LoopNest reduce_nest(const TensorType& result, const Shape& over, const OpDef& combine,
                     const std::function<TermPtr(const std::vector<Index>& kept, const std::vector<Index>& over)>& value);

/// The term that combines two partial results of a reduction. Not for first_maximum and first_minimum.
TermPtr combined(const OpDef& reduction, const TermPtr& a, const TermPtr& b);

}  // namespace gcomp::ir
