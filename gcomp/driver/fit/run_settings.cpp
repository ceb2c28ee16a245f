#include "gcomp/driver/fit/run_settings.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gcomp::driver {
namespace {

constexpr std::string_view kDecidesNothing[] = {
    "bucket-mib", "checkpoint-every",  "check-steps", "compiler",   "compiler-timeout", "distributed", "keep",    "library",
    "log-every",  "max-time",          "metrics",     "mpi-plugin", "no-cache",         "no-overlap",  "overlap", "out",
    "out-ema",    "export-preprocess", "prefetch",    "ranks",      "run-dir",          "threads",     "workers", "zero",
};

bool is_default(const nlohmann::json& entry) { return entry.is_object() && entry.value("from", "") == "default"; }

nlohmann::json value_of(const std::string& name, const nlohmann::json& entry) {
  nlohmann::json value = entry.is_object() && entry.contains("value") ? entry.at("value") : entry;
  if (value.is_array() && value.size() == 1) value = value.front();
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

}  // namespace

std::string settings_of(std::string_view config) { return canonical(nlohmann::json::parse(config)).dump(); }

std::vector<ConfigDifference> setting_differences(const std::string& checkpoint, std::string_view config) {
  const nlohmann::json before = nlohmann::json::parse(checkpoint, nullptr, false), now = nlohmann::json::parse(config);
  std::vector<ConfigDifference> differences =
      config_differences(before.is_object() ? canonical(before).dump() : checkpoint, canonical(now).dump());
  std::erase_if(differences, [&](const ConfigDifference& difference) {
    return difference.checkpoint.empty() && now.contains(difference.field) && is_default(now.at(difference.field));
  });
  return differences;
}

}  // namespace gcomp::driver
