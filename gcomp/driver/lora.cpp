#include "gcomp/driver/lora.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "frontend/globs.h"
#include "frontend/layers/initial_values.h"
#include "frontend/onnx/names.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "passes/training/lora.h"
#include "passes/training/training.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/strict_json.h"

namespace gcomp::driver {
namespace {

using frontend::Parameter;

[[noreturn]] void refuse_lora(const std::string& message) { throw UserError(message, ExitCode::usage); }

/// "a, b" as "a" and "b".
std::vector<std::string> split_globs(const std::string& text) {
  std::vector<std::string> globs;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, comma - begin);
    part.erase(0, part.find_first_not_of(" \t"));
    part.erase(part.find_last_not_of(" \t") + 1);
    if (part.empty()) refuse_lora(concat("--lora '", text, "': a glob is empty; wanted names with * and ?, with commas between"));
    globs.push_back(std::move(part));
    begin = comma + 1;
  }
  return globs;
}

/// The names that a parameter goes by.
std::vector<std::string> names_of_parameter(const Parameter& parameter) {
  std::vector<std::string> names{parameter.name};
  for (const std::string& other : {parameter.initializer, parameter.likely_name})
    if (!other.empty() && std::ranges::count(names, other) == 0) names.push_back(other);
  return names;
}

/// "blocks.0.fc" of the node "/blocks.0/fc/MatMul", as PyTorch's older exporter names what a module computes; else "".
std::string module_of_node(std::string_view node) {
  const std::size_t last = node.rfind('/');
  if (!node.starts_with('/') || last == 0) return "";
  std::string path(node.substr(1, last - 1));
  std::ranges::replace(path, '/', '.');
  return path;
}

/// "fc" of "fc.weight"; "" where the file does not tell.
std::string told_module(const Parameter& parameter) {
  const std::string& name = parameter.likely_name.empty() ? parameter.name : parameter.likely_name;
  constexpr std::string_view kWeight = ".weight";
  if (name.ends_with(kWeight)) return name.substr(0, name.size() - kWeight.size());
  if (name.find('@') != std::string::npos) return "";
  if (frontend::is_anonymous(name)) return parameter.nodes.empty() ? "" : module_of_node(parameter.nodes[0]);
  return name;
}

/// What PEFT calls the two matrices of torch.nn.MultiheadAttention, whose own module has an adapter of the joined one.
std::string module_for_peft(const std::string& told, const std::set<std::string>& attentions) {
  constexpr std::string_view kJoined = ".in_proj_weight", kOutput = ".out_proj";
  if (told.ends_with(kJoined)) return told.substr(0, told.size() - kJoined.size());
  if (!told.ends_with(kOutput)) return told;
  const std::string attention = told.substr(0, told.size() - kOutput.size());
  return attentions.contains(attention) ? concat(attention, kAttentionOutput) : told;
}

/// The modules that have a joined matrix or its bias.
std::set<std::string> attentions_of(const frontend::ImportedModel& model) {
  std::set<std::string> attentions;
  for (const Parameter& parameter : model.parameters)
    for (const std::string& name : names_of_parameter(parameter))
      for (const std::string_view ending : {".in_proj_weight", ".in_proj_bias"})
        if (name.ends_with(ending)) attentions.insert(name.substr(0, name.size() - ending.size()));
  return attentions;
}

/// Whether an entry of the name map turns the beginning of paths into another one: {"model.*": "*"}.
bool is_prefix(const std::string& name) { return name.ends_with('*'); }
bool has_prefix(const std::string& module, const std::string& name) {
  return is_prefix(name) && module.starts_with(std::string_view(name).substr(0, name.size() - 1));
}

/// The entry for the parameter itself, else the longest for the beginning of its module's path, else what the file tells.
std::string module_of(const Parameter& parameter, const std::map<std::string, std::string>& modules,
                      const std::set<std::string>& attentions) {
  for (const std::string& name : names_of_parameter(parameter))
    if (const auto given = modules.find(name); given != modules.end()) return given->second;
  const std::string told = module_for_peft(told_module(parameter), attentions);
  const std::pair<const std::string, std::string>* longest = nullptr;
  for (const auto& entry : modules)
    if (has_prefix(told, entry.first) && (!longest || entry.first.size() > longest->first.size())) longest = &entry;
  if (!longest) return told;
  return longest->second.substr(0, longest->second.size() - 1) + told.substr(longest->first.size() - 1);
}

