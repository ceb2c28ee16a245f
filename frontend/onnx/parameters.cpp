#include "frontend/onnx/parameters.h"

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>

#include "frontend/globs.h"
#include "frontend/onnx/call_settings.h"
#include "frontend/onnx/detached.h"
#include "frontend/onnx/embeddings.h"
#include "frontend/onnx/left_out.h"
#include "frontend/onnx/notes.h"
#include "frontend/onnx/planner.h"
#include "frontend/onnx/tensor_proto.h"
#include "frontend/onnx/ties.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::frontend {
namespace {

/// States with values of this size or more are kept out of the code, even where nothing updates them.
constexpr std::size_t kLargeConstant = std::size_t{1} << 16;
constexpr std::string_view kStatistic = "running statistic", kBuffer = "buffer";

std::vector<std::string> names_of(const std::vector<Use>& uses) {
  std::vector<std::string> names;
  for (const Use& use : uses) names.push_back(use.node_name);
  return names;
}

/// Operands that are read as numbers when the model is compiled, so that nothing could train them.
bool is_fixed_setting(const Use& use) {
  constexpr std::string_view kOperators[] = {"Range", "OneHot", "Dropout", "Resize", "Upsample", "Pad", "Shape", "CastLike"};
  return use.role == UseRole::setting && std::find(std::begin(kOperators), std::end(kOperators), use.op) != std::end(kOperators);
}

/// The use that says most of what trains: not that of a cast or a copy, where it has another.
const Use& telling(const std::vector<Use>& uses) {
  const auto found =
      std::find_if(uses.begin(), uses.end(), [](const Use& use) { return use.role != UseRole::setting && use.op != "Identity"; });
  return found == uses.end() ? uses[0] : *found;
}

/// What the file says of a group, or what its uses say where it is silent.
Verdict verdict_of(const std::string& name, const Tensor& values, const Group& group, Naming naming) {
  const Origin& origin = group.origin;
  if (origin.kind == OriginKind::untold || std::any_of(group.uses.begin(), group.uses.end(), is_statistic))
    return verdict_of(name, values, group.uses, naming);
  const std::string from = origin.folded && !origin.sources.empty() ? concat("folded from ", listing(origin.sources)) : "";
  switch (origin.kind) {
    case OriginKind::buffer: return {false, false, std::string(kBuffer)};
    case OriginKind::literal: return {false, false, "number in the model's code"};
    case OriginKind::constant: return {false, false, !from.empty() ? from : origin.folded ? "folded from constants" : "constant"};
    default: break;
  }
  if (values.elements() == 0) return {false, false, "empty"};
  if (std::all_of(group.uses.begin(), group.uses.end(), is_fixed_setting))
    return {false, false, concat("setting of ", group.uses[0].op, ", though the file calls it a parameter")};
  const bool plain = origin.target.empty() || from.empty();
  const std::string used = used_as(telling(group.uses));
  return {true, false, from.empty() ? used : plain ? from : concat(used, ", ", from)};
}

Naming naming_of(const ::onnx::GraphProto& graph) {
  const bool paths = std::any_of(graph.initializer().begin(), graph.initializer().end(), [](const auto& proto) {
    return has_module_path(proto.name()) && (proto.name().ends_with(".weight") || proto.name().ends_with(".bias"));
  });
  return paths ? Naming::module_paths : Naming::unknown;
}

/// For each node whether it computes with an input of the graph; nodes that hold graphs count as such.
std::vector<bool> nodes_after_inputs(const ::onnx::GraphProto& graph) {
  std::unordered_set<std::string_view> computed;
  for (const auto& input : graph.input()) computed.insert(input.name());
  for (const auto& proto : graph.initializer()) computed.erase(proto.name());
  std::vector<bool> after;
  for (const auto& node : graph.node()) {
    const bool holds = std::any_of(node.attribute().begin(), node.attribute().end(), [](const auto& a) { return a.has_g(); });
    after.push_back(holds || std::any_of(node.input().begin(), node.input().end(),
                                         [&](const std::string& input) { return computed.contains(input); }));
    if (after.back()) computed.insert(node.output().begin(), node.output().end());
  }
  return after;
}

}  // namespace

