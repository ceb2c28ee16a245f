// The low-rank adapters of a model: which parameters have one, and what a parameter is together with its own.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/base/tensor.h"

namespace gcomp::driver {

struct AdaptedWeight {
  std::string parameter;              ///< its state
  std::string module;                 ///< the path of the module that has it, by which PEFT's files name it; "" where unknown
  Shape shape;                        ///< as the linear map that it is: [outputs, inputs, kernel...]
  std::vector<std::int64_t> strides;  ///< of that in the parameter's elements

  /// States: [rank, inputs, kernel...] and [outputs, rank], with 1 for each axis of a kernel behind.
  std::string a() const { return parameter + ".lora_A"; }
  std::string b() const { return parameter + ".lora_B"; }
};

struct Adaptation {
  std::int64_t rank = 8;
  double alpha = 16;
  bool rank_stabilized = false;  ///< alpha is divided by the root of the rank
  std::vector<AdaptedWeight> weights = {};

  double scale() const {
    const auto r = static_cast<double>(rank);
    return alpha / (rank_stabilized ? std::sqrt(r) : r);
  }
};

/// "alpha was 6 and is 60"; "" where adapters of the same values count alike in both.
std::string difference(const Adaptation& before, const Adaptation& now);

/// Replaces each adapted parameter among `states` by the sum with its adapter, weight + scale * B A, in f64 and where the
/// weight's elements stand. Throws UserError where a state is missing or its shape does not fit.
void merge_adapters(const Adaptation& adaptation, std::map<std::string, Tensor>& states);

}  // namespace gcomp::driver
