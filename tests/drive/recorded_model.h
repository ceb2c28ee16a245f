// The recorded trainings under tests/fixtures/models and, where it is found, ../shared/models.
#pragma once

#include <filesystem>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "ir/base/tensor.h"

namespace gcomp::test {

struct RecordedModel {
  std::string name;
  std::filesystem::path folder;

  std::string model() const { return folder / "model.onnx"; }
  std::string data() const { return folder / "train.npz"; }
};
inline void PrintTo(const RecordedModel& model, std::ostream* out) { *out << model.folder; }

/// Every folder with a recipe; the full recordings win over those cut to fit the project.
std::vector<RecordedModel> recorded_models();
RecordedModel recorded_model(const std::string& name);

struct Recipe {
  std::string loss;
  std::int64_t batch = 0, steps = 0;
  double pytorch_f32_loss = 0;             ///< how far PyTorch's own float32 losses stray, relative
  std::vector<std::string> train_options;  ///< the recipe as options of gcomp train, all but the number of steps
};
Recipe recipe_of(const RecordedModel& model);

/// All arrays of an .npz.
std::map<std::string, Tensor> load_arrays(const std::filesystem::path& path);
/// The first `rows` rows of every array of the model's data, as another .npz.
void write_batch(const RecordedModel& model, std::int64_t rows, const std::filesystem::path& path);
/// The losses of the steps in a --metrics file.
std::vector<double> step_losses(const std::filesystem::path& metrics);

/// A file of the models' traps, "" where neither place has it.
std::string trap(const std::string& name);

}  // namespace gcomp::test
