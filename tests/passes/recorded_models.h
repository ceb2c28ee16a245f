// The small models whose trainings PyTorch recorded (tests/fixtures/training), run by the interpreter in f64.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"
#include "ir/base/tensor.h"

namespace gcomp::passes {

inline constexpr std::int64_t kRecordedRows = 6, kRecordedSteps = 50;

/// Of tests/fixtures/training.
std::string fixture(const std::string& name);
/// All arrays of an .npz there.
std::map<std::string, Tensor> arrays_of(const std::string& name);
/// Lines of bytes.
std::vector<std::string> texts_of(const Tensor& bytes);
/// The rows of one step.
Tensor batch_of(const Tensor& all, std::int64_t step, DType dtype);

struct RecordedModel {
  frontend::ImportedModel model;
  std::vector<std::string> trained;

  ir::Graph& graph() { return model.graph; }
};
/// MODEL.onnx in training form, for batches of `rows`.
RecordedModel import_recorded(const std::string& name, std::int64_t rows = kRecordedRows);
/// The values of all states before the first step.
std::map<std::string, Tensor> first_states(RecordedModel& model);
/// Its graph is a training step: the losses of the recorded steps.
std::vector<double> run_recorded(RecordedModel& model, double learning_rate, const std::map<std::string, Tensor>& data);

}  // namespace gcomp::passes
