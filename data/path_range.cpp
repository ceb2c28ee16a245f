#include "data/path_range.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "ir/base/error.h"

namespace gcomp::data {
namespace {

constexpr std::int64_t kMostPaths = 100'000;
constexpr std::size_t kMostDigits = 9;

std::optional<std::int64_t> digits_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool digits = !text.empty() && text.size() <= kMostDigits &&
                      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

std::vector<std::filesystem::path> expand_range(const std::filesystem::path& path) {
  const std::string& text = path.native();
  const std::size_t open = text.rfind('{'), dots = text.find("..", open), close = text.find('}', dots);
  std::error_code ignored;
  if (open == text.npos || dots == text.npos || close == text.npos || std::filesystem::exists(path, ignored)) return {path};
  const std::string_view first_text(text.data() + open + 1, dots - open - 1), last_text(text.data() + dots + 2, close - dots - 2);
  const std::optional<std::int64_t> first = digits_of(first_text), last = digits_of(last_text);
  if (!first || !last) return {path};
  check_user(*first <= *last, "'", text, "': ", *first, " to ", *last, " runs backwards");
  check_user(*last - *first < kMostPaths, "'", text, "': more than ", kMostPaths, " files");
  std::vector<std::filesystem::path> paths;
  for (std::int64_t i = *first; i <= *last; ++i) {
    std::string number = std::to_string(i);
    if (number.size() < first_text.size()) number.insert(0, first_text.size() - number.size(), '0');
    paths.emplace_back(concat(std::string_view(text).substr(0, open), number, std::string_view(text).substr(close + 1)));
  }
  return paths;
}

}  // namespace gcomp::data
