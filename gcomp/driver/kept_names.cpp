#include "gcomp/driver/kept_names.h"

#include "data/number_names.h"
#include "gcomp/driver/fit/run_directory.h"
#include "gcomp/driver/model_source.h"
#include "ir/base/error.h"

namespace gcomp::driver {

std::map<std::string, std::string> kept_names(const std::string& number_names) {
  if (number_names.empty()) return {};
  data::NumberNames names = data::parse_number_names(number_names);
  if (names.columns.empty()) return {};
  for (std::string* source : {&names.source, &names.columns.source}) *source = std::filesystem::path(*source).filename().string();
  return {{kNumberNamesKey, data::text_of(names)}};
}

std::string number_names_of(const std::filesystem::path& path, const Model& model) {
  if (std::string names = number_names_of_run(path.parent_path()); !names.empty()) return names;
  const frontend::OnnxFile* file = onnx_file(model);
  if (!file) return "";
  const std::string text = frontend::metadata_of(*file, kNumberNamesKey);
  if (text.empty()) return "";
  try {
    return data::text_of(data::parse_number_names(text));
  } catch (const UserError& error) {
    throw UserError(concat("'", path.string(), "', metadata '", kNumberNamesKey, "': ", error.what()));
  }
}

std::string table_names_of(const std::filesystem::path& path, const Model& model) {
  std::string names = number_names_of(path, model);
  return names.empty() || data::parse_number_names(names).columns.empty() ? "" : names;
}

}  // namespace gcomp::driver
