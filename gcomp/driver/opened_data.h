// The data of a training or an evaluation, opened by the texts that users give and in the form that a model reads.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/source.h"
#include "gcomp/driver/fit/batch_loader.h"
#include "gcomp/driver/ranks.h"
#include "gcomp/driver/training.h"
#include "gcomp/input_form.h"
#include "gcomp/predictor.h"

namespace gcomp::driver {

/// Options of gcomp train and eval, by their names.
struct DataRequest {
  std::vector<std::string> data;      ///< PATH, or FORMAT:PATH,option=value (data/format.h); several go one after another
  std::string eval_data;              ///< "" for none
  std::vector<std::string> map = {};  ///< "input=array"
  std::string augment = {};           ///< transforms of rows (data/transforms/transforms.h)
  /// Those of evaluations; without it they follow from the others.
  std::string eval_augment = {};
  std::optional<double> split = {};  ///< the share of rows that is trained on; the rest is evaluated
  /// The array of classes, each of which is split by that share; "" for rows of whatever class.
  std::string stratify = {};
  std::string sample = {};  ///< FitOptions::sample, which may read an array that nothing else reads
  /// GraphOptions::number_names of the model: classes and tokens are counted, and columns of tables taken so. Without it, as the
  /// first of `data` has them.
  std::string number_names = {};
  /// Whether the rows of `data` may give the means that stand for missing values, where the model has none.
  bool trains = true;
};

struct OpenedData {
  std::unique_ptr<Dataset> train, eval;  ///< arrays by the names that are wanted; eval is null for none
  std::vector<std::string> notes;        ///< what was assumed or tolerated, a sentence each
  std::vector<std::string> classes;      ///< names of those that `label` counts; none where nothing names them
  std::string vocabulary;                ///< docs/generate.md; "" for none
  std::string number_names;              ///< of both, and of a table's columns, as models keep them (data/number_names.h)
  std::vector<InputForm> input_forms;    ///< what the program does with inputs, such as bytes of pixels
  std::string preprocessing;             ///< what was done to rows before, in the form of inference
};

/// Inputs of the model, then the arrays that loss and metrics read beside them.
std::vector<data::WantedArray> wanted_arrays(const Model& model, const LossSpec& loss,
                                             std::span<const passes::MetricSpec> metrics = {});
/// Inputs alone: of a model, or of a compiled forward pass.
std::vector<data::WantedArray> wanted_inputs(const Model& model);
std::vector<data::WantedArray> wanted_inputs(const Predictor& predictor);
/// What a compiled step reads.
std::vector<data::WantedArray> wanted_arrays(const Trainer& trainer);

/// What its evaluation reads. Compiles it, where it is not.
std::vector<data::WantedArray> wanted_for_evaluation(Trainer& trainer);

/// Trainer::evaluate() of rows that are read as they are due, by `workers` threads; below 0, as many as suit the data. Of several
/// ranks all call it.
Evaluation evaluate(Trainer& trainer, const Dataset& data, int workers = -1, const Ranks& ranks = Ranks(nullptr),
                    const BadRows& bad = {});

/// Where the loss names arrays, `outputs` are what its names could have meant too. Throws UserError as data::parse_spec(), what it
/// opens and data::map_arrays() do, and (exit 2) where a loss or metric names what is neither an output nor an array.
OpenedData open_data(const DataRequest& request, std::span<const data::WantedArray> wanted, const Model* model = nullptr);
/// For programs that are compiled: without transforms, rows are prepared as their file keeps it. Throws UserError too where
/// transforms ask for another normalization than the program's.
OpenedData open_data(DataRequest request, const Trainer& trainer, std::span<const data::WantedArray> wanted);
OpenedData open_data(DataRequest request, const Predictor& predictor, std::span<const data::WantedArray> wanted);

/// Paths of what a request opens, vocabularies among them.
std::vector<std::string> paths_of(const DataRequest& request);

/// Types of the arrays with all their rows, for the binding of shapes.
std::map<std::string, TensorType> types_of(const Dataset& data);

}  // namespace gcomp::driver
