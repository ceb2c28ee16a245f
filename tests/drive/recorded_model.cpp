#include "tests/drive/recorded_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "runtime/files/npz.h"

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

double largest(const Tensor& tensor) {
  double most = 0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) most = std::max(most, std::abs(tensor.at(i)));
  return most;
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

std::vector<RecordedModel> distinct_models() {
  const std::vector<RecordedModel> all = recorded_models();
  std::vector<RecordedModel> distinct;
  for (const RecordedModel& model : all)
    if (std::none_of(all.begin(), all.end(), [&](const RecordedModel& other) { return model.name.starts_with(other.name + "_"); }))
      distinct.push_back(model);
  return distinct;
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
    recipe.optimizer += concat(recipe.optimizer.empty() ? "" : ", ", name, "=", value.dump());
    std::string flag = "--" + name;
    for (char& c : flag)
      if (c == '_') c = '-';
    recipe.train_options.push_back(flag);
    if (!value.is_boolean()) recipe.train_options.push_back(option_value(value));
  }
  recipe.optimizer = concat(json.at("optimizer").get<std::string>(), "(", recipe.optimizer, ")");
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

bool has_near_tie(const RecordedModel& model) { return model.name.starts_with("mnist_cnn"); }

double float32_loss_tolerance(const RecordedModel& model, const Recipe& recipe, std::size_t step) {
  constexpr std::size_t kParting = 15;
  constexpr double kTolerance = 1e-4, kBranches = 2e-3;
  if (has_near_tie(model) && step >= kParting) return kBranches;
  return std::max(kTolerance, 4 * recipe.pytorch_f32_loss);
}

std::map<std::string, Tensor> recorded_gradients(const RecordedModel& model) {
  constexpr std::string_view kPrefix = "grad/";
  std::map<std::string, Tensor> found;
  for (auto& [name, tensor] : load_arrays(model.folder / "reference.npz"))
    if (name.starts_with(kPrefix)) found.emplace(name.substr(kPrefix.size()), std::move(tensor));
  return found;
}

std::int64_t first_compared(const RecordedModel& model, const std::string& parameter, const Tensor& gradient) {
  const bool padded = model.name.starts_with("bert") && parameter == "words.weight";
  return padded ? gradient.elements() / gradient.shape()[0] : 0;
}

std::string difference_from_recorded_gradients(const RecordedModel& model, const std::map<std::string, Tensor>& gradients,
                                               double tolerance) {
  const std::map<std::string, Tensor> recorded = recorded_gradients(model);
  double most = 0;
  for (const auto& [name, wanted] : recorded) most = std::max(most, largest(wanted));
  for (const auto& [name, wanted] : recorded) {
    const auto found = gradients.find(name);
    if (found == gradients.end()) return name + " is missing";
    const Tensor& gradient = found->second;
    if (gradient.shape() != wanted.shape()) return name + " has another shape";
    const double allowed = tolerance * std::max(largest(wanted), 0.1 * most);
    for (std::int64_t i = first_compared(model, name, wanted); i < wanted.elements(); ++i)
      if (!(std::abs(gradient.at(i) - wanted.at(i)) <= allowed))
        return concat(name, ", element ", i, ": ", gradient.at(i), " instead of ", wanted.at(i), ", allowed are ", allowed);
  }
  return "";
}

std::vector<double> step_losses(const fs::path& metrics) {
  std::vector<double> losses;
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json.contains("step") && !json.contains("eval")) losses.push_back(json.at("loss"));
  }
  return losses;
}

std::string trap(const std::string& name) {
  for (const fs::path& root : model_roots())
    if (fs::exists(root / "traps" / name)) return root / "traps" / name;
  return "";
}

}  // namespace gcomp::test
