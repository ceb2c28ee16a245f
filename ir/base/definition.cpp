#include "ir/base/definition.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/base/overloaded.h"

namespace gcomp {
namespace {

using Kind = Formula::Kind;

constexpr std::string_view kNone = "none";

std::string shortest(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string joined(std::span<const std::string> parts, std::string_view between) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : std::string(between)) + part;
  return all;
}

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

const OptionDef* find_option(const Definition& definition, std::string_view name) {
  for (const OptionDef& option : definition.options)
    if (option.name == name) return &option;
  return nullptr;
}

const OptionDef& option_of(const Definition& definition, std::string_view name) {
  const OptionDef* option = find_option(definition, name);
  check_internal(option, definition.name, " has no option '", name, "'");
  return *option;
}

/// "a number of at least 0 and less than 1"
std::string wanted(const OptionDef& option) {
  std::string what;
  switch (option.kind) {
    case OptionKind::boolean: return "true or false";
    case OptionKind::word: return option.choices.empty() ? "a name" : listing(parts_of(option.choices, '|'));
    case OptionKind::number: what = "a number"; break;
    case OptionKind::integer: what = "a whole number"; break;
    case OptionKind::numbers:
      what = option.count > 0 ? concat("a list of ", option.count, " numbers") : std::string("a list of numbers");
      break;
    case OptionKind::weights: return "a list of numbers, the name of an array, or none";
  }
  std::vector<std::string> bounds;
  if (std::isfinite(option.low)) bounds.push_back(concat(option.above ? "above " : "of at least ", shortest(option.low)));
  if (std::isfinite(option.high)) bounds.push_back(concat(option.below ? "below " : "of at most ", shortest(option.high)));
  if (!bounds.empty()) what += " " + joined(bounds, " and ");
  return option.nullable ? what + ", or none" : what;
}

bool is_within(const OptionDef& option, double x) {
  return (option.above ? x > option.low : x >= option.low) && (option.below ? x < option.high : x <= option.high);
}

/// The value as this option's kind has it, or nothing where it does not fit.
std::optional<OptionValue> fitting(const OptionDef& option, const OptionValue& value) {
  const auto number = [](const OptionValue& v) -> std::optional<double> {
    if (const auto* i = std::get_if<std::int64_t>(&v)) return static_cast<double>(*i);
    if (const auto* d = std::get_if<double>(&v)) return *d;
    return std::nullopt;
  };
  if (std::holds_alternative<std::monostate>(value)) return option.nullable ? std::optional(value) : std::nullopt;
  switch (option.kind) {
    case OptionKind::boolean:
      if (std::holds_alternative<bool>(value)) return value;
      return std::nullopt;
    case OptionKind::word: {
      const auto* word = std::get_if<std::string>(&value);
      if (word && (option.choices.empty() || std::ranges::count(parts_of(option.choices, '|'), *word) > 0)) return value;
      return std::nullopt;
    }
    case OptionKind::number:
      if (const auto x = number(value); x && is_within(option, *x)) return *x;
      return std::nullopt;
    case OptionKind::integer: {
      const auto x = number(value);
      if (!x || !is_within(option, *x) || *x != std::floor(*x) || std::abs(*x) > 0x1p53) return std::nullopt;
      return static_cast<std::int64_t>(*x);
    }
    case OptionKind::numbers: {
      const auto* list = std::get_if<std::vector<double>>(&value);
      if (!list || (option.count > 0 && list->size() != option.count)) return std::nullopt;
      return std::ranges::all_of(*list, [&](double x) { return is_within(option, x); }) ? std::optional(value) : std::nullopt;
    }
    case OptionKind::weights: {
      if (std::holds_alternative<bool>(value)) return std::nullopt;
      if (const auto x = number(value)) return std::vector<double>{*x};
      return value;
    }
  }
  return std::nullopt;
}

/// A value as it is written, whatever option it is for; nothing for what is no value.
std::optional<OptionValue> read_value(const Formula& e) {
  if (e.kind == Kind::number) return e.value;
  if (e.kind == Kind::name && !e.quoted && (e.text == kNone || e.text == "None")) return std::monostate();
  if (e.kind == Kind::name && !e.quoted && (e.text == "true" || e.text == "True")) return true;
  if (e.kind == Kind::name && !e.quoted && (e.text == "false" || e.text == "False")) return false;
  if (e.kind == Kind::name) return e.text;
  if (e.kind != Kind::list) return std::nullopt;
  std::vector<double> list;
  for (const Formula& element : e.operands) {
    if (element.kind != Kind::number) return std::nullopt;
    list.push_back(element.value);
  }
  return list;
}

std::string written(const OptionValue& value) {
  return std::visit(
      Overloaded{[](std::monostate) { return std::string(kNone); }, [](bool b) { return std::string(b ? "true" : "false"); },
                 [](std::int64_t i) { return std::to_string(i); }, [](double d) { return shortest(d); },
                 [](const std::string& s) { return quoted_name(s); },
                 [](const std::vector<double>& list) {
                   std::vector<std::string> parts;
                   for (double x : list) parts.push_back(shortest(x));
                   return "[" + joined(parts, ", ") + "]";
                 }},
      value);
}

std::vector<std::string> option_names(const Definition& definition) {
  std::vector<std::string> names;
  for (const OptionDef& option : definition.options) names.emplace_back(option.name);
  return names;
}

}  // namespace

