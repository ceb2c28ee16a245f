#include "tools/gcomp/run_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/files/atomic_file.h"

namespace gcomp::tools {
namespace {

using nlohmann::json;
using Kind = ArgumentValue::Kind;

constexpr std::uintmax_t kLargestConfig = 1 << 20;
/// How the command is started, not what it does.
constexpr std::string_view kNotConfigured[] = {"config",    "print-config", "plan-only", "resume",
                                               "overwrite", "json",         "quiet",     "verbose"};

bool is_configured(const std::string& name) { return std::ranges::count(kNotConfigured, name) == 0; }

[[noreturn]] void refuse_config(const std::string& path, const std::string& why, ExitCode code = ExitCode::usage) {
  throw UserError(concat("--config ", path, ": ", why), code);
}

const ArgumentValue* find_spelling(const std::vector<ArgumentValue>& known, std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  for (const ArgumentValue& value : known)
    if (std::ranges::count(value.spellings, name) > 0) return &value;
  return nullptr;
}

/// Names of what the words give, positional arguments in their order; the value of --config.
struct GivenWords {
  std::set<std::string> names;
  std::string config;
};

GivenWords given_words(const std::vector<std::string>& words, const std::vector<ArgumentValue>& known) {
  GivenWords given;
  std::vector<std::string> positional;
  for (const ArgumentValue& value : known)
    if (value.positional) positional.push_back(value.name);
  std::size_t next_positional = 0;
  for (std::size_t i = 2; i < words.size(); ++i) {
    const ArgumentValue* value = find_spelling(known, words[i]);
    if (!value) {
      if (!words[i].starts_with('-') && next_positional < positional.size()) given.names.insert(positional[next_positional++]);
      continue;
    }
    given.names.insert(value->name);
    const std::size_t equals = words[i].find('=');
    const bool takes_next = value->kind != Kind::flag && value->kind != Kind::mode && equals == std::string::npos;
    if (value->name == "config")
      given.config = takes_next ? (i + 1 < words.size() ? words[i + 1] : "") : words[i].substr(equals + 1);
    i += takes_next;
  }
  return given;
}

json read_config(const std::string& path) {
  const std::vector<std::byte> bytes = runtime::read_file(path, kLargestConfig);
  const json object = json::parse(reinterpret_cast<const char*>(bytes.data()),
                                  reinterpret_cast<const char*>(bytes.data()) + bytes.size(), nullptr, false);
  if (!object.is_object()) refuse_config(path, "it is no JSON object, wanted {\"lr\": 0.001, ...}", ExitCode::invalid);
  return object;
}

std::string word_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// The words that give an option this value; none for what is not given.
std::vector<std::string> words_of(const ArgumentValue& option, const json& value, const std::string& path) {
  const auto wanted = [&](const char* what) {
    refuse_config(path, concat("'", option.name, "' is ", value.dump(), ", wanted ", what));
  };
  if (value.is_null()) return {};
  const std::string flag = option.positional ? "" : option.spellings.front();
  // A mode that is on is true; false, which earlier versions wrote for off, is the default.
  if (option.kind == Kind::flag || (option.kind == Kind::mode && value.is_boolean())) {
    if (!value.is_boolean()) wanted("true or false");
    return value.get<bool>() ? std::vector{flag} : std::vector<std::string>();
  }
  if (option.kind == Kind::repeated) {
    if (!value.is_array()) wanted("a list");
    std::vector<std::string> words;
    for (const json& one : value) words.push_back(concat(flag, "=", word_of(one)));
    return words;
  }
  if (value.is_structured()) wanted(option.kind == Kind::number ? "a number" : "text");
  return {option.positional ? word_of(value) : concat(flag, "=", word_of(value))};
}

json typed(const ArgumentValue& option, const std::string& text) {
  if (option.kind != Kind::number) return text;
  const json number = json::parse(text, nullptr, false);
  return number.is_number() ? number : json(text);
}

json value_of(const ArgumentValue& option) {
  if (option.kind == Kind::flag) return !option.given.empty();
  if (option.kind == Kind::repeated) return option.given;
  if (option.kind == Kind::mode) {
    const std::string& mode = option.given.empty() ? option.fallback : option.given.back();
    return mode == "on" ? json(true) : json(mode);
  }
  if (!option.given.empty()) return typed(option, option.given.front());
  return option.fallback.empty() ? json() : typed(option, option.fallback);
}

/// For a POSIX shell.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

ExpandedCommand with_config_file(std::vector<std::string> arguments, const ArgumentParser& parser) {
  const std::vector<ArgumentValue> known = parser.values();
  const GivenWords given = given_words(arguments, known);
  ExpandedCommand expanded{std::move(arguments), {}};
  if (given.config.empty()) return expanded;
  std::vector<std::string> names;
  for (const ArgumentValue& value : known)
    if (is_configured(value.name)) names.push_back(value.name);
  const json config = read_config(given.config);
  for (const auto& [name, entry] : config.items()) {
    const auto option = std::ranges::find(known, name, &ArgumentValue::name);
    if (option == known.end() || !is_configured(name))
      refuse_config(given.config, concat("'", name, "' is no option of this command", did_you_mean(name, names)));
    const bool with_origin = entry.is_object() && entry.contains("value");
    if (given.names.contains(name) || (with_origin && entry.value("from", "") == "default")) continue;
    const std::vector<std::string> words = words_of(*option, with_origin ? entry.at("value") : entry, given.config);
    if (!words.empty()) expanded.from_file.insert(name);
    const auto where = option->positional ? expanded.arguments.begin() + 2 : expanded.arguments.end();
    expanded.arguments.insert(where, words.begin(), words.end());
  }
  return expanded;
}

json config_json(const ArgumentParser& parser, const std::set<std::string>& from_file) {
  json config = json::object();
  for (const ArgumentValue& option : parser.values()) {
    if (!is_configured(option.name)) continue;
    const char* from = option.given.empty() ? "default" : from_file.contains(option.name) ? "file" : "command line";
    config[option.name] = {{"value", value_of(option)}, {"from", from}};
  }
  return config;
}

std::string resuming_command(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& word : arguments)
    if (word != "--overwrite" && word != "--resume") text += concat(text.empty() ? "" : " ", quoted(word));
  return text + " --resume";
}

}  // namespace gcomp::tools