/// A parameter that may be asked for.
struct Candidate {
  Parameter* parameter = nullptr;
  ir::Value* state = nullptr;
  std::string module;
  std::optional<passes::MapWeight> weight;
  std::string obstacle;
};

bool matches(const std::string& glob, const Candidate& candidate) {
  std::vector<std::string> names = names_of_parameter(*candidate.parameter);
  names.insert(names.end(), {candidate.module, told_module(*candidate.parameter)});
  names.insert(names.end(), candidate.parameter->nodes.begin(), candidate.parameter->nodes.end());
  return std::ranges::any_of(names, [&](const std::string& name) { return !name.empty() && frontend::matches_glob(glob, name); });
}

std::string obstacle_of(const Parameter& parameter) {
  if (!parameter.tied_to.empty())
    return concat("its values are those of '", parameter.tied_to, "' (--untie '", parameter.name, "' gives it its own)");
  return parameter.updated ? "it is a running statistic" : concat("it is frozen: ", parameter.reason);
}

std::vector<Candidate> candidates_of(frontend::ImportedModel& model, const std::map<std::string, std::string>& modules) {
  const std::set<std::string> attentions = attentions_of(model);
  std::vector<Candidate> candidates;
  std::vector<std::string> names;
  for (Parameter& parameter : model.parameters) {
    Candidate& candidate = candidates.emplace_back();
    candidate.parameter = &parameter;
    candidate.module = module_of(parameter, modules, attentions);
    if (parameter.trained) names.push_back(parameter.name);
    else candidate.obstacle = obstacle_of(parameter);
  }
  const std::vector<ir::Value*> states = passes::states_named(model.graph, names);
  std::vector<passes::Adaptability> found = passes::adaptability(model.graph, states);
  std::size_t next = 0;
  for (Candidate& candidate : candidates) {
    if (!candidate.parameter->trained) continue;
    candidate.state = states[next];
    passes::Adaptability& adaptable = found[next++];
    candidate.weight = std::move(adaptable.weight);
    candidate.obstacle = std::move(adaptable.obstacle);
    if (!candidate.obstacle.empty() && candidate.parameter->nodes.size() > 1 && adaptable.some_use)
      candidate.obstacle += concat(" (--untie '", candidate.parameter->name, "' gives each use its own)");
  }
  return candidates;
}

std::vector<std::string> adaptable_names(const std::vector<Candidate>& candidates) {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates)
    if (candidate.weight)
      names.push_back(candidate.parameter->likely_name.empty() ? candidate.parameter->name : candidate.parameter->likely_name);
  return names;
}

/// Of a glob that gives nothing.
[[noreturn]] void refuse_glob(const std::string& glob, const std::vector<Candidate>& candidates) {
  const std::vector<std::string> adaptable = adaptable_names(candidates);
  std::string text;
  std::size_t matched = 0;
  constexpr std::size_t kShown = 3;
  for (const Candidate& candidate : candidates)
    if (matches(glob, candidate) && ++matched <= kShown)
      text += concat(text.empty() ? "" : ", ", "'", candidate.parameter->name, "' (", candidate.obstacle, ")");
  if (matched == 0) refuse_lora(concat("--lora ", glob, " matches no parameter", nearest_to_glob(glob, adaptable)));
  if (matched > kShown) text += concat(" and ", matched - kShown, " more");
  refuse_lora(concat("--lora ", glob, " matches nothing that can have an adapter, but ", text, "; ",
                     adaptable.empty() ? "nothing can" : concat("what can is ", listing(adaptable))));
}

/// Those that the globs name, and a note of each matrix that they name in vain.
std::vector<Candidate*> chosen_by_globs(std::vector<Candidate>& candidates, const std::vector<std::string>& texts,
                                        std::vector<std::string>& notes) {
  std::vector<Candidate*> chosen;
  for (const std::string& text : texts)
    for (const std::string& glob : split_globs(text)) {
      bool any = false;
      for (Candidate& candidate : candidates) {
        if (!matches(glob, candidate)) continue;
        if (candidate.weight) {
          any = true;
          if (std::ranges::count(chosen, &candidate) == 0) chosen.push_back(&candidate);
        } else if (candidate.parameter->type.rank() > 1) {
          notes.push_back(concat("--lora ", glob, " gives '", candidate.parameter->name, "' no adapter: ", candidate.obstacle));
        }
      }
      if (!any) refuse_glob(glob, candidates);
    }
  std::ranges::sort(chosen);  // the model's order
  return chosen;
}

