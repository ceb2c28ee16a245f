#include "gcomp/driver/fit/run_settings.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/format.h"
#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

constexpr std::string_view kDecidesNothing[] = {
    "bucket-mib",
    "checkpoint-every",
    "check-steps",
    "compiler",
    "compiler-timeout",
    "distributed",
    "embed-model",
    "export-preprocess",
    "keep",
    "library",
    "log-every",
    "max-elements",
    "max-kernel-bytes",
    "max-kernels",
    "max-nodes",
    "max-time",
    "metrics",
    "mpi-plugin",
    "no-cache",
    "no-overlap",
    "out",
    "out-adapter",
    "out-ema",
    "overlap",
    "prefetch",
    "ranks",
    "run-dir",
    "threads",
    "time-exchanges",
    "training",
    "workers",
    "zero",
};
constexpr std::string_view kData[] = {"data", "eval-data"}, kFiles[] = {"MODEL", "adapter", "init"};

bool is_default(const nlohmann::json& entry) { return entry.is_object() && entry.value("from", "") == "default"; }

nlohmann::json value_of(const std::string& name, const nlohmann::json& entry) {
  nlohmann::json value = entry.is_object() && entry.contains("value") ? entry.at("value") : entry;
  if (value.is_array() && value.size() == 1) value = value.front();
  if (name == "eval-every" && value == 0) value = nullptr;  // as earlier versions wrote that it was not given
  // What is timed then changes no bits.
  if (name == "tune" && (value == "equal" || value == "off")) value = false;
  return value;
}

/// Of any version's settings those of this one's form.
nlohmann::json canonical(const nlohmann::json& settings) {
  nlohmann::json result = nlohmann::json::object();
  for (const auto& [name, entry] : settings.items())
    if (std::ranges::count(kDecidesNothing, name) == 0) result[name] = value_of(name, entry);
  return result;
}

/// Whether a value says nothing: null, "" or an empty list, as a default that nobody wrote down.
bool is_nothing(const std::string& value) { return value.empty() || value == "null" || value == "\"\"" || value == "[]"; }

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code none;
  return std::filesystem::equivalent(a, b, none) && !none;
}

/// FORMAT:PATH,option=value of the same format, options and file.
bool same_data(const std::string& a, const std::string& b) {
  try {
    const data::DataSpec first = data::parse_spec(a), second = data::parse_spec(b);
    return first.format == second.format && first.options.text() == second.options.text() && same_file(first.path, second.path);
  } catch (const UserError&) { return false; }  // a path that is not there any more
}

/// Texts, or lists of as many.
template <class Same>
bool all_alike(const std::string& before, const std::string& now, const Same& same) {
  const auto list = [](const std::string& text) {
    nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
    return value.is_array() ? value : nlohmann::json::array({value});
  };
  const nlohmann::json a = list(before), b = list(now);
  return std::ranges::equal(a, b, [&](const nlohmann::json& one, const nlohmann::json& other) {
    return one.is_string() && other.is_string() && same(one.get<std::string>(), other.get<std::string>());
  });
}

/// Whether two values that are written otherwise mean the same.
bool means_the_same(const ConfigDifference& difference) {
  if (std::ranges::count(kData, difference.field) > 0) return all_alike(difference.checkpoint, difference.now, same_data);
  if (std::ranges::count(kFiles, difference.field) > 0) return all_alike(difference.checkpoint, difference.now, same_file);
  return difference.field == "on-bad-sample" && difference.checkpoint == "\"stop\"";
}

}  // namespace

std::string settings_of(std::string_view config) { return canonical(nlohmann::json::parse(config)).dump(); }

std::vector<ConfigDifference> setting_differences(const std::string& checkpoint, std::string_view config) {
  const nlohmann::json before = nlohmann::json::parse(checkpoint, nullptr, false), now = nlohmann::json::parse(config);
  std::vector<ConfigDifference> differences =
      config_differences(before.is_object() ? canonical(before).dump() : checkpoint, canonical(now).dump());
  std::erase_if(differences, [&](const ConfigDifference& difference) {
    if (means_the_same(difference)) return true;
    return is_nothing(difference.checkpoint) && now.contains(difference.field) && is_default(now.at(difference.field));
  });
  return differences;
}

void take_device(std::vector<ConfigDifference>& differences, std::string_view before, std::string_view now) {
  const auto kind = [](std::string_view device) { return device.substr(0, device.find_first_of(",: ")); };
  if (before.empty() || kind(before) != kind(now)) return;
  std::erase_if(differences, [](const ConfigDifference& difference) {
    return difference.field == "device" && (difference.checkpoint == "\"auto\"" || difference.now == "\"auto\"");
  });
}

}  // namespace gcomp::driver
