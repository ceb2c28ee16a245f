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
/// Without those that another exporter wrote again (gpt_tiny_torchscript beside gpt_tiny): once imported, they are the same ops.
std::vector<RecordedModel> distinct_models();
RecordedModel recorded_model(const std::string& name);

struct Recipe {
  std::string loss, optimizer;  ///< as TrainOptions have them: "sgd(lr=0.003, momentum=0.9)"
  std::int64_t batch = 0, steps = 0;
  double pytorch_f32_loss = 0;             ///< how far PyTorch's own float32 losses stray, relative
  std::vector<std::string> train_options;  ///< the recipe as options of gcomp train, all but the number of steps
};
Recipe recipe_of(const RecordedModel& model);

/// Whether a pooling window nearly ties, as one of mnist_cnn does at step 7: the last bit of a float32 sum decides it, and
/// whichever way it falls, a run stays within 7e-6 of the record or parts from it by up to 1e-3 some steps later (PyTorch's own
/// channels_last run does, every run on AVX2, and half of its and our runs from weights changed by 6e-8). In float64 nothing ties.
bool has_near_tie(const RecordedModel& model);
/// How far the loss of step `step` (from 0) may stray in float32, relative to the record: 1e-4, or 4 times what PyTorch's own
/// strays. Where has_near_tie(), all branches hold to that for 15 steps, and from there on to 2e-3: fixtures/models/near_tie.py
/// draws 40, of which none strays by more than 1.4e-3, while a learning rate off by 2 % strays by 6e-3 and more.
double float32_loss_tolerance(const RecordedModel& model, const Recipe& recipe, std::size_t step);

/// All arrays of an .npz.
std::map<std::string, Tensor> load_arrays(const std::filesystem::path& path);
/// The first `rows` rows of every array of the model's data, as another .npz.
void write_batch(const RecordedModel& model, std::int64_t rows, const std::filesystem::path& path);
/// The recorded gradients of the first step by their parameters' names; none where none were recorded.
std::map<std::string, Tensor> recorded_gradients(const RecordedModel& model);
/// The first element that counts: PyTorch gives the padding row of BERT's word embedding no gradient (padding_idx=0).
std::int64_t first_compared(const RecordedModel& model, const std::string& parameter, const Tensor& gradient);
/// Where gradients and the record differ, "" where nowhere: by more than `tolerance` of the largest magnitude in the recorded array
/// or, if that is more, of a tenth of the largest of all.
std::string difference_from_recorded_gradients(const RecordedModel& model, const std::map<std::string, Tensor>& gradients,
                                               double tolerance);
/// The losses of the steps in a --metrics file.
std::vector<double> step_losses(const std::filesystem::path& metrics);

/// A file of the models' traps, "" where neither place has it.
std::string trap(const std::string& name);

}  // namespace gcomp::test
