// Names of a table's columns and classes in the .onnx that was trained on it, so that they are known away from its run's folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "gcomp/model.h"

namespace gcomp::driver {

/// Under it an .onnx has in its metadata_props what a .gcx keeps as number_names (data/number_names.h).
inline constexpr char kNumberNamesKey[] = "gcomp.number_names";

/// The entry of a file that is exported, with the names of files without their folders. Empty where the names are not of a table:
/// one training on the same images, whatever they lie in, leaves the same bytes.
std::map<std::string, std::string> kept_names(const std::string& number_names);

/// GraphOptions::number_names for the data of the .onnx at `path`: those of the run in whose folder it lies, or else those that it
/// has itself; "" for none. Throws UserError naming the file.
std::string number_names_of(const std::filesystem::path& path, const Model& model);
/// The same where a table's columns are among them, for training on: other images may be of other classes.
std::string table_names_of(const std::filesystem::path& path, const Model& model);

}  // namespace gcomp::driver