Planner::Planner(const Source& source, const Initializers& initializers, const std::vector<FixedWeight>& fixed,
                 const ImportOptions& options)
    : graph_(source.model.graph()),
      initializers_(initializers),
      fixed_(fixed),
      options_(options),
      merged_(source.merged),
      uses_(uses_of_initializers(graph_)),
      signature_(read_signature(graph_)),
      origins_(graph_, signature_, uses_),
      naming_(naming_of(graph_)),
      moved_(moved_buffers(graph_, signature_, initializers, uses_)),
      depends_on_input_(nodes_after_inputs(graph_)) {}

ParameterPlan Planner::run() {
  for (const auto& input : graph_.input()) taken_.insert(input.name());
  for (const auto& proto : graph_.initializer()) taken_.insert(proto.name());
  for (const auto& node : graph_.node()) taken_.insert(node.output().begin(), node.output().end());
  for (const auto& proto : graph_.initializer()) {
    const auto& initializer = initializers_.at(proto.name());
    if (uses_[proto.name()].empty()) continue;
    if (initializer.values && is_float(initializer.values->dtype())) plan(proto.name(), *initializer.values);
    else note_unbelievable(proto.name());
  }
  restore_biases();
  freeze_norms();
  plan_embeddings(graph_, signature_, plan_);
  plan_detached(graph_, signature_, plan_);
  for (const int node : moved_.unread) plan_.moved.emplace(node, MovedBuffer());
  cut_moved_buffers(graph_, plan_);
  plan_call_settings(graph_, signature_, plan_);
  tie_equals(plan_, initializers_, origins_, merged_, options_);
  cut_folded_detached();
  note_restored();
  note_left_out(graph_, signature_, origins_, read_, plan_);
  note_lost_buffers();
  check_globs();
  return std::move(plan_);
}

void Planner::plan(const std::string& name, const Tensor& values) {
  std::vector<Group> groups = groups_of(name, values);
  for (Group& group : groups) {
    group.verdict = verdict_of(name, values, group, naming_);
    if (is_thawed_apart(name, group)) group.verdict.trained = true;
    if (const std::string& target = group.origin.target;
        is_folded_detached(signature_, name, target) && !initializers_.contains(target))
      group.verdict = {false, false, concat("detached from '", target, "' in the module's code")};
    read_.insert(group.origin.sources.begin(), group.origin.sources.end());
  }
  const auto keeper = keeper_of(name, groups);
  if (keeper == groups.end()) return add_constant(name, values, groups);
  add({name, name, keeper->origin.target, file_type(name, values), keeper->uses, keeper->verdict});
  if (groups.size() == 1) repeat_rows(name, values, keeper->origin);
  note_computed(name, name, *keeper);
  std::vector<std::string> parts{name};
  for (auto group = groups.begin(); group != groups.end(); ++group)
    if (group != keeper) add_part(name, values, *group, parts);
  if (parts.size() > 1 && keeper->verdict.trained) note_parts(name, *keeper, parts);
}

void Planner::add_constant(const std::string& name, const Tensor& values, const std::vector<Group>& groups) {
  Entry entry{name, name, groups[0].origin.target, file_type(name, values), {}, groups[0].verdict};
  for (const Group& group : groups) {
    entry.uses.insert(entry.uses.end(), group.uses.begin(), group.uses.end());
    read_.insert(group.origin.target);
  }
  add(std::move(entry));
}

void Planner::add_part(const std::string& name, const Tensor& values, const Group& group, std::vector<std::string>& parts) {
  const bool literal = group.origin.kind == OriginKind::literal && !group.verdict.trained;
  const std::string& target = group.origin.target;
  // A folded matrix is transposed, so it does not go by the name of what it was folded from.
  const bool named = !target.empty() && !origins_.of(name).folded && !taken_.contains(target);
  const std::string state = literal ? unique(name + "@constant") : named ? unique(target) : unique(name_of_part(name, group));
  const bool own = !literal && add({state, name, target, file_type(name, values), group.uses, group.verdict});
  if (group.verdict.trained) parts.push_back(state);
  note_computed(state, name, group);
  for (const Use& use : group.uses) {
    plan_.redirected[{use.node, use.operand}] = own ? state : "";
    plan_.aliases.push_back({state, name, use.node, use.operand, false, own ? Alias::Kind::part : Alias::Kind::constant});
  }
  if (literal && group.uses[0].role == UseRole::norm_scale)
    plan_.repairs.push_back(concat("'", name, "' also serves ", group.uses.size(),
                                   " LayerNormalization nodes without bias as plain ones: those have no scale to train"));
}

