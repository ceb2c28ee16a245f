// How the nodes of a file use its initializers: as weight, bias, scale of a norm, bound, index ...
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/onnx/source.h"

namespace gcomp::frontend {

enum class UseRole {
  weight,  ///< multiplied: matrix, filter, recurrent matrix, embedding table
  bias,    ///< added to a product or a convolution
  slope,   ///< PRelu
  norm_scale,
  norm_bias,
  running_statistic,
  setting,  ///< a bound, exponent, mask or the like: never trained
  other,    ///< arithmetic
};
std::string_view name_of(UseRole role);

struct Use {
  int node = -1;  ///< index in the main graph; -1 inside a subgraph
  int operand = -1;
  UseRole role = UseRole::other;
  std::string node_name, op;
  std::string likely_name;    ///< "fc.weight" for the matrix of a product to which "fc.bias" is added; else empty
  bool norm_has_bias = true;  ///< of a norm's scale: whether the norm has a bias operand
  /// Of a norm operator's scale or bias: whether the norm has a bias, and all its operands are initializers without a name.
  bool norm_is_nameless = false;
};

/// Every use of every name that is an initializer of the main graph.
std::unordered_map<std::string, std::vector<Use>> uses_of_initializers(const ::onnx::GraphProto& graph);

}  // namespace gcomp::frontend
