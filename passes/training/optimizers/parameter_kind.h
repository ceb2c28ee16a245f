// What a model uses each parameter as: what `kind:` in a parameter group selects.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

enum class ParameterKind : std::uint8_t {
  other,
  bias,       ///< one number for each channel, added
  norm,       ///< scale or shift of a normalisation
  embedding,  ///< gathered from, whatever else reads it
  matrix,     ///< of two dimensions or more, an operand of a product or a convolution
};

/// "bias"; nothing for ParameterKind::other.
std::string_view name_of(ParameterKind kind);
std::optional<ParameterKind> parse_parameter_kind(std::string_view name);
/// Those that have a name.
std::vector<std::string> parameter_kind_names();

/// Of each parameter of a forward graph. A normalisation need not be an op of its own: what has one number for each channel and is
/// multiplied is a scale, and what is added to the product with a scale is a shift.
std::vector<ParameterKind> parameter_kinds(const ir::Graph& forward, std::span<ir::Value* const> parameters);

}  // namespace gcomp::passes
