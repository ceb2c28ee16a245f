// Numbers as people give them to options, and what is wrong with one that is none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gcomp::tools {

/// Reads the whole text as a decimal number. "" where it is one, else the complaint, such as "wanted a whole number, found 'k'
/// after 64" for "64k"; `value` is then as it was.
std::string read_number(std::string_view text, int& value);
std::string read_number(std::string_view text, std::int64_t& value);
std::string read_number(std::string_view text, std::uint64_t& value);
std::string read_number(std::string_view text, double& value);

}  // namespace gcomp::tools
