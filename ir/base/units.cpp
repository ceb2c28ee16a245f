#include "ir/base/units.h"

#include <charconv>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

namespace gcomp {
namespace {

/// What numbers from `from` up are shown in.
struct Unit {
  double from;
  double one;
  std::string_view name;
  int decimals;
};

constexpr Unit kTimes[] = {{1, 1, "s", 1}, {1e-3, 1e-3, "ms", 2}, {1e-6, 1e-6, "us", 2}, {0, 1e-9, "ns", 0}};
constexpr double kKi = 1024;
constexpr Unit kSizes[] = {{kKi * kKi * kKi * kKi, kKi* kKi* kKi* kKi, "TiB", 2},
                           {kKi * kKi * kKi, kKi* kKi* kKi, "GiB", 2},
                           {kKi * kKi, kKi* kKi, "MiB", 2},
                           {kKi, kKi, "KiB", 2},
                           {0, 1, "B", 0}};
constexpr Unit kFlops[] = {
    {1e12, 1e12, "TFLOP", 2}, {1e9, 1e9, "GFLOP", 2}, {1e6, 1e6, "MFLOP", 2}, {1e3, 1e3, "kFLOP", 2}, {0, 1, "FLOP", 0}};
constexpr Unit kRates[] = {{1e12, 1e12, "T", 1}, {1e8, 1e9, "G", 1}, {1e5, 1e6, "M", 1}, {1e2, 1e3, "k", 1}, {0, 1, "", 1}};
constexpr Unit kShares[] = {{0, 1e-2, "%", 1}};

const Unit& unit_of(double x, std::span<const Unit> units) {
  for (const Unit& unit : units)
    if (x >= unit.from) return unit;
  return units.back();
}

/// The number in its unit; what rounds to nothing is below the least that the unit shows.
std::string scaled(double x, std::span<const Unit> units, std::string_view suffix = "") {
  const Unit& unit = unit_of(x, units);
  const double least = std::pow(10.0, -unit.decimals), shown = x / unit.one;
  const bool vanishes = shown > 0 && shown < least / 2;
  return (vanishes ? "<" + decimal_text(least, unit.decimals) : decimal_text(shown, unit.decimals))
      .append(" ")
      .append(unit.name)
      .append(suffix);
}

}  // namespace

std::string decimal_text(double number, int digits) {
  char text[512];  // the largest has 309 before the point
  const auto end = std::to_chars(std::begin(text), std::end(text), number, std::chars_format::fixed, digits).ptr;
  return {std::begin(text), end};
}

TimeUnit time_unit(double seconds) {
  const Unit& unit = unit_of(seconds, kTimes);
  return {unit.one, unit.name};
}

std::string time_text(double seconds) { return scaled(seconds, kTimes); }
std::string size_text(double bytes) { return scaled(bytes, kSizes); }
std::optional<std::int64_t> parse_size(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},     {"B", 1},    {"KiB", kKi}, {"MiB", kKi * kKi}, {"GiB", kKi * kKi * kKi}, {"TiB", kKi * kKi * kKi * kKi},
      {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9},  {"TB", 1e12}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const auto& [name, one] : kUnits) {
    if (name != unit) continue;
    const double bytes = number * one;
    return bytes >= 1 && bytes <= 0x1p62 ? std::optional(static_cast<std::int64_t>(bytes)) : std::nullopt;
  }
  return std::nullopt;
}
std::string flops_text(double flops) { return scaled(flops, kFlops); }
std::string rate_text(double per_second, std::string_view unit) { return scaled(per_second, kRates, unit); }
std::string percent_text(double share) { return scaled(share, kShares); }

std::string rows_rate_text(double rows_per_second) {
  if (rows_per_second >= 100) return decimal_text(rows_per_second, 0) + " rows/s";
  char text[64];
  const auto end = std::to_chars(std::begin(text), std::end(text), rows_per_second, std::chars_format::general, 3).ptr;
  return std::string(std::begin(text), end) + " rows/s";
}

}  // namespace gcomp
