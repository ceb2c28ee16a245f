// From symbolic dimensions to numbers: what the user said, what the data has, what the file fixes.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "frontend/imported_model.h"

namespace gcomp::driver {

struct ShapeRequest {
  std::optional<std::int64_t> batch;  ///< first dimension of every input
  /// The symbol that `batch` is the size of instead, where inputs have it: not every input of a defined model has rows.
  std::string batch_symbol = {};
  std::int64_t micro_batches = 1;            ///< of how many `batch` is one, for messages
  std::map<std::string, std::int64_t> dims;  ///< --dim SYMBOL=N
  std::map<std::string, Shape> shapes;       ///< --shapes INPUT:DxDxD
  /// Types of the arrays that will be fed, by input. Where `batch` is set, their first dimension counts rows and binds nothing.
  std::map<std::string, TensorType> data;
  std::string data_source;  ///< the data's file name, for messages
};

/// The whole shape of every input, by name. A symbol bound at one input is bound at all.
///
/// Throws UserError naming the model, the input, what was found and what was wanted, with the option to add: for dimensions that
/// nothing binds (all of them in one message), a symbol with two sizes, a size that differs from what the file fixes, and options
/// that name no input or symbol (exit 2, with the nearest name).
std::map<std::string, Shape> input_shapes(const std::string& model, std::span<const frontend::ValueInfo> inputs,
                                          const ShapeRequest& request);

}  // namespace gcomp::driver