bool Options::knows(std::string_view option) const { return find_option(*definition_, option) != nullptr; }

bool Options::has(std::string_view option) const { return !std::holds_alternative<std::monostate>(value(option)); }

OptionValue Options::value(std::string_view option) const {
  if (const auto found = given_.find(option); found != given_.end()) return found->second;
  const OptionDef& def = option_of(*definition_, option);
  check_internal(!def.fallback.empty(), definition_->name, " has no ", option);
  const auto value = read_value(parse_formula(def.fallback, definition_->name));
  const auto fits = value ? fitting(def, *value) : std::nullopt;
  check_internal(fits.has_value(), definition_->name, ": the default of ", option, " is '", def.fallback, "', wanted ",
                 wanted(def));
  return *fits;
}

double Options::number(std::string_view option) const { return std::get<double>(value(option)); }
std::int64_t Options::integer(std::string_view option) const { return std::get<std::int64_t>(value(option)); }
bool Options::boolean(std::string_view option) const { return std::get<bool>(value(option)); }
std::string Options::word(std::string_view option) const { return std::get<std::string>(value(option)); }
bool Options::is_name(std::string_view option) const { return std::holds_alternative<std::string>(value(option)); }
std::vector<double> Options::numbers(std::string_view option) const { return std::get<std::vector<double>>(value(option)); }

void Options::set(std::string_view option, OptionValue value, std::string_view what) {
  const OptionDef* def = find_option(*definition_, option);
  if (!def) throw UserError(concat(what, " is no option of ", definition_->name), ExitCode::usage);
  const auto fits = fitting(*def, value);
  if (!fits) throw UserError(concat(what, ": found ", written(value), ", wanted ", wanted(*def)), ExitCode::usage);
  given_.insert_or_assign(std::string(option), *fits);
}

std::string Options::text() const {
  std::vector<std::string> parts;
  for (const OptionDef& option : definition_->options)
    if (const auto found = given_.find(option.name); found != given_.end())
      parts.push_back(concat(option.name, "=", written(found->second)));
  return parts.empty() ? std::string(definition_->name) : concat(definition_->name, "(", joined(parts, ", "), ")");
}

const Definition* find_definition(std::span<const Definition* const> table, std::string_view name) {
  for (const Definition* entry : table)
    if (entry->name == name) return entry;
  return nullptr;
}

