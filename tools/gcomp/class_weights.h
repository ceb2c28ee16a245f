// Class weights that stand in the data: cross_entropy(weight=class_weight).
#pragma once

#include <string>

namespace gcomp::tools {

/// The text of a loss where options that name an array of the data, an .npz, with one number for each class, and not one for each
/// row, have these numbers as a list: they are the same in every step, and a .gcx keeps them. Arrays with the rows of the data stay
/// names. Throws UserError (exit 2) at its place in the text as passes::parse_loss(), and for class weights that are no floats.
std::string with_class_weights(const std::string& loss, const std::string& data);

}  // namespace gcomp::tools
