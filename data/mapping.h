// Which array of the data feeds which input of a model.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/source.h"

namespace gcomp::data {

/// "input=array" taken apart.
struct MapEntry {
  std::string input, array;
};
/// The first '=' divides. Throws UserError (exit 2) where there is none, or a side is empty.
MapEntry parse_map(std::string_view text);

/// The shape in which rows of shape `stored` feed an input whose rows are `wanted` (-1 for any size): `wanted` itself where both
/// have the same sizes but for dimensions of 1, or where it is one dimension of all their elements; else nothing.
std::optional<Shape> fitting_shape(const Shape& stored, const Shape& wanted);

/// The array for each that is wanted, in their order.
struct Chosen {
  std::vector<MapEntry> arrays;
  std::vector<std::string> notes;  ///< what no name decided, a sentence each
};

/// Each wanted array is the one that `map` names for it; else the one of its name; else, where one input of the model has none and
/// one array feeds nothing, that one if its shape fits. What the loss reads goes by names alone: a wrong label trains as well as a
/// right one. Throws UserError (exit 2) for a map
/// that names what nobody wants or what the data do not have, with the nearest name, for two maps of one input, and where an array
/// is missing.
Chosen choose_arrays(const Dataset& data, std::span<const WantedArray> wanted, std::span<const MapEntry> map = {});

/// What is wanted, under the names that the data have for it; where `map` says nothing, the names are the same.
std::vector<WantedArray> under_names_of_data(std::span<const WantedArray> wanted, std::span<const MapEntry> map);

/// The arrays by the names that are wanted, and no others, in the shapes that fit. `arrays` is choose_arrays()'s.
std::unique_ptr<Dataset> map_arrays(std::unique_ptr<Dataset> data, std::span<const WantedArray> wanted,
                                    std::span<const MapEntry> arrays);

}  // namespace gcomp::data
