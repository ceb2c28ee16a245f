// What a compiler is told of this process's environment. Kept is what lets it run and find its parts; what decides the code that it
// makes counts in the key of the cache; what changes its messages, draws a terminal's attention or makes it write other files goes.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace gcomp::runtime::cpu {

/// The variables of this process, as NAME=VALUE.
std::vector<std::string> own_environment();

/// `variables` without those that divert a compiler, its messages in English, plain and without colours, its temporary files in
/// `temporary_directory`, unless that is empty.
std::vector<std::string> compiler_environment(std::span<const std::string> variables, const std::string& temporary_directory);

/// Those of `variables` by which a compiler finds other headers, libraries or parts of itself, one in a line.
std::string environment_key(std::span<const std::string> variables);

}  // namespace gcomp::runtime::cpu
