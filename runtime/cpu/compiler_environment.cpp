#include "runtime/cpu/compiler_environment.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string_view>

extern char** environ;

namespace gcomp::runtime::cpu {
namespace {

/// Set by compiler_environment() itself, or without a meaning where there is no terminal.
constexpr std::string_view kReplaced[] = {"LANG",    "LANGUAGE", "TERM",           "TMPDIR",     "TMP",      "TEMP",     "LINES",
                                          "COLUMNS", "NO_COLOR", "CLICOLOR_FORCE", "GCC_COLORS", "GCC_URLS", "TERM_URLS"};
/// GCC's and Clang's: they write dependencies or logs into files, add or remove options, or reword messages.
constexpr std::string_view kDiverting[] = {
    "DEPENDENCIES_OUTPUT",  "SUNPRO_DEPENDENCIES",    "GCC_COMPARE_DEBUG",  "GCC_EXTRA_DIAGNOSTIC_OUTPUT",
    "CCC_OVERRIDE_OPTIONS", "CCC_PRINT_OPTIONS",      "CC_PRINT_OPTIONS",   "CC_PRINT_OPTIONS_FILE",
    "CC_PRINT_HEADERS",     "CC_PRINT_HEADERS_FILE",  "CC_LOG_DIAGNOSTICS", "CC_LOG_DIAGNOSTICS_FILE",
    "CC_PRINT_PROC_STAT",   "CC_PRINT_PROC_STAT_FILE"};
/// Guix, Nix, conda and others find their headers and libraries by these alone.
constexpr std::string_view kDeciding[] = {"CPATH",         "C_INCLUDE_PATH",  "CPLUS_INCLUDE_PATH", "LIBRARY_PATH",
                                          "COMPILER_PATH", "GCC_EXEC_PREFIX", "NIX_CFLAGS_COMPILE", "NIX_LDFLAGS"};

std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=')); }

template <std::size_t Count>
bool holds(const std::string_view (&names)[Count], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; variable && *variable; ++variable) variables.emplace_back(*variable);
  return variables;
}

std::vector<std::string> compiler_environment(std::span<const std::string> variables, const std::string& temporary_directory) {
  std::vector<std::string> kept;
  for (const std::string& variable : variables) {
    const std::string_view name = name_of(variable);
    if (!holds(kReplaced, name) && !holds(kDiverting, name) && !name.starts_with("LC_")) kept.push_back(variable);
  }
  kept.insert(kept.end(), {"LC_ALL=C", "TERM=dumb", "NO_COLOR=1"});
  if (!temporary_directory.empty()) kept.push_back("TMPDIR=" + temporary_directory);
  return kept;
}

std::string environment_key(std::span<const std::string> variables) {
  std::vector<std::string> deciding;
  std::copy_if(variables.begin(), variables.end(), std::back_inserter(deciding),
               [](const std::string& variable) { return holds(kDeciding, name_of(variable)); });
  std::sort(deciding.begin(), deciding.end());
  std::string key;
  for (const std::string& variable : deciding) key += variable + "\n";
  return key;
}

}  // namespace gcomp::runtime::cpu