const Definition& definition_at(std::span<const Definition* const> table, std::string_view kind, const Formula& named,
                                std::string_view what, std::string_view text) {
  if (const Definition* found = find_definition(table, named.text)) return *found;
  std::vector<std::string> names;
  for (const Definition* entry : table) names.emplace_back(entry->name);
  const std::string message =
      concat("unknown ", kind, " '", named.text, "', wanted one of: ", names_of(table), did_you_mean(named.text, names));
  if (named.begin == 0 && named.end == text.size()) throw UserError(message, ExitCode::usage);
  fail_at(what, text, named.begin, named.begin + named.text.size(), message);
}

class OptionReader {
 public:
  OptionReader(const Definition& definition, std::string_view what, std::string_view text)
      : definition_(definition), what_(what), text_(text), options_(definition) {}

  Options read(const Formula& call) {
    for (const Formula::Option& given : call.options) read_one(given);
    for (const OptionDef& option : definition_.options)
      if (option.fallback.empty() && !options_.given(option.name))
        fail_at(what_, text_, call.begin, call.end, concat(definition_.name, " needs ", option.name, "=", wanted(option)));
    return std::move(options_);
  }

 private:
  void read_one(const Formula::Option& given) {
    const OptionDef* def = find_option(definition_, given.name);
    if (!def) {
      const std::vector<std::string> names = option_names(definition_);
      fail_at(
          what_, text_, given.begin, given.begin + given.name.size(),
          concat(definition_.name, " has no option '", given.name, "', wanted ", listing(names), did_you_mean(given.name, names)));
    }
    const Formula& written = given.value();
    const auto value = read_value(written);
    const auto fits = value ? fitting(*def, *value) : std::nullopt;
    if (!fits)
      fail_at(what_, text_, written.begin, written.end,
              concat(given.name, ": found ", text_.substr(written.begin, written.end - written.begin), ", wanted ", wanted(*def)));
    options_.given_.emplace(given.name, *fits);
  }

  const Definition& definition_;
  std::string_view what_, text_;
  Options options_;
};

Options read_options(const Definition& definition, const Formula& call, std::string_view what, std::string_view text) {
  return OptionReader(definition, what, text).read(call);
}

Options parse_call(std::string_view text, std::span<const Definition* const> table, std::string_view kind, std::string_view what) {
  const Formula call = parse_formula(text, what);
  if (call.kind != Kind::name && call.kind != Kind::call)
    fail_at(what, text, call.begin, call.end, concat("wanted the name of one ", kind, ", or NAME(option=value, ...)"));
  const Definition& definition = definition_at(table, kind, call, what, text);
  if (!call.operands.empty())
    fail_at(what, text, call.operands[0].begin, call.operands[0].end,
            concat(definition.name, ": options are written NAME=VALUE; there is ", listing(option_names(definition))));
  return read_options(definition, call, what, text);
}

std::string names_of(std::span<const Definition* const> table, std::string_view option) {
  std::vector<std::string> names;
  for (const Definition* entry : table)
    if (option.empty() || find_option(*entry, option)) names.emplace_back(entry->name);
  return joined(names, ", ");
}

std::string describe(std::span<const Definition* const> table) {
  std::string text;
  for (const Definition* entry : table) {
    std::vector<std::string> parts;
    if (!entry->arguments.empty()) parts.emplace_back(entry->arguments);
    for (const OptionDef& option : entry->options)
      parts.push_back(option.fallback.empty() ? concat(option.name, "=...") : concat(option.name, "=", option.fallback));
    text += concat(entry->name, parts.empty() ? "" : concat("(", joined(parts, ", "), ")"), "\n    ", entry->summary, "\n");
  }
  return text;
}

std::string describe(const Definition& definition) {
  std::string text = concat(definition.name, definition.arguments.empty() ? "" : concat("(", definition.arguments, ")"), ": ",
                            definition.summary, "\n");
  for (const OptionDef& option : definition.options)
    text += concat("  ", option.name, "  ", option.summary, " (", wanted(option),
                   option.unit.empty() ? "" : concat(", in ", option.unit),
                   option.fallback.empty() ? "; has to be given" : concat("; default ", option.fallback), ")\n");
  return text;
}

}  // namespace gcomp
