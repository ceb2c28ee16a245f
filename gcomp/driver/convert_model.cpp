#include "gcomp/driver/convert_model.h"

#include <algorithm>
#include <optional>

#include "frontend/onnx/import.h"
#include "gcomp/driver/checkpoint.h"
#include "gcomp/driver/convert_states.h"
#include "gcomp/driver/fit/run_directory.h"
#include "gcomp/driver/onnx_output.h"
#include "gcomp/driver/weights_file.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "passes/training/average_parameters.h"
#include "runtime/files/safetensors.h"

namespace gcomp::driver {
namespace fs = std::filesystem;
namespace {

using Tensors = std::map<std::string, Tensor>;

enum class Form : std::uint8_t { onnx, gcx, safetensors, checkpoint };

[[noreturn]] void refuse(const std::string& message) { throw UserError(message, ExitCode::usage); }

std::string_view words_for(Form form) {
  switch (form) {
    case Form::onnx: return "an .onnx file";
    case Form::gcx: return "a .gcx file";
    case Form::safetensors: return "a .safetensors file";
    case Form::checkpoint: return "a checkpoint";
  }
  return "";
}

Form form_by_ending(const fs::path& path) {
  const std::string ending = path.extension().string();
  if (ending == ".onnx") return Form::onnx;
  if (ending == ".gcx") return Form::gcx;
  if (ending == ".safetensors") return Form::safetensors;
  if (ending.empty()) return Form::checkpoint;
  const std::vector<std::string> endings{".onnx", ".gcx", ".safetensors"};
  refuse(concat("'", path.string(), "': unknown ending '", ending, "', wanted .onnx, .gcx, .safetensors, or none for a checkpoint",
                did_you_mean(ending, endings)));
}

Form form_of_input(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return Form::checkpoint;
  check_user(fs::exists(path, ignored), "cannot read '", path.string(), "': no such file or folder");
  const Form form = form_by_ending(path);
  if (form == Form::checkpoint) refuse(concat("'", path.string(), "' is neither a folder nor a file of a known ending"));
  return form;
}

/// What an input holds, whatever its form.
struct Input {
  fs::path path;
  Form form = Form::onnx;
  Tensors tensors = {};                                 ///< weights; of an artifact and a checkpoint all states
  std::vector<std::string> weights = {}, trained = {};  ///< names among these; of .onnx and .safetensors all are weights
  std::optional<Manifest> manifest = {};
  std::optional<ReadArtifact> artifact = {};

