#include "tools/gcomp/rate_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/base/units.h"

namespace gcomp::tools {
namespace {

using codegen::DeviceRates;
using codegen::scale::LinkRate;
using codegen::scale::Links;

[[noreturn]] void refuse_rate(const std::string& message) { throw UserError(message, ExitCode::usage); }

struct Unit {
  std::string_view name;
  double value;
};
constexpr Unit kByteRates[] = {{"B/s", 1},          {"kB/s", 1e3},       {"MB/s", 1e6},       {"GB/s", 1e9},
                               {"TB/s", 1e12},      {"bit/s", 1. / 8},   {"kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8},
                               {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8}};
constexpr Unit kFlopRates[] = {{"FLOP/s", 1}, {"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}};
constexpr Unit kTimes[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};

/// A number with one of the units, from `least` on; `what` begins the message.
double parse_quantity(std::string_view text, std::span<const Unit> units, bool may_be_zero, const std::string& what) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::vector<std::string> names;
  for (const Unit& unit : units) names.emplace_back(unit.name);
  if (error != std::errc() || !std::isfinite(number) || number < 0 || (number == 0 && !may_be_zero))
    refuse_rate(concat(what, ": wanted a number ", may_be_zero ? "from 0 on" : "above 0", " with a unit of ", listing(names),
                       ", found '", text, "'"));
  const std::string unit(end, text.data() + text.size());
  for (const Unit& known : units)
    if (known.name == unit) return number * known.value;
  refuse_rate(concat(what, ": wanted a unit of ", listing(names), ", found '", unit, "'", did_you_mean(unit, names)));
}

constexpr std::string_view kLinkForm =
    "wanted RATE,LATENCY, such as 450GB/s,3us, and of the links between groups of N ranks N:RATE,LATENCY, such as 8:50GB/s,10us";

struct ParsedLink {
  std::int64_t group = 0;
  LinkRate rate;
};

ParsedLink parse_link(const std::string& text) {
  const std::string flag = concat("--link ", text);
  std::string_view rest = text;
  ParsedLink link;
  if (const std::size_t colon = rest.find(':'); colon != rest.npos) {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + colon, link.group);
    if (error != std::errc() || end != rest.data() + colon || link.group < 2)
      refuse_rate(concat(flag, ": wanted 2 ranks or more in a group, found '", rest.substr(0, colon), "'"));
    rest.remove_prefix(colon + 1);
  }
  const std::size_t comma = rest.find(',');
  if (comma == rest.npos) refuse_rate(concat(flag, ": ", kLinkForm));
  link.rate.bytes_per_second = parse_quantity(rest.substr(0, comma), kByteRates, false, flag);
  link.rate.latency = parse_quantity(rest.substr(comma + 1), kTimes, true, flag);
  return link;
}

std::string decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string rate_of_link(const LinkRate& rate) {
  return concat(decimal(rate.bytes_per_second / 1e9), "GB/s,", decimal(rate.latency / 1e-6), "us");
}

struct NamedRates {
  std::string_view name;
  const DeviceRates& rates;
};
constexpr NamedRates kNamedRates[] = {{"h200", codegen::kH200}, {"rtx3090", codegen::kRtx3090}};

struct RateField {
  std::string_view name;
  double DeviceRates::*field;
  std::span<const Unit> units;
};
constexpr RateField kRateFields[] = {
    {"copy", &DeviceRates::copy_bytes, kByteRates}, {"f64", &DeviceRates::f64, kFlopRates},
    {"f32", &DeviceRates::f32, kFlopRates},         {"f16", &DeviceRates::f16, kFlopRates},
    {"bf16", &DeviceRates::bf16, kFlopRates},       {"launch", &DeviceRates::launch_seconds, kTimes}};

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

/// Sets one field and gives its index.
std::size_t set_rate(DeviceRates& rates, const std::string& assignment, const std::string& flag) {
  const std::size_t equals = assignment.find('=');
  const std::string name = assignment.substr(0, equals);
  std::vector<std::string> names;
  for (const RateField& field : kRateFields) names.emplace_back(field.name);
  for (std::size_t i = 0; i < std::size(kRateFields); ++i) {
    if (kRateFields[i].name != name) continue;
    if (equals == assignment.npos) refuse_rate(concat(flag, ": wanted ", name, "=VALUE"));
    const bool may_be_zero = name == "launch";
    rates.*kRateFields[i].field = parse_quantity(std::string_view(assignment).substr(equals + 1), kRateFields[i].units, may_be_zero,
                                                 concat(flag, ", ", name));
    return i;
  }
  refuse_rate(concat(flag, ": '", name, "' is neither a device nor a rate; wanted h200 or rtx3090 first, and of ", listing(names),
                     " NAME=VALUE", did_you_mean(name, names)));
}

}  // namespace

void add_links(ArgumentParser& parser, std::vector<std::string>& links, const std::string& group) {
  parser
      .add_repeated(
          "--link", links,
          "what each rank sends a second and how long a message takes at least, such as 450GB/s,3us; given a second time as "
          "8:50GB/s,10us, between groups of 8")
      .type_name("[N:]RATE,LATENCY")
      .group(group);
}

Links parse_links(std::span<const std::string> texts) {
  Links links;
  bool has_near = false;
  for (const std::string& text : texts) {
    const ParsedLink link = parse_link(text);
    if (link.group == 0 ? has_near : links.far.has_value())
      refuse_rate(concat("--link ", text, ": the links ", link.group == 0 ? "within a group" : "between groups",
                         " were given before; there are two levels"));
    if (link.group == 0) {
      links.near = link.rate;
      has_near = true;
    } else {
      links.group = link.group;
      links.far = link.rate;
    }
  }
  if (!has_near) refuse_rate(concat("--link ", texts.empty() ? "" : texts[0], ": those within a group are missing; ", kLinkForm));
  return links;
}

std::string text_of(const Links& links) {
  if (links.group == 0) return concat(rate_of_link(links.near), " between all ranks");
  return concat(rate_of_link(links.near), " within groups of ", links.group, ", ", rate_of_link(*links.far), " between them");
}

DeviceRates parse_rates(const std::string& text) {
  const std::string flag = concat("--rates ", text);
  const std::vector<std::string> parts = split_commas(text);
  DeviceRates rates{};
  rates.name = "the given device";
  std::vector<bool> set(std::size(kRateFields));
  std::size_t next = 0;
  for (const NamedRates& known : kNamedRates)
    if (known.name == parts[0]) {
      rates = known.rates;
      set.assign(set.size(), true);
      next = 1;
      if (parts.size() > 1) rates.name = "the given device";
    }
  for (; next < parts.size(); ++next) set[set_rate(rates, parts[next], flag)] = true;
  for (std::size_t i = 0; i < set.size(); ++i)
    if (!set[i]) refuse_rate(concat(flag, ": ", kRateFields[i].name, " is missing, of a device without a name"));
  return rates;
}

double parse_time(const std::string& text, const std::string& flag) {
  return parse_quantity(text, kTimes, false, concat(flag, " ", text));
}

}  // namespace gcomp::tools