std::string Planner::name_of_part(const std::string& name, const Group& group) const {
  const std::string value = group.origin.folded ? origins_.traced_value(name, group.uses[0]) : "";
  return value.empty() || value == name || taken_.contains(value) ? concat(name, "@", group.uses[0].node_name) : value;
}

void Planner::note_parts(const std::string& name, const Group& keeper, const std::vector<std::string>& parts) {
  const bool told = keeper.origin.kind != OriginKind::untold;
  if (first_match(options_.untie, origins_.all_names(name, keeper.origin.target))) {
    plan_.repairs.push_back(
        concat("'", name, "' is untied: each node that reads it trains a parameter of its own: ", some_of(parts)));
    return;
  }
  const std::string what =
      told ? concat("' is ", parts.size(), " parameters of equal value that the exporter merged, each its own again with ",
                    some_of(std::span(parts).subspan(1)))
           : concat("' serves ", uses_[name].size(),
                    " nodes that the exporter merged, each with a copy of its own: ", some_of(names_of(uses_[name])));
  plan_.repairs.push_back(concat("'", name, what, " (--tie '", name, "' keeps it one parameter)"));
}

void Planner::cut_folded_detached() {
  for (const auto& [name, alias] : plan_.tied)
    if (is_folded_detached(signature_, name, origins_.of(name).target))
      for (const Use& use : uses_[name]) plan_.detached.emplace(use.node, use.operand);
}

void Planner::note_lost_buffers() {
  if (moved_.lost.empty()) return;
  plan_.repairs.push_back(concat(
      "the module's code changes ", some_of(moved_.lost), " at each call, and this file does not have how: ",
      moved_.lost.size() == 1 ? "it stays" : "they stay", "; one exported with optimize=False has what a result depends on"));
}

void Planner::note_restored() {
  std::map<std::string, std::vector<std::string>> apart;
  for (const Parameter& parameter : plan_.parameters)
    if (const auto merged = merged_.find(parameter.name); merged != merged_.end() && (parameter.trained || parameter.updated))
      apart[merged->second].push_back(parameter.name);
  for (const auto& [root, names] : apart)
    plan_.repairs.push_back(concat("'", root, "' is ", names.size() + 1,
                                   " tensors of equal value that the exporter merged, each its own again with ", some_of(names),
                                   " (--tie '", root, "' trains parameters of them as one)"));
}

void Planner::note_computed(const std::string& state, const std::string& name, const Group& group) {
  const Origin& origin = group.origin;
  if (!group.verdict.trained || !origin.folded) return;
  const bool apart = is_expanded(name) && !plan_.repeated.contains(state);
  if (!apart && is_folded_view(signature_, name, origins_.of(name).target)) return;
  plan_.repairs.push_back(concat("'", state, "' was folded from ", some_of(origin.sources), ": it trains as a parameter of its own",
                                 origin.beside.empty() ? "" : concat(" with what came of ", some_of(origin.beside)),
                                 ", not as they would; torch.onnx.export(..., optimize=False) keeps them"));
}

void Planner::repeat_rows(const std::string& name, const Tensor& values, const Origin& origin) {
  if (!origin.folded || origin.target.empty() || plan_.states.empty() || plan_.states.back().name != name ||
      !plan_.states.back().trained)
    return;
  auto rows = repeated_rows(signature_, name, values);
  if (!rows) return;
  plan_.aliases.push_back({name, name, -1, -1, false, Alias::Kind::repeated, rows->index});
  plan_.parameters.back().reason += ", equal rows as one";
  plan_.repeated.emplace(name, std::move(*rows));
}

