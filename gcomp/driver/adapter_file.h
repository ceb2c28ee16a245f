// Adapters as PEFT keeps them (peft 0.21): adapter_model.safetensors with base_model.model.MODULE.lora_A.weight [rank, inputs, ...]
// and .lora_B.weight [outputs, rank, ...] for each module, and adapter_config.json beside it.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/driver/adaptation.h"

namespace gcomp::driver {

inline constexpr char kAdapterConfig[] = "adapter_config.json";
/// Behind the path of an attention, the name of its output matrix: PEFT adapts both by one target, the attention.
inline constexpr std::string_view kAttentionOutput = ".base_layer.out_proj";

struct AdapterFactors {
  Tensor a, b;
};
/// Of an adapter: beyond it, factors are larger than any weight.
inline constexpr std::int64_t kMostRank = 1 << 20;

struct AdapterFile {
  std::string path;
  std::int64_t rank = 0;
  double alpha = 0;
  bool rank_stabilized = false;
  double dropout = 0;  ///< what PEFT trained it with
  std::map<std::string, AdapterFactors> modules;
};

/// `path` is the .safetensors file, or the directory that holds adapter_model.safetensors. Throws UserError naming file and entry
/// for what is damaged or missing, and with exit 4 for what gcomp does not compute: adapters of embeddings, DoRA, ranks that
/// differ.
AdapterFile read_adapter(const std::filesystem::path& path);

/// The file itself, of what read_adapter() takes.
std::filesystem::path adapter_weights(const std::filesystem::path& path);
/// The configuration that belongs to the file, in its folder.
std::filesystem::path config_beside(const std::filesystem::path& adapter);

/// Throws UserError naming the parameters whose module is not known, and where two have one; `path` is the file to be written.
void require_modules(const std::filesystem::path& path, const Adaptation& adaptation);
/// Writes the file and the configuration beside it, each whole or not at all; `read` gives states. Throws UserError, also as
/// require_modules() does.
void write_adapter(const std::filesystem::path& path, const Adaptation& adaptation,
                   const std::function<Tensor(const std::string&)>& read);

}  // namespace gcomp::driver