  /// Null without adapters.
  const Adaptation* lora() const {
    const std::optional<Adaptation>* found = manifest ? &manifest->model.lora : artifact ? &artifact->saved.lora : nullptr;
    return found && *found ? &**found : nullptr;
  }
};

Input read_checkpoint_input(const fs::path& path) {
  const FoundCheckpoint found = open_checkpoint(path);
  Input input{.path = found.path, .form = Form::checkpoint, .tensors = read_tensors(found.path, found.manifest)};
  for (const auto& [name, tensor] : found.manifest.tensors)
    if (tensor.kind == StateKind::parameter || tensor.kind == StateKind::statistic) input.weights.push_back(name);
  input.trained = found.manifest.model.trained;
  input.manifest = found.manifest;
  return input;
}

Input read_input(const fs::path& path) {
  const Form form = form_of_input(path);
  if (form == Form::checkpoint) return read_checkpoint_input(path);
  Input input{.path = path, .form = form};
  if (form == Form::gcx) {
    input.artifact = read_with_model(path);
    input.tensors = input.artifact->artifact.weights;
    input.weights = input.artifact->saved.weights;
    input.trained = input.artifact->saved.trained;
  } else {
    input.tensors = read_weights(path);
    for (const auto& [name, tensor] : input.tensors) input.weights.push_back(name);
  }
  return input;
}

/// Of adapters that nothing says how to merge, as checkpoints of gcomp up to November 2026 have them: without them the weights are
/// untrained.
void refuse_unknown_adapters(const Input& input) {
  if (!input.manifest) return;
  for (const std::string& name : input.weights)
    check_user(!input.tensors.contains(name + ".lora_A") || !input.tensors.contains(name + ".lora_B"), "'", input.path.string(),
               "' has an adapter of '", name,
               "' and does not say how it is merged; gcomp train --resume of that run, then --out, does");
}

/// As gcomp train --out merges them, so that no factors are left.
void merge(const Adaptation& lora, Tensors& weights, Converted& converted) {
  merge_adapters(lora, weights);
  for (const AdaptedWeight& weight : lora.weights) {
    weights.erase(weight.a());
    weights.erase(weight.b());
  }
  converted.notes.push_back(concat("the adapters of ", lora.weights.size(),
                                   lora.weights.size() == 1 ? " weight are merged into it" : " weights are merged into them"));
}

/// The weights, with averages in the place of what was trained where they are asked for; adapters are weights as any.
Tensors weights_beside_adapters(const Input& input, bool averages) {
  Tensors weights;
  bool some = false;
  for (const std::string& name : input.weights) {
    const auto found = input.tensors.find(name);
    if (found == input.tensors.end()) continue;
    const auto average = input.tensors.find(passes::average_name(name));
    const bool averaged = averages && average != input.tensors.end() && std::ranges::count(input.trained, name) > 0;
    some = some || averaged;
    weights.emplace(name, averaged ? average->second : found->second);
  }
  check_user(!averages || some, "'", input.path.string(), "' holds no averages of its parameters");
  return weights;
}

/// The same with their adapters; what has one is in f64.
Tensors weights_of(const Input& input, bool averages, Converted& converted) {
  Tensors weights = weights_beside_adapters(input, averages);
  if (const Adaptation* lora = input.lora()) merge(*lora, weights, converted);
  else refuse_unknown_adapters(input);
  return weights;
}

/// The graph that weights go into, and how they go there.
struct Target {
  frontend::OnnxFile file;
  std::optional<OriginalModel> original;  ///< none for a plain .onnx
};

Target open_target(const Input& input, const ConvertOptions& options) {
  if (input.form == Form::safetensors || input.form == Form::onnx) {
    if (options.model.empty())
      refuse(concat("'", input.path.string(), "' holds no graph that its weights could go into; --model m.onnx gives one"));
    if (options.model.extension() == ".onnx") return {frontend::open_onnx(options.model.string()), std::nullopt};
    ReadArtifact model = read_with_model(options.model);
    check_user(model.saved.original.has_value(), "'", options.model.string(), "' did not come from an ONNX file");
    return {open_original(*model.saved.original, model.artifact.model, options.model), std::move(model.saved.original)};
  }
  std::optional<OriginalModel> original = input.manifest ? input.manifest->model.original : input.artifact->saved.original;
  check_user(original.has_value(), "'", input.path.string(), "' did not come from an ONNX file");
  if (!options.model.empty()) {
    if (options.model.extension() != ".onnx")
      refuse(concat("--model ", options.model.string(), ": wanted the .onnx file that '", input.path.string(), "' came from"));
    check_user(!original->sha256.empty(), "'", input.path.string(), "' does not say which .onnx file it came from");
    original->path = fs::absolute(options.model).string();
  }
  check_user(!original->path.empty() || input.artifact, "'", input.path.string(),
             "' does not say which .onnx file it came from, for that was not there any more when it was written");
  frontend::OnnxFile file =
      open_original(*original, input.artifact ? input.artifact->artifact.model : std::vector<std::byte>(), input.path);
  return {std::move(file), std::move(original)};
}

const OriginalModel* original_of(const Input& input) {
  const std::optional<OriginalModel>* found = input.manifest   ? &input.manifest->model.original
                                              : input.artifact ? &input.artifact->saved.original
                                                               : nullptr;
  return found && *found ? &**found : nullptr;
}

bool is_tied(const frontend::Alias& alias) { return alias.kind == frontend::Alias::Kind::tied; }

/// Initializers that the graph ties to a state, which else were missing where no graph tells it.
void add_tied(const Input& input, Tensors& weights, const ConvertOptions& options, Converted& converted) {
  const OriginalModel* original = original_of(input);
  if (!original || std::ranges::none_of(original->aliases, is_tied)) return;
  Tensors own;
  std::string why;
  try {
    own = frontend::float_initializers(open_target(input, options).file.source);
  } catch (const UserError& error) { why = error.what(); }
  std::vector<std::string> left;
  for (const frontend::Alias& alias : original->aliases) {
    const auto state = weights.find(alias.state);
    if (!is_tied(alias) || state == weights.end()) continue;
    const auto found = own.find(alias.initializer);
    if (found == own.end()) left.push_back(alias.initializer);
    else weights.insert_or_assign(alias.initializer, as_initializer(alias, state->second, found->second.shape()));
  }
  if (!left.empty())
    converted.notes.push_back(concat("left out ", left.size() == 1 ? "is " : "are ", listing(left),
                                     ", tied to others by a model that cannot be read", why.empty() ? "" : concat(": ", why)));
}

/// Of weights that know of no graph: each must be an initializer of its shape, or a state that an artifact says is part of one.
void check_initializers(const Tensors& weights, const Target& target, Converted& converted) {
  const frontend::OnnxFile& file = target.file;
  const Tensors own = frontend::float_initializers(file.source);
  const std::vector<frontend::Alias> aliases = target.original ? target.original->aliases : std::vector<frontend::Alias>();
  std::vector<std::string> extra, staying;
  for (const auto& [name, tensor] : weights) {
    if (std::ranges::count(aliases, name, &frontend::Alias::state) > 0) continue;
    const auto found = own.find(name);
    if (found == own.end()) extra.push_back(name);
    else
      check_user(found->second.shape() == tensor.shape(), "tensor '", name, "' is ", to_string(tensor.type()), ", wanted ",
                 to_string(found->second.type()), " as in '", file.path, "'");
  }
  check_user(extra.empty(), "'", file.path, "' has no initializers ", listing(extra));
  for (const auto& [name, tensor] : own)
    if (!weights.contains(name)) staying.push_back(name);
  if (!staying.empty()) converted.notes.push_back(concat("as in '", file.path, "' stay ", listing(staying)));
}

/// Tied initializers that come with their state: export writes what the state is.
void check_tied(const Tensors& weights, const Target& target) {
  if (!target.original) return;
  for (const frontend::Alias& alias : target.original->aliases) {
    const auto state = weights.find(alias.state), given = weights.find(alias.initializer);
    if (!is_tied(alias) || state == weights.end() || given == weights.end()) continue;
    check_user(as_initializer(alias, state->second, given->second.shape()).cast(given->second.dtype()) == given->second, "'",
               alias.initializer, "' is not what '", alias.state, "' is, to which '", target.file.path, "' ties it");
  }
}

/// What it says that numbers of its training's data stand for, or the run does to which a checkpoint belongs.
std::string names_of_input(const Input& input) {
  if (input.artifact) return input.artifact->saved.number_names;
  return input.manifest ? number_names_of_run(fs::absolute(input.path).lexically_normal().parent_path().parent_path()) : "";
}

void to_onnx(const Input& input, const fs::path& out, const ConvertOptions& options, Converted& converted) {
  const Tensors weights = weights_of(input, options.averages, converted);
  const Target target = open_target(input, options);
  frontend::ImportedModel model;
  model.source = target.file.source;
  if (target.original) {
    model.aliases = target.original->aliases;
    model.forms.training = target.original->training_form;
  }
  if (!input.manifest && !input.artifact) {
    check_initializers(weights, target, converted);
    check_tied(weights, target);
  }
  std::vector<InputForm> forms;
  if (options.preprocessing) {
    check_user(input.artifact.has_value(), "'", input.path.string(), "' says nothing of its inputs' forms; a .gcx does");
    forms = input.artifact->saved.input_forms;
  }
  converted.beside =
      write_onnx(out, model, weights, {.form = options.form, .input_forms = forms, .number_names = names_of_input(input)});
  converted.tensors = static_cast<std::int64_t>(weights.size());
}

void to_safetensors(const Input& input, const fs::path& out, const ConvertOptions& options, Converted& converted) {
  Tensors weights = weights_of(input, options.averages, converted);
  if (const Adaptation* lora = input.lora())
    for (const AdaptedWeight& weight : lora->weights) {
      Tensor& merged = weights.at(weight.parameter);
      merged = merged.cast(input.tensors.at(weight.parameter).dtype());
    }
  add_tied(input, weights, options, converted);
  runtime::write_safetensors(out, {weights, {{"format", "pt"}}});
  converted.tensors = static_cast<std::int64_t>(weights.size());
}

/// An artifact with the input's states, or its weights.
ReadArtifact made_artifact(const Input& input, Form wanted, const ConvertOptions& options, Converted& converted) {
  if (options.model.extension() != ".gcx")
    refuse(concat("from ", words_for(input.form), " to ", words_for(wanted), ": '", input.path.string(),
                  "' holds no compiled training step; --model m.gcx gives one (gcomp compile --train makes it)"));
  ReadArtifact made = read_with_model(options.model);
  if (input.manifest) {
    adopt_checkpoint(made, *input.manifest, input.tensors);
    converted.tensors = static_cast<std::int64_t>(input.tensors.size());
    return made;
  }
  const Adaptation* lora = made.saved.lora ? input.lora() : nullptr;
  if (lora) check_adapters(*lora, made);
  const Tensors weights = lora ? weights_beside_adapters(input, false) : weights_of(input, false, converted);
  adopt_weights(made, weights, input.form == Form::onnx);
  converted.tensors = static_cast<std::int64_t>(made.artifact.weights.size());
  converted.notes.push_back("training starts anew from these weights: moments, averages and counters are as at its start");
  return made;
}

void to_artifact(const Input& input, const fs::path& out, const ConvertOptions& options, Converted& converted) {
  ReadArtifact made = made_artifact(input, Form::gcx, options, converted);
  store(made.saved, made.artifact);
  runtime::write_artifact(out, made.artifact);
}

/// Without its own folder a checkpoint has no place: what stands there is never replaced.
void to_checkpoint(const Input& input, const fs::path& out, const ConvertOptions& options, Converted& converted) {
  std::error_code ignored;
  check_user(!fs::exists(fs::symlink_status(out, ignored)), "'", out.string(),
             "' exists, and nothing is written over; give another name");
  Snapshot snapshot;
  if (input.manifest) {
    for (const auto& [name, tensor] : input.tensors)
      snapshot.states.push_back({name, input.manifest->tensors.at(name).kind, tensor});
    snapshot.run = input.manifest->run;
    snapshot.model = input.manifest->model;
  } else if (input.artifact) {
    snapshot = snapshot_of(*input.artifact);
  } else {
    snapshot = snapshot_of(made_artifact(input, Form::checkpoint, options, converted));
  }
  write_checkpoint(out, snapshot);
  converted.tensors = static_cast<std::int64_t>(snapshot.states.size());
}

void check_forms(const Input& input, Form out, const ConvertOptions& options) {
  if (input.form == out && out != Form::checkpoint && options.model.empty())
    refuse(concat("'", input.path.string(), "' is ", words_for(out), " already; with --model its weights go into that one"));
  if (input.form == out && out == Form::safetensors) refuse("from a .safetensors file to another: there is nothing to convert");
  if (options.averages && (out == Form::gcx || out == Form::checkpoint))
    refuse(concat("averages in the place of parameters go to .onnx and .safetensors; ", words_for(out), " holds both"));
}

}  // namespace

Converted convert_model(const fs::path& in, const fs::path& out, const ConvertOptions& options) {
  const Form wanted = form_by_ending(out);
  const Input input = read_input(in);
  check_forms(input, wanted, options);
  Converted converted;
  switch (wanted) {
    case Form::onnx: to_onnx(input, out, options, converted); break;
    case Form::gcx: to_artifact(input, out, options, converted); break;
    case Form::safetensors: to_safetensors(input, out, options, converted); break;
    case Form::checkpoint: to_checkpoint(input, out, options, converted); break;
  }
  return converted;
}

}  // namespace gcomp::driver