TensorType Planner::file_type(const std::string& name, const Tensor& values) const {
  return {dtype_of(initializers_.at(name).proto->data_type()).value_or(values.dtype()), values.shape()};
}

bool Planner::add(Entry entry) {
  // A part that has a name of its own does not go by that of the initializer which it shares.
  const bool own = entry.state != entry.initializer && entry.state == entry.target;
  std::vector<std::string> names = origins_.all_names(entry.state, entry.target);
  if (!own) names.push_back(entry.initializer);
  Verdict& verdict = entry.verdict;
  const std::vector<std::string> none;
  if (auto asked = asked_training(options_.freeze, verdict.reason == kStatistic ? none : options_.train, names, entry.state))
    verdict = {asked->trained, false, std::move(asked->reason)};
  const bool statistic = std::any_of(entry.uses.begin(), entry.uses.end(), is_statistic);
  const auto buffer =
      verdict.reason == kBuffer && entry.state == entry.target ? moved_.nodes.find(entry.target) : moved_.nodes.end();
  if (buffer != moved_.nodes.end()) {
    plan_.moved.emplace(buffer->second, MovedBuffer{entry.state});
    verdict.reason = concat("buffer that ", describe(graph_.node(buffer->second)), " changes");
  }
  const bool moves = (statistic && verdict.reason == kStatistic) || buffer != moved_.nodes.end();
  const std::string likely = !entry.target.empty() && entry.target != entry.state ? entry.target
                             : is_anonymous(entry.state)                          ? entry.uses[0].likely_name
                                                                                  : "";
  if (verdict.trained && shared(entry.uses))
    plan_.repairs.push_back(concat("'", entry.state, "' is one parameter shared by ", entry.uses.size(), " nodes: ",
                                   some_of(names_of(entry.uses)), " (--untie '", entry.state, "' gives each node its own)"));
  const bool large =
      initializers_.contains(entry.initializer) && initializers_.at(entry.initializer).values->bytes().size() >= kLargeConstant;
  read_.insert(entry.target);
  if (entry.target.empty()) read_.insert(entry.initializer);
  plan_.parameters.push_back({entry.state, entry.initializer, likely, entry.type, verdict.trained, verdict.doubtful, verdict.reason,
                              names_of(entry.uses), moves});
  for (const Use& use : entry.uses)
    if (is_statistic(use) && use.node >= 0) norm_statistics_[use.node].push_back(plan_.parameters.size() - 1);
  if (!verdict.trained && !statistic && !moves && !large) return false;
  plan_.states.push_back(
      {entry.state, entry.initializer, moves ? ir::StateRole::running_statistic : ir::StateRole::parameter, verdict.trained});
  return true;
}

bool Planner::shared(const std::vector<Use>& uses) const {
  bool calculated = false;
  std::ptrdiff_t count = 0;
  for (const Use& use : uses) {
    if (use.role == UseRole::setting || use.op == "Slice" || use.op == "Split") continue;
    if (!is_calculation(use) || !std::exchange(calculated, true)) ++count;
  }
  return count > 1;
}

bool Planner::is_calculation(const Use& use) const {
  constexpr std::string_view kViews[] = {"Transpose", "Reshape", "Unsqueeze", "Squeeze", "Expand", "Cast", "Identity"};
  return use.node >= 0 && use.role == UseRole::other && !depends_on_input_[static_cast<std::size_t>(use.node)] &&
         std::find(std::begin(kViews), std::end(kViews), use.op) == std::end(kViews);
}

void Planner::note_unbelievable(const std::string& name) {
  if (origins_.of(name).kind == OriginKind::parameter && !origins_.of(name).folded)
    plan_.repairs.push_back(concat("the file calls '", name, "' a parameter, but it is ",
                                   onnx_type_name(initializers_.at(name).proto->data_type()), ": it stays as it is"));
}

