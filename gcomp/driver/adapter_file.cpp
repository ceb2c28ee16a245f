#include "gcomp/driver/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/safetensors.h"
#include "runtime/files/strict_json.h"

namespace gcomp::driver {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "base_model.model.", kWeightA = ".lora_A.weight", kWeightB = ".lora_B.weight";
constexpr std::uintmax_t kLargestConfig = 1 << 24;
constexpr int kMostConfigNesting = 8;

/// Members that say nothing of what an adapter computes, or are read below. Any other must be empty: null, false, 0, "", [] or {}.
constexpr std::string_view kHarmless[] = {"alpha_pattern",
                                          "auto_mapping",
                                          "base_model_name_or_path",
                                          "bias",
                                          "exclude_modules",
                                          "fan_in_fan_out",
                                          "inference_mode",
                                          "init_lora_weights",
                                          "layers_pattern",
                                          "layers_to_transform",
                                          "lora_alpha",
                                          "lora_dropout",
                                          "megatron_config",
                                          "megatron_core",
                                          "peft_type",
                                          "peft_version",
                                          "qalora_group_size",
                                          "r",
                                          "rank_pattern",
                                          "revision",
                                          "target_modules",
                                          "task_type",
                                          "use_rslora"};

bool is_empty(const json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || (value.is_number() && value.get<double>() == 0) ||
         ((value.is_structured() || value.is_string()) && value.size() == 0) ||
         (value.is_string() && value.get<std::string>().empty());
}

/// Adapters of one file have one rank and alpha, as --lora-rank and --lora-alpha say them.
void refuse_what_differs(const json& config) {
  const auto refuse = [&](const std::string& name, std::string_view why) {
    throw UserError(concat("'", name, "' is ", config.at(name).dump(), ", ", why), ExitCode::unsupported);
  };
  for (const auto& [name, value] : config.items()) {
    if (std::ranges::find(kHarmless, name) == std::end(kHarmless) && !is_empty(value)) refuse(name, "which gcomp does not compute");
    if ((name == "alpha_pattern" || name == "rank_pattern") && !is_empty(value))
      refuse(name, "and adapters of one run have one rank and alpha");
    if (name == "bias" && value != "none") refuse(name, "and gcomp trains no biases beside adapters");
    // Others than these change the base's weights before they train, which the file does not hold.
    if (name == "init_lora_weights" && !value.is_boolean() && value != "gaussian" && value != "orthogonal" && value != "eva")
      refuse(name, "which changes the weights beside it");
  }
}

double number_of(const json& config, const char* name, double otherwise) {
  if (!config.contains(name)) return otherwise;
  check_user(config.at(name).is_number() && std::isfinite(config.at(name).get<double>()), "'", name, "' is ",
             config.at(name).dump(), ", wanted a number");
  return config.at(name).get<double>();
}

void read_config(AdapterFile& adapter, const json& config) {
  check_user(config.is_object() && config.contains("peft_type"), "it is no configuration of an adapter: 'peft_type' is missing");
  if (config.at("peft_type") != "LORA")
    throw UserError(concat("'peft_type' is ", config.at("peft_type").dump(), ", wanted \"LORA\""), ExitCode::unsupported);
  refuse_what_differs(config);
  constexpr double kStandard = 8;  // PEFT's of both
  const double rank = number_of(config, "r", kStandard);
  check_user(rank >= 1 && rank == std::floor(rank) && rank <= kMostRank, "'r' is ", rank,
             ", wanted a whole number from 1 up, at most ", kMostRank);
  adapter.rank = static_cast<std::int64_t>(rank);
  adapter.alpha = number_of(config, "lora_alpha", kStandard);
  adapter.dropout = number_of(config, "lora_dropout", 0);
  adapter.rank_stabilized = config.contains("use_rslora") && config.at("use_rslora") == true;
}

/// The module and which factor of its adapter a key names.
std::pair<std::string, bool> parse_key(const std::string& key) {
  const bool is_a = key.ends_with(kWeightA);
  if (!key.starts_with(kPrefix) || !(is_a || key.ends_with(kWeightB)) || key.size() <= kPrefix.size() + kWeightA.size())
    throw UserError(concat("tensor '", key, "' is none of an adapter that gcomp knows; wanted '", kPrefix, "MODULE", kWeightA,
                           "' or '", kWeightB, "'"),
                    ExitCode::unsupported);
  return {key.substr(kPrefix.size(), key.size() - kPrefix.size() - kWeightA.size()), is_a};
}

void read_factors(AdapterFile& adapter, std::map<std::string, Tensor> tensors) {
  check_user(!tensors.empty(), "it holds no tensors");
  std::set<std::string> a, b;
  for (auto& [key, tensor] : tensors) {
    const auto [module, is_a] = parse_key(key);
    check_user(is_float(tensor.dtype()) && tensor.shape().size() >= 2, "tensor '", key, "' is ", to_string(tensor.type()),
               ", wanted floats of two dimensions or more");
    check_user(tensor.shape()[is_a ? 0 : 1] == adapter.rank, "tensor '", key, "' is ", to_string(tensor.type()), ", and 'r' in ",
               kAdapterConfig, " is ", adapter.rank);
    (is_a ? a : b).insert(module);
    (is_a ? adapter.modules[module].a : adapter.modules[module].b) = std::move(tensor);
  }
  for (const auto& [module, factors] : adapter.modules)
    check_user(a.contains(module) && b.contains(module), "module '", module, "' has no '", a.contains(module) ? kWeightB : kWeightA,
               "'");
}

/// `work`, whose errors begin with the file.
template <class Work>
auto naming_adapter(const fs::path& path, Work work) {
  try {
    return work();
  } catch (const UserError& error) { throw UserError(concat("'", path.string(), "': ", error.what()), error.code()); }
}

json config_of(const Adaptation& adaptation) {
  std::set<std::string> modules;
  for (const AdaptedWeight& weight : adaptation.weights)
    modules.insert(weight.module.ends_with(kAttentionOutput)
                       ? weight.module.substr(0, weight.module.size() - kAttentionOutput.size())
                       : weight.module);
  const bool whole = adaptation.alpha == std::floor(adaptation.alpha) && std::abs(adaptation.alpha) < 1e15;
  return {{"alpha_pattern", json::object()},
          {"auto_mapping", nullptr},
          {"base_model_name_or_path", nullptr},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"lora_alpha", whole ? json(static_cast<std::int64_t>(adaptation.alpha)) : json(adaptation.alpha)},
          {"lora_dropout", 0.0},
          {"modules_to_save", nullptr},
          {"peft_type", "LORA"},
          {"r", adaptation.rank},
          {"rank_pattern", json::object()},
          {"target_modules", modules},
          {"task_type", nullptr},
          {"use_dora", false},
          {"use_rslora", adaptation.rank_stabilized}};
}

}  // namespace