void require_shape(const std::string& module, const char* factor, const Tensor& found, const Shape& wanted,
                   const Parameter& parameter) {
  check_user(found.shape() == wanted, "module '", module, "': ", factor, " is ", to_string(found.type()), ", '", parameter.name,
             "' wants ", to_string(wanted));
}

std::vector<Candidate*> chosen_by_adapter(std::vector<Candidate>& candidates, const AdapterFile& adapter) {
  std::vector<Candidate*> chosen;
  std::vector<std::string> known;
  for (const Candidate& candidate : candidates)
    if (candidate.weight && !candidate.module.empty()) known.push_back(candidate.module);
  for (const auto& [module, factors] : adapter.modules) {
    Candidate* found = nullptr;
    std::string obstacle;
    for (Candidate& candidate : candidates) {
      if (candidate.module != module) continue;
      if (!candidate.weight) {
        obstacle = concat(": '", candidate.parameter->name, "' can have none, ", candidate.obstacle);
        continue;
      }
      check_user(!found, "'", adapter.path, "': module '", module, "' is that of '", found ? found->parameter->name : "",
                 "' and of '", candidate.parameter->name, "'; --name-map FILE names them apart");
      found = &candidate;
    }
    if (!found)
      refuse_lora(concat("--adapter '", adapter.path, "': the model has no module '", module, "' that takes an adapter", obstacle,
                         obstacle.empty() ? nearest_to_glob(module, known) : "",
                         "; --name-map FILE says which parameters belong to which modules"));
    try {
      require_shape(module, "lora_A", factors.a, passes::shape_of_a(*found->weight, adapter.rank), *found->parameter);
      require_shape(module, "lora_B", factors.b, passes::shape_of_b(*found->weight, adapter.rank), *found->parameter);
    } catch (const UserError& error) { throw UserError(concat("'", adapter.path, "': ", error.what())); }
    chosen.push_back(found);
  }
  std::ranges::sort(chosen);
  return chosen;
}

/// Whether the user asked for it to train.
bool is_thawed(const Parameter& parameter) { return parameter.reason.starts_with("--thaw="); }

/// kaiming_uniform_(a=sqrt(5)) of PEFT: the bound is 1 / sqrt(inputs of one row).
Tensor first_values_of_a(const TensorType& type, std::uint64_t seed, const std::string& name) {
  const double bound = 1 / std::sqrt(static_cast<double>(type.elements() / type.shape[0]));
  return frontend::filled(type, frontend::uniform_values(seed, name, bound));
}

ir::Value* add_factor(frontend::ImportedModel& model, const std::string& name, Tensor values) {
  ir::Value* state = model.graph.add_state(values.type(), name, ir::StateRole::parameter);
  check_user(state->name == name, "the model has a value named '", name, "' already, the name of an adapter");
  model.weights.emplace(name, std::move(values));
  return state;
}

/// The report of a factor, behind its parameter's.
Parameter report_of_factor(const Parameter& base, const ir::Value* state, std::string_view ending, std::int64_t rank) {
  Parameter report;
  report.name = state->name;
  if (!base.likely_name.empty()) report.likely_name = concat(base.likely_name, ending);
  report.type = state->type;
  report.trained = true;
  report.reason = concat("adapter of rank ", rank);
  report.nodes = base.nodes;
  return report;
}

void check_module_names(const std::vector<Candidate>& candidates, const std::map<std::string, std::string>& modules) {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates)
    for (std::string& name : names_of_parameter(*candidate.parameter)) names.push_back(std::move(name));
  for (const auto& [name, module] : modules)
    if (is_prefix(name)) {
      if (std::ranges::none_of(candidates,
                               [&name = name](const Candidate& c) { return has_prefix(told_module(*c.parameter), name); }))
        refuse_lora(concat("--name-map: no module of the model begins with '", name.substr(0, name.size() - 1), "'"));
    } else if (std::ranges::count(names, name) == 0)
      refuse_lora(concat("--name-map: the model has no parameter '", name, "'", did_you_mean(name, names)));
}

}  // namespace

