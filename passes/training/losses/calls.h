// The calls of losses and metrics as they stand in their text, before any model is known.
#pragma once

#include <string>
#include <vector>

#include "passes/training/losses/loss.h"
#include "passes/training/losses/rule.h"

namespace gcomp::passes {

/// An argument of a call, or an array that an option names.
struct CallOperand {
  std::string name;                     ///< for messages
  const Formula* expression = nullptr;  ///< none for what a call without arguments looks at, and for an option's array
  bool is_output = false;               ///< the first output of floats, or FormulaSpec::output
};

struct Call {
  const Formula* expression = nullptr;
  CallRule rule = {};
  Options options = {};
  std::vector<CallOperand> operands = {};    ///< arguments, then what options name
  std::vector<std::string_view> named = {};  ///< the options behind the arguments
};
/// Throws UserError (exit 2) at its place in the text.
Call read_call(const FormulaSpec& spec, const Formula& call, const CallRule& rule, Options options);
/// Names that may be outputs of a model; "" stands for the first output of floats.
void collect_possible_outputs(const FormulaSpec& spec, const Call& call, std::vector<std::string>& names);
/// Names that may be arrays of the data.
void collect_possible_arrays(const Call& call, std::vector<std::string>& names);

/// A leaf of a loss that is no number: a call, a name that stands for a scalar output, or a graph.
struct LossTerm {
  const Formula* expression = nullptr;
  const LossRule* rule = nullptr;  ///< null for a name and for a graph
  Call call = {};
};

/// In the order of the text. Throws UserError (exit 2) at its place in it.
std::vector<LossTerm> terms_of(const LossSpec& loss);

/// Throws UserError at the place of an expression; without a place where that is the whole text.
[[noreturn]] void fail_in(const FormulaSpec& spec, const Formula& where, ExitCode code, std::string_view message);

}  // namespace gcomp::passes
