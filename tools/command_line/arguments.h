// What both commands declare and parse: options, positional arguments, subcommands, help. CLI11 stays behind this header, for
// each file that includes it takes ten seconds longer to compile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gcomp::tools {

/// A declared option or positional argument. A handle: its calls change what was declared, and chain.
class Argument {
 public:
  explicit Argument(CLI::Option& option) : option_(&option) {}
  Argument required(bool is_required = true);
  /// The heading in --help under which it stands.
  Argument group(const std::string& heading);
  /// What --help shows for the value.
  Argument type_name(const std::string& shown);
  /// The values that are accepted.
  Argument one_of(const std::vector<std::string>& values);

 private:
  CLI::Option* option_;
};

/// The outcome of parsing a command line.
struct Parsed {
  enum class Outcome {
    run,       ///< the variables hold what was given
    answered,  ///< --help or --version: the answer stands on stdout
    refused,
  };
  Outcome outcome = Outcome::run;
  std::string message = {};  ///< of what was refused
  bool unknown = false;      ///< refused for arguments that nothing declares: ArgumentParser::unknown()
};

/// An option or positional argument of a parser, and what it came to.
struct ArgumentValue {
  std::string name;  ///< "lr", without dashes, or the positional argument's
  enum class Kind {
    text,
    number,
    flag,
    mode,  ///< a flag that may name more than on and off
    repeated,
  } kind = Kind::text;
  bool positional = false;
  std::vector<std::string> spellings;  ///< "--out", "-o"
  std::vector<std::string> given;      ///< as the command line has it; empty where it has none
  std::string fallback;                ///< the value where none is given; "" for none
};

/// A command or a subcommand: what it accepts, and the variables that receive it. A handle; copies are the same parser, and the
/// variables must outlive parse(). `names` is "--long,-s", or for a positional argument its name alone.
class ArgumentParser {
 public:
  ArgumentParser(const std::string& description, const std::string& name);

  ArgumentParser add_subcommand(const std::string& name, const std::string& description);
  void require_subcommand();
  void set_footer(const std::string& text);
  void set_version(const std::string& text);

  Argument add_flag(const std::string& names, bool& given, const std::string& meaning);
  /// A flag that may have one of these values behind '=': the first where it is not given, the second where it has none.
  Argument add_mode(const std::string& name, std::string& value, const std::vector<std::string>& values,
                    const std::string& meaning);
  /// An option with one value. A number is decimal, with nothing after it; anything else is refused.
  /// So is an empty text, but where `value` has another at first.
  Argument add_option(const std::string& names, std::string& value, const std::string& meaning);
  Argument add_option(const std::string& names, int& value, const std::string& meaning);
  Argument add_option(const std::string& names, std::int64_t& value, const std::string& meaning);
  Argument add_option(const std::string& names, std::uint64_t& value, const std::string& meaning);
  Argument add_option(const std::string& names, double& value, const std::string& meaning);
  Argument add_option(const std::string& names, std::optional<double>& value, const std::string& meaning);
  Argument add_option(const std::string& names, std::optional<std::int64_t>& value, const std::string& meaning);
  /// An option that takes one value each time it is given.
  Argument add_repeated(const std::string& names, std::vector<std::string>& values, const std::string& meaning);

  /// For the parser of the whole command.
  Parsed parse(int argc, const char* const* argv);

  /// Without the program's: "train", "data inspect".
  std::string name() const;
  /// Whether the subcommand was given.
  bool chosen() const;
  /// Arguments that nothing declares, of subcommands too.
  std::vector<std::string> unknown() const;
  /// The long options that the command line gave, with their dashes.
  std::vector<std::string> given() const;
  /// Every argument but --help.
  std::vector<ArgumentValue> values() const;
  /// Every long and short option, with its dashes.
  std::vector<std::string> option_names() const;

 private:
  explicit ArgumentParser(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}
  Argument declare(Argument declared, const std::string& names, ArgumentValue::Kind kind, std::string fallback);

  std::shared_ptr<CLI::App> app_;
  /// By the first name.
  std::shared_ptr<std::map<std::string, ArgumentValue>> declared_ = std::make_shared<std::map<std::string, ArgumentValue>>();
};

}  // namespace gcomp::tools
