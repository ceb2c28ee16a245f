#include "tools/command_line/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "tools/command_line/numbers.h"

namespace gcomp::tools {
namespace {

/// The name that messages call an option by: its first one.
std::string shown_name(const std::string& names) { return names.substr(0, names.find(',')); }

/// The number that receives the value.
template <class Number>
Number& number_of(Number& value) {
  return value;
}
template <class Number>
Number& number_of(std::optional<Number>& value) {
  return value.emplace();
}

/// An option whose one value is read as a number.
template <class Number>
Argument add_number(CLI::App& app, const std::string& names, Number& value, const std::string& meaning) {
  const auto read = [name = shown_name(names), &value](const CLI::results_t& given) {
    const std::string& text = given.at(0);
    if (const std::string complaint = read_number(text, number_of(value)); !complaint.empty())
      throw CLI::ValidationError(concat(name, " ", text.empty() ? "''" : text, ": ", complaint));
    return true;
  };
  return Argument(*app.add_option(names, read, meaning)).type_name("N");
}

/// The subcommand that was given, or the command itself.
const CLI::App& chosen_app(const CLI::App& root) {
  const std::vector<CLI::App*> chosen = root.get_subcommands();
  return chosen.empty() ? root : chosen_app(*chosen.front());
}

std::string what_is_missing(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (option->get_required() && option->count() == 0) names.push_back(option->get_name());
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) text += concat(i == 0 ? "" : i + 1 == names.size() ? " and " : ", ", names[i]);
  return concat(text, names.size() == 1 ? " is missing" : " are missing");
}

/// A value where none is taken, none where one is, or too many.
std::string mismatch(const CLI::App& app, const std::string& message) {
  const std::string name = message.substr(0, message.find_first_of(": "));
  const CLI::Option* option = app.get_option_no_throw(name);
  if (!option) option = app.get_option_no_throw("--" + name);
  if (option && option->get_expected_max() == 0) return option->get_name() + " takes no value";
  if (option && option->count() > 1) return name + " is given more than once";
  return concat(name, " needs a value", option ? concat(": ", name, " ", option->get_type_name()) : "");
}

/// What was refused, in gcomp's words.
std::string explain(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App& app = chosen_app(root);
  if (dynamic_cast<const CLI::RequiredError*>(&error)) return what_is_missing(app);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) return mismatch(app, error.what());
  std::string message = error.what();
  const std::size_t colon = message.find(": ");
  if (colon != message.npos && app.get_option_no_throw(message.substr(0, colon))) {
    const bool names_itself = message.compare(colon + 2, colon + 1, message.substr(0, colon) + "=") == 0;
    message.erase(names_itself ? 0 : colon, names_itself ? colon + 2 : 1);  // "--tune=foo: ...", "ACTION foo: wanted ..."
  }
  return message;
}

}  // namespace

Argument Argument::required(bool is_required) {
  option_->required(is_required);
  return *this;
}

Argument Argument::group(const std::string& heading) {
  option_->group(heading);
  return *this;
}

Argument Argument::type_name(const std::string& shown) {
  option_->type_name(shown);
  return *this;
}

Argument Argument::one_of(const std::vector<std::string>& values) {
  option_->check([values](const std::string& text) -> std::string {
    if (std::find(values.begin(), values.end(), text) != values.end()) return "";
    return concat(text, ": wanted one of ", listing(values), did_you_mean(text, values));
  });
  return *this;
}

ArgumentParser::ArgumentParser(const std::string& description, const std::string& name)
    : app_(std::make_shared<CLI::App>(description, name)) {}

ArgumentParser ArgumentParser::add_subcommand(const std::string& name, const std::string& description) {
  return ArgumentParser(std::shared_ptr<CLI::App>(app_, app_->add_subcommand(name, description)));
}

void ArgumentParser::require_subcommand() { app_->require_subcommand(1); }
void ArgumentParser::set_footer(const std::string& text) { app_->footer(text); }
void ArgumentParser::set_version(const std::string& text) { app_->set_version_flag("--version", text); }

Argument ArgumentParser::declare(Argument declared, const std::string& names, ArgumentValue::Kind kind, std::string fallback) {
  ArgumentValue& value = (*declared_)[shown_name(names)];
  value.kind = kind;
  value.fallback = std::move(fallback);
  return declared;
}

Argument ArgumentParser::add_flag(const std::string& names, bool& given, const std::string& meaning) {
  return declare(Argument(*app_->add_flag(names, given, meaning)->disable_flag_override()), names, ArgumentValue::Kind::flag, "");
}

