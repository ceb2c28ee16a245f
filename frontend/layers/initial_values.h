// Values of states before training, as functions that write a part at a time: a model may have hundreds of millions of them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "ir/base/tensor.h"

namespace gcomp::frontend {

/// Writes those of the elements from `first` on.
using InitialValues = std::function<void(std::int64_t first, std::span<double> values)>;

InitialValues all_of(double value);
/// Drawn by seed, name and position (ir/base/named_draws.h): uniform in [-bound, bound), or normal with mean 0, by Box and Muller.
InitialValues uniform_values(std::uint64_t seed, const std::string& name, double bound);
InitialValues normal_values(std::uint64_t seed, const std::string& name, double deviation);

/// A tensor of these, each rounded to its type.
Tensor filled(const TensorType& type, const InitialValues& initial);

}  // namespace gcomp::frontend
