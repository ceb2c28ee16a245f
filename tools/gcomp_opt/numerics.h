// Runs graphs on the reference interpreter with random values, to show that passes keep their meaning.
//
// Comments in the file steer the values; without them floats lie in [-2, 2] and integers in [0, 1]:
//   // range %x 0 9
//   // value %x f32[2] [0.5, -1]
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/interpret.h"

namespace gcomp::opt {

struct Directives {
  std::map<std::string, std::pair<double, double>> ranges;
  std::map<std::string, Tensor> values;
  std::map<std::string, std::string> places;  ///< where each stands: "model.gir:3"
};
/// Throws UserError on a malformed directive.
Directives read_directives(std::string_view text, const std::string& file, int first_line);

/// Names of the graph's inputs and states, for which there may be directives.
void add_names(const ir::Graph& graph, std::set<std::string>& names);
/// Of directives for something else. A file's runs may come to different graphs, so that one is no error.
std::vector<std::string> notes_of_unused(const Directives& directives, const std::set<std::string>& names);

using Values = std::map<std::string, Tensor>;
/// A value for each input and state of `graph`, added to `values` where it has none: a pure function of name, type, seed and
/// directives. States with an initial fill keep it.
void add_values(const ir::Graph& graph, const Directives& directives, std::uint64_t seed, Values& values);

/// Throws InternalError where an output or a state update of `before` differs in `after`, whose further outputs do not
/// count. Integers and bools are compared exactly; floats to 1e-9 of the largest value in the array where the graphs hold
/// only f64, 1e-4 with f32, 2e-2 with f16 and 1e-1 with bf16. Gives one line that says what agrees.
std::string compare(const ir::Graph& before, const ir::Graph& after, const Values& values);

/// Outputs and new states as text, one a line.
std::string interpreted(const ir::Graph& graph, const Values& values);

}  // namespace gcomp::opt
