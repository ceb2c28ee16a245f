// Low-rank adapters in an imported model: which parameters get one, what they are called, and their first values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontend/imported_model.h"
#include "gcomp/driver/adaptation.h"
#include "gcomp/driver/adapter_file.h"

namespace gcomp::driver {

/// What its user asks for: globs with a rank and an alpha, or an adapter to go on from, which has all three.
struct LoraSettings {
  std::vector<std::string> globs = {};  ///< over names of parameters, their modules and nodes; several in one, with commas
  std::int64_t rank = 8;
  double alpha = 16;
  std::shared_ptr<const AdapterFile> adapter = {};
  std::map<std::string, std::string> modules = {};  ///< of parameters, where the file does not say it

  bool empty() const { return globs.empty() && !adapter; }
};

/// Throws UserError (exit 2) for a rank below 1, and for what has no meaning together.
void check(const LoraSettings& settings);

/// A JSON object from parameters to paths of modules, and from beginnings of such paths to others ("model.*": "*"). Throws
/// UserError naming the file.
std::map<std::string, std::string> read_module_names(const std::filesystem::path& path);

/// Gives adapters to the parameters that the settings name; they alone train then. A is uniform within 1 / sqrt(elements of one of
/// its rows), as PEFT draws it, by Philox from the seed and its name (ir/base/named_draws.h), B is 0; or both are an adapter's.
/// Throws UserError (exit 2) for a glob that matches nothing, or nothing that can have an adapter, with what could, and for an
/// adapter whose modules and shapes are not the model's.
Adaptation attach_lora(frontend::ImportedModel& model, const LoraSettings& settings, std::uint64_t seed);

}  // namespace gcomp::driver
