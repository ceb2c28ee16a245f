// The .npz files of a run, joined with what the model wants of them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "gcomp/driver/training.h"
#include "runtime/dataset.h"

namespace gcomp::tools {

/// The arrays of these names, of any shapes.
std::vector<NamedTensor> load_arrays(const std::string& path, const std::vector<std::string>& names);
Batch views_of(const std::vector<NamedTensor>& arrays);

/// Reads the arrays of these names, which have rows; others of the file are ignored.
runtime::Dataset open_data(const std::string& path, const std::vector<std::string>& names);

/// Inputs of the model, and the arrays that the loss and the metrics read beside them.
std::vector<std::string> array_names(const Model& model, const driver::LossSpec& loss,
                                     std::span<const passes::MetricSpec> metrics = {});

/// Throws UserError (exit 2) where a loss or metric names what is neither an output or input of the model nor an array of the file.
void require_names(const Model& model, const driver::LossSpec& loss, std::span<const passes::MetricSpec> metrics,
                   const std::string& path);

/// Types of the arrays, for the binding of shapes.
std::map<std::string, TensorType> types_of(const std::vector<NamedTensor>& arrays);
std::map<std::string, TensorType> types_of(const runtime::Dataset& data, const std::vector<std::string>& names);

/// Converts every array to what the trainer's inputs want, and checks the labels. Throws UserError with file, array and row.
void fit(runtime::Dataset& data, const Trainer& trainer);

/// Copies rows of the data into the trainer's inputs. Allocates nothing.
class BatchFeeder {
 public:
  BatchFeeder(const runtime::Dataset& data, Trainer& trainer);
  void load(std::span<const std::int64_t> rows);

 private:
  const runtime::Dataset& data_;
  Trainer& trainer_;
  std::vector<std::size_t> arrays_;  // of each input
};

/// Throws UserError naming file, array, row and limit.
[[noreturn]] void throw_index_fault(const driver::IndexFault& fault, const runtime::Dataset& data,
                                    std::span<const std::int64_t> rows);

/// Does `work`, which starts a step or takes its loss; where an index of the data is out of range, the error names file, array, row
/// and limit. `rows` gives the rows of that step.
template <class Work, class Rows>
auto on_rows(Trainer& trainer, const runtime::Dataset& data, const Work& work, const Rows& rows) {
  try {
    return work();
  } catch (const UserError&) {
    if (const auto fault = driver::find_index_fault(trainer)) throw_index_fault(*fault, data, rows());
    throw;
  }
}

/// "'x.npz', array 'x', row 17 holds nan" for the first NaN or infinity among these rows of float arrays, or "".
std::string find_non_finite(const runtime::Dataset& data, const std::vector<std::string>& names,
                            std::span<const std::int64_t> rows);

/// All arrays as one batch, for evaluation.
Batch whole(const runtime::Dataset& data, const std::vector<std::string>& names);

}  // namespace gcomp::tools