void check(const LoraSettings& settings) {
  if (settings.adapter && !settings.globs.empty())
    refuse_lora("--lora and --adapter: the adapter says itself which parameters it is of; leave one of them out");
  if (settings.rank < 1 || settings.rank > kMostRank)
    refuse_lora(concat("--lora-rank ", settings.rank, ": wanted 1 or more, at most ", kMostRank));
  if (!(settings.alpha > 0 && std::isfinite(settings.alpha)))
    refuse_lora(concat("--lora-alpha ", settings.alpha, ": wanted a number above 0"));
  if (settings.empty() && !settings.modules.empty()) refuse_lora("--name-map has a meaning only with --lora or --adapter");
}

std::map<std::string, std::string> read_module_names(const std::filesystem::path& path) {
  constexpr std::uintmax_t kLargest = 1 << 26;
  const std::vector<std::byte> bytes = runtime::read_file(path, kLargest);
  try {
    const nlohmann::json object = runtime::parse_strict_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, 1);
    check_user(object.is_object(), "wanted an object {\"parameter\": \"path.of.module\", ...}");
    std::map<std::string, std::string> modules;
    for (const auto& [name, module] : object.items()) {
      check_user(module.is_string() && !module.get<std::string>().empty(), "'", name, "' is ", module.dump(),
                 ", wanted the path of a module");
      check_user(is_prefix(name) == is_prefix(module.get<std::string>()), "'", name, "' is ", module.dump(),
                 "; the beginnings of paths end in * both, names in none");
      modules.emplace(name, module.get<std::string>());
    }
    return modules;
  } catch (const UserError& error) { throw UserError(concat("'", path.string(), "': ", error.what())); }
}

Adaptation attach_lora(frontend::ImportedModel& model, const LoraSettings& settings, std::uint64_t seed) {
  std::vector<Candidate> candidates = candidates_of(model, settings.modules);
  check_module_names(candidates, settings.modules);
  const AdapterFile* file = settings.adapter.get();
  const std::vector<Candidate*> chosen =
      file ? chosen_by_adapter(candidates, *file) : chosen_by_globs(candidates, settings.globs, model.repairs);
  Adaptation made{.rank = file ? file->rank : settings.rank,
                  .alpha = file ? file->alpha : settings.alpha,
                  .rank_stabilized = file && file->rank_stabilized};
  std::vector<passes::Adapter> adapters;
  std::vector<Parameter> reports;
  for (Candidate& candidate : candidates) {
    Parameter& base = *candidate.parameter;
    const bool adapted = std::ranges::count(chosen, &candidate) > 0;
    if (base.trained && (adapted || !is_thawed(base))) {
      base.reason = adapted ? "frozen beside its adapter" : "frozen beside adapters";
      base.trained = base.doubtful = false;
    }
    reports.push_back(base);
    if (!adapted) continue;
    const AdaptedWeight& weight = made.weights.emplace_back(AdaptedWeight{.parameter = base.name,
                                                                          .module = candidate.module,
                                                                          .shape = candidate.weight->shape,
                                                                          .strides = candidate.weight->strides});
    const DType dtype = candidate.state->type.dtype;
    const TensorType a{dtype, passes::shape_of_a(*candidate.weight, made.rank)},
        b{dtype, passes::shape_of_b(*candidate.weight, made.rank)};
    passes::Adapter& adapter = adapters.emplace_back();
    adapter.parameter = candidate.state;
    adapter.scale = made.scale();
    adapter.a = add_factor(model, weight.a(),
                           file ? file->modules.at(weight.module).a.cast(dtype) : first_values_of_a(a, seed, weight.a()));
    adapter.b = add_factor(model, weight.b(), file ? file->modules.at(weight.module).b.cast(dtype) : Tensor(b));
    reports.push_back(report_of_factor(base, adapter.a, ".lora_A", made.rank));
    reports.push_back(report_of_factor(base, adapter.b, ".lora_B", made.rank));
  }
  model.parameters = std::move(reports);
  passes::attach_adapters(model.graph, adapters);
  if (file && file->dropout > 0)
    model.repairs.push_back(
        concat("'", file->path, "' was trained with a dropout of ", file->dropout, " before it; here it has none"));
  return made;
}

}  // namespace gcomp::driver
