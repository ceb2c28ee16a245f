#include "tools/command_line/numbers.h"

#include <charconv>
#include <limits>
#include <type_traits>

#include "ir/base/error.h"

namespace gcomp::tools {
namespace {

template <class Number>
std::string wanted() {
  if (std::is_floating_point_v<Number>) return "wanted a number";
  return std::is_unsigned_v<Number> ? "wanted a whole number from 0 to 2^64 - 1" : "wanted a whole number";
}

template <class Number>
std::string limits() {
  if (std::is_floating_point_v<Number>)
    return concat(" of at most ", std::numeric_limits<Number>::max(), ", and none too near to 0");
  if (std::is_unsigned_v<Number>) return "";
  return concat(" from ", std::numeric_limits<Number>::min(), " to ", std::numeric_limits<Number>::max());
}

template <class Number>
std::string read(std::string_view text, Number& value) {
  if (text.empty()) return wanted<Number>() + ", found nothing";
  const char *begin = text.data(), *end = begin + text.size();
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') ++begin;
  Number found{};
  const auto [stop, error] = std::from_chars(begin, end, found);
  if (error == std::errc::result_out_of_range && stop == end) return wanted<Number>() + limits<Number>();
  if (error != std::errc()) return wanted<Number>();
  if (stop != end)
    return concat(wanted<Number>(), ", found '", std::string_view(stop, end), "' after ", std::string_view(begin, stop));
  value = found;
  return "";
}

}  // namespace

std::string read_number(std::string_view text, int& value) { return read(text, value); }
std::string read_number(std::string_view text, std::int64_t& value) { return read(text, value); }
std::string read_number(std::string_view text, std::uint64_t& value) { return read(text, value); }
std::string read_number(std::string_view text, double& value) { return read(text, value); }

}  // namespace gcomp::tools
