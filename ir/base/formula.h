// Small expressions in options' texts: how losses, optimizers, schedules and metrics are written.
//
//   adamw(betas=[0.9, 0.95], weight_decay=0.1)
//   0.7*cross_entropy(logits, label, label_smoothing=0.1) + 0.3*mse("aux:0", target)
//
//   sum := product (('+' | '-') product)*        product := factor (('*' | '/') factor)*        factor := '-' factor | primary
//   primary := number | '(' sum ')' | list | name | name '(' [argument (',' argument)*] ')'
//   argument := sum | word '=' sum               list := '[' [sum (',' sum)*] ']'
//   name := word | "text in double or single quotes", for names that are no identifiers
//
// A word has letters, digits, '_', '.' and '/', and does not begin with a digit. Spaces mean nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/error.h"

namespace gcomp {

/// A node of the tree. Only the fields that its kind names are used.
struct Formula {
  enum class Kind : std::uint8_t {
    number,  ///< value, and text as it was written
    name,    ///< text, quoted
    list,    ///< operands
    call,    ///< text, operands, options
    negate,  ///< operands[0]
    add,     ///< operands[0] + operands[1]; so on
    subtract,
    multiply,
    divide,
  };
  class Option {
   public:
    Option(std::string name, Formula value, std::size_t begin);

    const Formula& value() const { return value_.front(); }
    Formula& value() { return value_.front(); }

    std::string name;
    std::size_t begin;

   private:
    std::vector<Formula> value_;  // one, which is not whole before the formula is
  };

  Kind kind = Kind::name;
  std::string text = {};
  bool quoted = false;
  double value = 0;
  std::vector<Formula> operands = {};
  std::vector<Option> options = {};  ///< in their order; no name twice
  std::size_t begin = 0, end = 0;    ///< where it stands in the text, in bytes
};

/// Throws UserError (exit 2) that shows where. `what` begins its messages, as "--loss" does.
Formula parse_formula(std::string_view text, std::string_view what);
/// Formulas between commas, one or more. Throws as parse_formula().
std::vector<Formula> parse_formulas(std::string_view text, std::string_view what);

/// The name as it is written: quoted where it is no word.
std::string quoted_name(std::string_view name);

/// Throws UserError: WHAT: MESSAGE, at column N: "TEXT" with the part between `begin` and `end` marked.
[[noreturn]] void fail_at(std::string_view what, std::string_view text, std::size_t begin, std::size_t end,
                          std::string_view message, ExitCode code = ExitCode::usage);

}  // namespace gcomp
