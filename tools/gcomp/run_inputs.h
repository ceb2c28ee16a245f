// What `gcomp run` gives a model: the arrays of an .npz, or rows of whatever gcomp train reads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gcomp/driver/opened_data.h"
#include "gcomp/predictor.h"
#include "gcomp/tensor_view.h"

namespace gcomp::tools {

class RunInputs {
 public:
  virtual ~RunInputs() = default;

  /// Of the arrays with all their rows, as the program is fed.
  const std::map<std::string, TensorType>& types() const { return types_; }
  /// Rows of all arrays but scalars; 0 where they differ.
  std::int64_t rows() const;
  /// Before next(): how many rows it gives at most.
  virtual void begin(std::int64_t batch) = 0;
  /// The rows that follow, front to back; valid until the next call. Throws UserError for a row that cannot be read.
  virtual Batch next() = 0;
  /// All arrays at once.
  virtual Batch whole() = 0;

 protected:
  std::map<std::string, TensorType> types_;
};

/// Whether an .npz file has bytes where a program reads floats, which `forms` do not take as they are: pixels, as training has it.
bool has_pixels(const std::string& path, const std::vector<data::WantedArray>& wanted, const std::vector<InputForm>& forms);
/// Arrays by the names of the predictor's inputs, as they are. Throws UserError where one is missing.
std::unique_ptr<RunInputs> npz_inputs(const std::string& path, const std::vector<std::string>& names);
/// Rows in the form of inference; what feeds an input is what its program reads. `data` must outlive it.
std::unique_ptr<RunInputs> data_inputs(const driver::OpenedData& data, const std::vector<data::WantedArray>& wanted, int workers);

}  // namespace gcomp::tools
