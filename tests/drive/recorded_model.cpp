#include "tests/drive/recorded_model.h"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/npz.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;

/// Folders that may hold models, the best first.
std::vector<fs::path> model_roots() {
  const char* variable = std::getenv("GCOMP_SHARED_DIR");
  std::vector<fs::path> roots;
  for (const fs::path& shared :
       {fs::path(variable ? variable : ""), fs::path(GCOMP_SHARED_DIR), fs::path(GCOMP_SOURCE_DIR) / ".." / "shared"})
    if (!shared.empty()) roots.push_back(shared / "models");
  roots.push_back(fs::path(GCOMP_SOURCE_DIR) / "tests" / "fixtures" / "models");
  return roots;
}

nlohmann::json read_json(const fs::path& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

/// A number as gcomp's options take it.
std::string option_value(const nlohmann::json& value) {
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& entry : value) text += (text.empty() ? "" : ",") + entry.dump();
  return text;
}

}  // namespace

std::vector<RecordedModel> recorded_models() {
  std::map<std::string, fs::path> found;
  for (const fs::path& root : model_roots()) {
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(root, missing))
      if (fs::exists(entry.path() / "recipe.json")) found.emplace(entry.path().filename().string(), entry.path());
  }
  std::vector<RecordedModel> models;
  for (const auto& [name, folder] : found) models.push_back({name, folder});
  return models;
}

RecordedModel recorded_model(const std::string& name) {
  for (const RecordedModel& model : recorded_models())
    if (model.name == name) return model;
  throw std::runtime_error("no recorded model " + name);
}

Recipe recipe_of(const RecordedModel& model) {
  const nlohmann::json json = read_json(model.folder / "recipe.json");
  Recipe recipe;
  recipe.loss = json.at("loss");
  recipe.batch = json.at("batch");
  recipe.steps = json.at("steps");
  recipe.pytorch_f32_loss = json.at("pytorch_f32").at("loss_relative");
  recipe.train_options = {"--loss",      recipe.loss, "--optimizer", json.at("optimizer"), "--batch", std::to_string(recipe.batch),
                          "--no-shuffle"};
  for (const auto& [name, value] : json.at("options").items()) {
    std::string flag = "--" + name;
    for (char& c : flag)
      if (c == '_') c = '-';
    recipe.train_options.push_back(flag);
    if (!value.is_boolean()) recipe.train_options.push_back(option_value(value));
  }
  return recipe;
}

std::map<std::string, Tensor> load_arrays(const fs::path& path) {
  const runtime::NpzFile file(path);
  std::map<std::string, Tensor> arrays;
  for (const std::string& name : file.names()) arrays.emplace(name, file.load(name));
  return arrays;
}

void write_batch(const RecordedModel& model, std::int64_t rows, const fs::path& path) {
  std::vector<runtime::NamedTensor> parts;
  for (const auto& [name, whole] : load_arrays(model.data())) {
    TensorType type = whole.type();
    type.shape[0] = rows;
    Tensor part(type);
    std::copy_n(whole.bytes().begin(), part.bytes().size(), part.bytes().begin());
    parts.emplace_back(name, std::move(part));
  }
  runtime::write_npz(path, parts);
}

std::vector<double> step_losses(const fs::path& metrics) {
  std::vector<double> losses;
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json.contains("step")) losses.push_back(json.at("loss"));
  }
  return losses;
}

std::string trap(const std::string& name) {
  for (const fs::path& root : model_roots())
    if (fs::exists(root / "traps" / name)) return root / "traps" / name;
  return "";
}

}  // namespace gcomp::test