fs::path adapter_weights(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? path / "adapter_model.safetensors" : path;
}

fs::path config_beside(const fs::path& adapter) { return adapter.parent_path() / kAdapterConfig; }

void require_modules(const fs::path& path, const Adaptation& adaptation) {
  std::vector<std::string> unknown;
  std::map<std::string, std::string> known;
  for (const AdaptedWeight& weight : adaptation.weights) {
    if (weight.module.empty()) unknown.push_back(weight.parameter);
    else if (const auto [other, added] = known.emplace(weight.module, weight.parameter); !added)
      throw UserError(concat("'", path.string(), "': '", other->second, "' and '", weight.parameter, "' are both of module '",
                             weight.module, "', which has one adapter; --name-map FILE names them apart"));
  }
  check_user(unknown.empty(), "'", path.string(), "': the file does not say of which ",
             unknown.size() == 1 ? "module " : "modules ", listing(unknown), unknown.size() == 1 ? " is" : " are",
             "; --name-map FILE says it");
}

AdapterFile read_adapter(const fs::path& path) {
  AdapterFile adapter;
  const fs::path file = adapter_weights(path);
  adapter.path = file.string();
  std::error_code ignored;
  check_user(fs::exists(path, ignored), "cannot read the adapter '", path.string(), "': no such file or folder");
  const fs::path beside = config_beside(file);
  const std::vector<std::byte> bytes = runtime::read_file(beside, kLargestConfig);
  naming_adapter(beside, [&] {
    read_config(adapter,
                runtime::parse_strict_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, kMostConfigNesting));
  });
  std::map<std::string, Tensor> tensors = runtime::read_safetensors(file).tensors;
  naming_adapter(file, [&] { read_factors(adapter, std::move(tensors)); });
  return adapter;
}

void write_adapter(const fs::path& path, const Adaptation& adaptation, const std::function<Tensor(const std::string&)>& read) {
  require_modules(path, adaptation);
  runtime::Safetensors contents{.tensors = {}, .metadata = {{"format", "pt"}}};
  for (const AdaptedWeight& weight : adaptation.weights) {
    const std::string key = concat(kPrefix, weight.module);
    contents.tensors.emplace(concat(key, kWeightA), read(weight.a()));
    contents.tensors.emplace(concat(key, kWeightB), read(weight.b()));
  }
  runtime::write_safetensors(path, contents);
  const std::string config = config_of(adaptation).dump(2) + "\n";
  runtime::write_file(config_beside(path), std::as_bytes(std::span(config)));
}

}  // namespace gcomp::driver