Argument ArgumentParser::add_mode(const std::string& name, std::string& value, const std::vector<std::string>& values,
                                  const std::string& meaning) {
  value = values[0];
  CLI::Option* option = app_->add_flag(name, value, meaning);
  option->check([name, values](const std::string& given) -> std::string {
    if (std::ranges::count(values, given) > 0) return "";
    return concat(name, "=", given, ": wanted ", name, " alone, or with one of ", listing(values), did_you_mean(given, values));
  });
  // What CLI11 has for a flag alone; the last one that is added comes first.
  option->transform([alone = values[1]](const std::string& given) { return given == "true" ? alone : given; });
  return declare(Argument(*option), name, ArgumentValue::Kind::mode, values[0]);
}

Argument ArgumentParser::add_option(const std::string& names, std::string& value, const std::string& meaning) {
  CLI::Option* option = app_->add_option(names, value, meaning);
  // Where "" stands for an option that is not given, one that is given so, as by a script whose variable is unset, would be lost.
  if (value.empty())
    option->check([option](const std::string& given) -> std::string {
      return given.empty() ? concat("is empty: wanted ", option->get_type_name()) : "";
    });
  return declare(Argument(*option), names, ArgumentValue::Kind::text, value);
}

Argument ArgumentParser::add_option(const std::string& names, int& value, const std::string& meaning) {
  return declare(add_number(*app_, names, value, meaning), names, ArgumentValue::Kind::number, concat(value));
}

Argument ArgumentParser::add_option(const std::string& names, std::int64_t& value, const std::string& meaning) {
  return declare(add_number(*app_, names, value, meaning), names, ArgumentValue::Kind::number, concat(value));
}

Argument ArgumentParser::add_option(const std::string& names, std::uint64_t& value, const std::string& meaning) {
  return declare(add_number(*app_, names, value, meaning), names, ArgumentValue::Kind::number, concat(value));
}

Argument ArgumentParser::add_option(const std::string& names, double& value, const std::string& meaning) {
  return declare(add_number(*app_, names, value, meaning), names, ArgumentValue::Kind::number, concat(value));
}

Argument ArgumentParser::add_option(const std::string& names, std::optional<double>& value, const std::string& meaning) {
  return declare(add_number(*app_, names, value, meaning), names, ArgumentValue::Kind::number, value ? concat(*value) : "");
}

Argument ArgumentParser::add_option(const std::string& names, std::optional<std::int64_t>& value, const std::string& meaning) {
  return declare(add_number(*app_, names, value, meaning), names, ArgumentValue::Kind::number, value ? concat(*value) : "");
}

Argument ArgumentParser::add_repeated(const std::string& names, std::vector<std::string>& values, const std::string& meaning) {
  return declare(Argument(*app_->add_option(names, values, meaning)->allow_extra_args(false)), names, ArgumentValue::Kind::repeated,
                 "");
}

Parsed ArgumentParser::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
    return {};
  } catch (const CLI::Success& wanted) {
    app_->exit(wanted);
    return {.outcome = Parsed::Outcome::answered};
  } catch (const CLI::ParseError& error) {
    return {.outcome = Parsed::Outcome::refused,
            .message = explain(*app_, error),
            .unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr};
  }
}

std::string ArgumentParser::name() const {
  std::string name = app_->get_name();
  for (const CLI::App* above = app_->get_parent(); above && above->get_parent(); above = above->get_parent())
    name = above->get_name() + " " + name;
  return name;
}
bool ArgumentParser::chosen() const { return app_->parsed(); }
std::vector<std::string> ArgumentParser::unknown() const { return app_->remaining(true); }

std::vector<std::string> ArgumentParser::given() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options())
    if (option->count() > 0)
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<ArgumentValue> ArgumentParser::values() const {
  std::vector<ArgumentValue> all;
  for (const CLI::Option* option : app_->get_options()) {
    std::vector<std::string> spellings;
    for (const std::string& name : option->get_lnames()) spellings.push_back("--" + name);
    for (const std::string& name : option->get_snames()) spellings.push_back("-" + name);
    const std::string first = spellings.empty() ? option->get_name() : spellings.front();
    const auto declared = declared_->find(first);
    if (declared == declared_->end()) continue;
    ArgumentValue& value = all.emplace_back(declared->second);
    value.positional = option->get_positional();
    value.name = first.substr(value.positional ? 0 : 2);
    value.spellings = std::move(spellings);
    value.given = option->results();
  }
  return all;
}

std::vector<std::string> ArgumentParser::option_names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

}  // namespace gcomp::tools
