// What a thing with options has: losses, optimizers, schedules and metrics are tables of definitions. Parsing, help texts, messages
// with the nearest name and documents follow from them.
//
//   constexpr OptionDef kOptions[] = {
//       OptionDef::number("alpha", "0.99").within(0, 1).says("decay of the mean square"),
//       OptionDef::boolean("centered", "false").says("the gradient's mean is subtracted from its mean square"),
//   };
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/formula.h"

namespace gcomp {

enum class OptionKind : std::uint8_t {
  number,
  integer,
  boolean,
  word,
  numbers,
  weights,  ///< a number, a list of them, or the name of an array
};

struct OptionDef {
  std::string_view name;
  OptionKind kind = OptionKind::number;
  /// As it would be written; "" where it has to be given.
  std::string_view fallback;
  std::string_view summary;
  /// Of a number and of each in a list.
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool above = false;             ///< low itself is excluded
  bool below = false;             ///< high itself is excluded
  std::string_view choices = {};  ///< of a word: "mean|sum"; "" for any
  std::size_t count = 0;          ///< of numbers: how many; 0 for any
  std::string_view unit = {};
  bool nullable = false;  ///< may be "none"

  static constexpr OptionDef number(std::string_view name, std::string_view fallback) {
    return {name, OptionKind::number, fallback, {}};
  }
  static constexpr OptionDef integer(std::string_view name, std::string_view fallback) {
    return {name, OptionKind::integer, fallback, {}};
  }
  static constexpr OptionDef boolean(std::string_view name, std::string_view fallback) {
    return {name, OptionKind::boolean, fallback, {}};
  }
  static constexpr OptionDef word(std::string_view name, std::string_view fallback, std::string_view choices) {
    OptionDef made{name, OptionKind::word, fallback, {}};
    made.choices = choices;
    return made;
  }
  static constexpr OptionDef numbers(std::string_view name, std::string_view fallback, std::size_t count = 0) {
    OptionDef made{name, OptionKind::numbers, fallback, {}};
    made.count = count;
    return made;
  }
  static constexpr OptionDef weights(std::string_view name) {
    OptionDef made{name, OptionKind::weights, "none", {}};
    made.nullable = true;
    return made;
  }
  constexpr OptionDef says(std::string_view text) const {
    OptionDef made = *this;
    made.summary = text;
    return made;
  }
  constexpr OptionDef of_unit(std::string_view text) const {
    OptionDef made = *this;
    made.unit = text;
    return made;
  }
  constexpr OptionDef or_none() const {
    OptionDef made = *this;
    made.nullable = true;
    return made;
  }
  constexpr OptionDef at_least(double value) const {
    OptionDef made = *this;
    made.low = value;
    return made;
  }
  constexpr OptionDef more_than(double value) const {
    OptionDef made = at_least(value);
    made.above = true;
    return made;
  }
  constexpr OptionDef at_most(double value) const {
    OptionDef made = *this;
    made.high = value;
    return made;
  }
  constexpr OptionDef less_than(double value) const {
    OptionDef made = at_most(value);
    made.below = true;
    return made;
  }

  constexpr OptionDef(std::string_view n, OptionKind k, std::string_view f, std::string_view s)
      : name(n), kind(k), fallback(f), summary(s) {}
};

struct Definition {
  std::string_view name;
  std::string_view summary;
  std::span<const OptionDef> options = {};
  std::string_view arguments = {};  ///< of what stands before the options: "input, target"
};

/// Nothing is what "none" says.
using OptionValue = std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<double>>;

/// A definition's options with the values that were given. What was not given has its default.
class Options {
 public:
  Options() = default;
  explicit Options(const Definition& definition) : definition_(&definition) {}

  const Definition& definition() const { return *definition_; }
  /// Whether there is such an option at all.
  bool knows(std::string_view option) const;
  bool given(std::string_view option) const { return given_.contains(option); }
  /// Whether it has a value, given or by default: not none.
  bool has(std::string_view option) const;
  double number(std::string_view option) const;
  std::int64_t integer(std::string_view option) const;
  bool boolean(std::string_view option) const;
  std::string word(std::string_view option) const;
  /// Of OptionKind::weights: whether an array's name was given, which word() has, or numbers().
  bool is_name(std::string_view option) const;
  std::vector<double> numbers(std::string_view option) const;
  /// Whether both, which are of one definition, have the same value, given or by default.
  bool agree(const Options& other, std::string_view option) const { return value(option) == other.value(option); }

  /// Checks kind and range. Throws UserError (exit 2) beginning with `what`.
  void set(std::string_view option, OptionValue value, std::string_view what);
  /// Takes over what was given to others of the same definition.
  void take(const Options& others) {
    for (const auto& [option, value] : others.given_) given_.insert_or_assign(option, value);
  }
  /// NAME, or NAME(option=value, ...) with what was given: reads back as these options.
  std::string text() const;

 private:
  friend class OptionReader;
  OptionValue value(std::string_view option) const;

  const Definition* definition_ = nullptr;
  std::map<std::string, OptionValue, std::less<>> given_;
};

/// The definitions of a table of rules, each of which has one.
template <class Rule, std::size_t N>
constexpr std::array<const Definition*, N> definitions_of(const std::array<const Rule*, N>& rules) {
  std::array<const Definition*, N> all{};
  for (std::size_t i = 0; i < N; ++i) all[i] = &rules[i]->definition;
  return all;
}
/// The rule whose options these are: they are made from its definition.
template <class Rule, std::size_t N>
const Rule& rule_of(const std::array<const Rule*, N>& rules, const Options& options) {
  for (const Rule* rule : rules)
    if (&rule->definition == &options.definition()) return *rule;
  throw InternalError(concat("no rule has the definition of ", options.definition().name));
}

/// The definition of this name, or null.
const Definition* find_definition(std::span<const Definition* const> table, std::string_view name);
/// The same; throws UserError (exit 2), at its place in `text`, with what there is and the nearest name.
const Definition& definition_at(std::span<const Definition* const> table, std::string_view kind, const Formula& named,
                                std::string_view what, std::string_view text);

/// The options of a call. Throws UserError (exit 2), at its place in `text`, for an unknown option, a value of another kind or out
/// of range, or one that is missing.
Options read_options(const Definition& definition, const Formula& call, std::string_view what, std::string_view text);

/// Text of a NAME or NAME(option=value, ...) alone: an entry of the table and its options. `kind` is "optimizer".
Options parse_call(std::string_view text, std::span<const Definition* const> table, std::string_view kind, std::string_view what);

/// "sgd, adam, adamw"; with `option`, those that have it.
std::string names_of(std::span<const Definition* const> table, std::string_view option = {});
/// For --help: a line for each definition, "NAME(option=default, ...)  summary".
std::string describe(std::span<const Definition* const> table);
/// One definition with a line for each option: default, range, unit and meaning.
std::string describe(const Definition& definition);

}  // namespace gcomp
