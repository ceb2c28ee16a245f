// Graphs drawn at random from the ops that networks are made of: what nobody thought of writing a test for.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/graph.h"

namespace gcomp::tests {

/// Inputs x0, x1, ... of floats and, of them, a scalar loss, which is the first output; some values on the way are outputs too.
struct RandomGraph {
  ir::Graph graph;
  std::map<std::string, Tensor> values;  ///< of every input
};

/// Whether the loss is of many values, or of a part of the last one: most steps are then of the value before.
enum class LossOf : std::uint8_t { many_values, a_part_of_the_last };

/// A function of the seed alone, on every platform. `dtype` is that of all floats.
RandomGraph random_graph(std::uint64_t seed, DType dtype, LossOf loss = LossOf::many_values);

/// Appends the loss's gradient with respect to every input; they follow the other outputs, in the inputs' order.
void append_gradients(ir::Graph& graph);

}  // namespace gcomp::tests
