#include "tools/command_line/arguments.h"

#include <CLI/CLI.hpp>
#include <charconv>

namespace gcomp::tools {
namespace {

/// CLI11 alone takes -1 and all that is too large for 2^64 - 1.
std::string refuse_wrapped(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? "" : text + ": wanted a whole number from 0 to 2^64 - 1";
}

}  // namespace

Argument Argument::required() {
  option_->required();
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
  option_->check(CLI::IsMember(values));
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

Argument ArgumentParser::add_flag(const std::string& names, bool& given, const std::string& meaning) {
  return Argument(*app_->add_flag(names, given, meaning));
}

Argument ArgumentParser::add_option(const std::string& names, std::string& value, const std::string& meaning) {
  return Argument(*app_->add_option(names, value, meaning));
}

Argument ArgumentParser::add_option(const std::string& names, int& value, const std::string& meaning) {
  return Argument(*app_->add_option(names, value, meaning));
}

Argument ArgumentParser::add_option(const std::string& names, std::int64_t& value, const std::string& meaning) {
  return Argument(*app_->add_option(names, value, meaning));
}

Argument ArgumentParser::add_option(const std::string& names, std::uint64_t& value, const std::string& meaning) {
  return Argument(*app_->add_option(names, value, meaning)->check(refuse_wrapped));
}

Argument ArgumentParser::add_option(const std::string& names, double& value, const std::string& meaning) {
  return Argument(*app_->add_option(names, value, meaning));
}

Argument ArgumentParser::add_option(const std::string& names, std::optional<double>& value, const std::string& meaning) {
  return Argument(*app_->add_option(names, value, meaning));
}

Argument ArgumentParser::add_repeated(const std::string& names, std::vector<std::string>& values, const std::string& meaning) {
  return Argument(*app_->add_option(names, values, meaning)->allow_extra_args(false));
}

Parsed ArgumentParser::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
    return {};
  } catch (const CLI::Success& wanted) {
    app_->exit(wanted);
    return {.outcome = Parsed::Outcome::answered};
  } catch (const CLI::ParseError& error) {
    const std::string message = error.what();
    const bool one_wanted = message.find("At Most 1") != std::string::npos;
    return {.outcome = Parsed::Outcome::refused,
            .message = message,
            .unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr,
            .given_twice = one_wanted && dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr};
  }
}

std::string ArgumentParser::name() const { return app_->get_name(); }
bool ArgumentParser::chosen() const { return app_->parsed(); }
std::vector<std::string> ArgumentParser::unknown() const { return app_->remaining(); }

std::vector<std::string> ArgumentParser::given() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options())
    if (option->count() > 0)
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
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
