// Low-rank adapters (LoRA; TrainOptions::lora and docs/lora.md): the files in which PEFT keeps them. Trainer::save() to an .onnx
// merges them into the weights, to a .gcx keeps both.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gcomp/path.h"
#include "gcomp/trainer.h"

namespace gcomp {

/// Paths of modules by parameter, where the model's file does not tell them: {{"onnx::MatMul_24", "encoder.fc"}}.
using ModuleNames = std::vector<std::pair<std::string, std::string>>;

/// Whether the trainer trains adapters.
bool has_adapters(const Trainer& trainer);

/// Writes the adapters to a .safetensors file, and adapter_config.json beside it: what PeftModel.from_pretrained() reads where the
/// file is called adapter_model.safetensors. Each appears whole or not at all. Throws UserError where there are no adapters, and
/// naming the parameters whose module is not known.
void save_adapter(const Trainer& trainer, const Path& path, Weights weights = Weights::trained, const ModuleNames& modules = {});

}  // namespace gcomp
