// How a model uses its parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

struct MatrixSize {
  std::int64_t outputs = 0, inputs = 0;
};

class ParameterUses {
 public:
  /// `tables` are gathered from, whatever the graph shows.
  ParameterUses(const ir::Graph& graph, const std::vector<ir::Value*>& parameters, const std::set<std::string>& tables = {});

  /// Of a parameter of rank 2 that is the matrix of products: how many outputs it makes of how many inputs, in whichever order it
  /// is stored. None for other ranks and for what is gathered from, which is an embedding, whatever else reads it. Where no product
  /// reads it, rows are outputs.
  std::optional<MatrixSize> matrix_size(const ir::Value* parameter) const;

 private:
  struct Use {
    bool is_gathered = false;
    std::optional<bool> inputs_first;  ///< its first product reads [inputs, outputs]
  };
  std::unordered_map<const ir::Value*, Use> uses_;
};

}  // namespace gcomp::passes
