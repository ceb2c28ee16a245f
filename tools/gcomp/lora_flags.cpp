#include "tools/gcomp/lora_flags.h"

#include <algorithm>
#include <filesystem>

#include "gcomp/driver/training.h"
#include "gcomp/lora.h"
#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"
#include "tools/gcomp/options.h"

namespace gcomp::tools {
namespace {

constexpr char kLoraGroup[] = "Low-rank adapters, LoRA (docs/lora.md)";

[[noreturn]] void refuse_lora_flag(const std::string& message) { throw UserError(message, ExitCode::usage); }

}  // namespace

void LoraFlags::add_adapter(ArgumentParser& parser, const std::string& meaning) {
  parser.add_option("--adapter", adapter, meaning).type_name("SAFETENSORS").group(kLoraGroup);
  parser.add_option("--name-map", name_map, "parameters and their modules, where the model does not tell them: a JSON object")
      .type_name("JSON")
      .group(kLoraGroup);
}

void LoraFlags::add_selection(ArgumentParser& parser) {
  parser
      .add_repeated("--lora", lora,
                    "weights of matrix products and convolutions that match get an adapter, and adapters alone train: globs of "
                    "parameters, modules or nodes, with commas; repeatable")
      .type_name("GLOB")
      .group(kLoraGroup);
  parser.add_option("--lora-rank", rank, "of the adapters (default 8)").type_name("N").group(kLoraGroup);
  parser.add_option("--lora-alpha", alpha, "an adapter counts alpha / rank times (default 16)").type_name("X").group(kLoraGroup);
  add_adapter(parser, "go on from PEFT's file, or its folder, in place of --lora");
}

void LoraFlags::add(ArgumentParser& parser) {
  add_selection(parser);
  parser.add_option("--out-adapter", out_adapter, "the adapters as PEFT keeps them; adapter_config.json goes beside it")
      .type_name("SAFETENSORS")
      .group(kLoraGroup);
}

std::vector<Output> LoraFlags::outputs() const {
  if (out_adapter.empty()) return {};
  return {{"--out-adapter", out_adapter, {".safetensors"}},
          {"--out-adapter", driver::config_beside(out_adapter).string(), {".json"}}};
}

void LoraFlags::protect(const Outputs& outputs) const {
  if (!out_adapter.empty()) runtime::AtomicFile{out_adapter};  // a directory that is missing or read-only is found before any work
  if (!name_map.empty()) outputs.protect("name map", name_map);
  if (adapter.empty()) return;
  const std::filesystem::path file = driver::adapter_weights(adapter);
  outputs.protect("adapter", file);
  outputs.protect("adapter's configuration", driver::config_beside(file));
}

driver::LoraSettings LoraFlags::parse() const {
  driver::LoraSettings settings{.globs = lora};
  const auto needs_lora = [&](bool given, std::string_view flag) {
    if (given && lora.empty())
      refuse_lora_flag(adapter.empty() ? concat(flag, " has a meaning only with --lora GLOB")
                                       : concat(flag, ": '", adapter, "' has decided that"));
  };
  needs_lora(!rank.empty(), "--lora-rank");
  needs_lora(alpha.has_value(), "--lora-alpha");
  if (lora.empty() && adapter.empty() && !out_adapter.empty())
    refuse_lora_flag(concat("--out-adapter ", out_adapter, ": no adapter is trained; --lora GLOB says which weights get one"));
  if (!rank.empty()) settings.rank = parse_integer(rank, "--lora-rank");
  if (alpha) settings.alpha = *alpha;
  if (!adapter.empty()) settings.adapter = std::make_shared<const driver::AdapterFile>(driver::read_adapter(adapter));
  if (!name_map.empty()) settings.modules = driver::read_module_names(name_map);
  driver::check(settings);
  return settings;
}

void LoraFlags::check(const Trainer& trainer) const {
  if (out_adapter.empty()) return;
  const std::optional<driver::Adaptation>& adaptation = driver::adaptation_of(trainer);
  if (!adaptation) refuse_lora_flag(concat("--out-adapter ", out_adapter, ": the training step was compiled without --lora"));
  driver::require_modules(out_adapter, *adaptation);
  for (const std::string& name : trainer.trained())
    if (std::ranges::none_of(adaptation->weights, [&](const auto& weight) { return name == weight.a() || name == weight.b(); }))
      refuse_lora_flag(concat("--out-adapter ", out_adapter, ": '", name,
                              "' trains beside the adapters (--thaw), and the file holds adapters alone"));
}

SavedModelFile LoraFlags::save(const Trainer& trainer) const {
  SavedModelFile saved{.path = out_adapter, .failure = {}};
  if (out_adapter.empty()) return saved;
  try {
    save_adapter(trainer, out_adapter);
  } catch (const UserError& error) {
    saved.failure = error.what();
    saved.code = error.code();
  }
  return saved;
}

}  // namespace gcomp::tools