void Planner::restore_biases() {
  std::map<std::string, std::vector<MissingBias>> by_target;
  for (MissingBias& bias : missing_biases(graph_, signature_, origins_, initializers_))
    if (!taken_.contains(bias.target)) by_target[bias.target].push_back(std::move(bias));
  std::vector<std::string> restored;
  for (const auto& [target, places] : by_target) {
    Entry entry{target, target, target, {}, {}, {true, false, ""}};
    for (const MissingBias& place : places) {
      const ::onnx::NodeProto& node = graph_.node(place.node);
      entry.uses.push_back({place.node, place.operand, UseRole::bias, describe(node), node.op_type(), "", true});
    }
    entry.verdict.reason = used_as(entry.uses[0]) + ", zeros that the exporter left out";
    entry.type = file_type(places[0].like, *initializers_.at(places[0].like).values);
    entry.type.shape = places[0].shape;
    if (!add(std::move(entry))) continue;
    plan_.states.pop_back();
    restored.push_back(target);
    for (const MissingBias& place : places) {
      plan_.dropped.push_back({target, place.like, place.node, place.operand, place.shape});
      plan_.aliases.push_back({target, place.like, place.node, place.operand, false, Alias::Kind::added});
    }
  }
  if (!restored.empty())
    plan_.repairs.push_back(concat("the exporter left out ", restored.size(), restored.size() == 1 ? " bias" : " biases",
                                   " of zeros, which the model has and which train: ", some_of(restored)));
}

void Planner::freeze_norms() {
  for (bool changed = true; std::exchange(changed, false);)
    for (const auto& [node, statistics] : norm_statistics_) {
      const auto frozen = std::find_if(statistics.begin(), statistics.end(), [&](auto i) { return !plan_.parameters[i].updated; });
      if (frozen == statistics.end()) continue;
      plan_.frozen_norms.insert(node);
      for (const std::size_t i : statistics) {
        Parameter& parameter = plan_.parameters[i];
        if (!std::exchange(parameter.updated, false)) continue;
        changed = true;
        parameter.reason = concat("frozen with '", plan_.parameters[*frozen].name, "'");
      }
    }
  for (PlannedState& state : plan_.states)
    for (const Parameter& parameter : plan_.parameters)
      if (parameter.name == state.name && !parameter.updated) state.role = ir::StateRole::parameter;
  for (const int node : plan_.frozen_norms)
    plan_.repairs.push_back(concat("BatchNormalization '", describe(graph_.node(node)),
                                   "' normalises by its running statistics, as in inference, since they are frozen"));
}

std::string Planner::unique(std::string name) {
  for (int i = 2; !taken_.insert(name).second; ++i) name = concat(name.substr(0, name.find('#')), "#", i);
  return name;
}

void Planner::refuse_fixed(const char* flag, const std::vector<std::string>& globs, const std::vector<std::string>& names) const {
  for (const std::string& glob : globs) {
    const auto is_match = [&](const std::string& name) { return matches_glob(glob, name); };
    const auto found = std::ranges::find_if(fixed_, is_match, &FixedWeight::name);
    if (found != fixed_.end() && std::ranges::none_of(names, is_match))
      throw UserError(concat(flag, " ", glob, ": '", found->name, "' ", to_string(found->type), " cannot train: it is ",
                             found->place, "; an initializer of the main graph in its place could"),
                      ExitCode::usage);
  }
}

void Planner::check_globs() const {
  std::vector<std::string> names;
  for (const Parameter& parameter : plan_.parameters)
    for (const std::string& name : {parameter.name, parameter.initializer, parameter.likely_name})
      if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  for (const auto& [name, target] : origins_.tied_names()) names.push_back(name);
  refuse_fixed("--thaw", options_.train, names);
  refuse_fixed("--tie", options_.tie, names);
  refuse_fixed("--untie", options_.untie, names);
  require_matches("--thaw", options_.train, names, "initializer");
  require_matches("--tie", options_.tie, names, "initializer");
  require_matches("--untie", options_.untie, names, "initializer");
  for (const FixedWeight& weight : fixed_) names.push_back(weight.name);  // frozen already
  require_matches("--freeze", options_.freeze, names, "initializer");
}

ParameterPlan plan_parameters(const Source& source, const Initializers& initializers, const std::vector<FixedWeight>& fixed,
                              const ImportOptions& options) {
  return Planner(source, initializers, fixed, options).run();
}

}  // namespace gcomp::frontend
