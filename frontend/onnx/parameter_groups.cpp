// Which uses of an initializer read the same parameter.
#include <algorithm>
#include <string_view>

#include "frontend/globs.h"
#include "frontend/onnx/planner.h"

namespace gcomp::frontend {
namespace {

bool is_use_of_norm(const Use& use) { return use.role == UseRole::norm_scale || use.role == UseRole::norm_bias; }
/// A LayerNorm without affine parameters borrows any vector of ones as its scale.
bool is_bare_norm(const Use& use) { return use.role == UseRole::norm_scale && !use.norm_has_bias && use.node >= 0; }

/// Where PyTorch's older exporter called a node's module: "/blocks.0/ln_1/LayerNormalization" is the second call of "/blocks.0/ln".
std::string_view module_scope(std::string_view node) {
  const std::size_t slash = node.rfind('/');
  if (!node.starts_with('/') || slash == 0) return {};
  const std::string_view scope = node.substr(0, slash);
  const std::size_t digits = scope.find_last_not_of("0123456789");
  const bool numbered = digits != scope.npos && digits + 1 < scope.size() && scope[digits] == '_';
  return numbered ? scope.substr(0, digits) : scope;
}

/// One module that is used several times, by the scopes of its nodes.
bool are_of_one_module(const std::vector<Use>& uses) {
  const std::string_view scope = module_scope(uses[0].node_name);
  return !scope.empty() &&
         std::all_of(uses.begin(), uses.end(), [&](const Use& use) { return module_scope(use.node_name) == scope; });
}

}  // namespace

std::vector<Group>::iterator Planner::keeper_of(const std::string& name, std::vector<Group>& groups) const {
  const auto has_state = [](const Group& group) {
    return group.verdict.trained || std::any_of(group.uses.begin(), group.uses.end(), is_statistic);
  };
  const std::string own = origins_.of(name).target;
  const auto found =
      std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return has_state(g) && g.origin.target == own; });
  return found != groups.end() ? found : std::find_if(groups.begin(), groups.end(), has_state);
}

std::vector<Group> Planner::groups_of(const std::string& name, const Tensor& values) {
  const std::vector<Use>& uses = uses_[name];
  const bool inside = std::any_of(uses.begin(), uses.end(), [](const Use& u) { return u.node < 0; });
  if (uses.size() == 1 || inside) return {{origins_.of(name), uses}};
  const bool ones = has_one_value(values) && values.at(0) == 1 && !std::all_of(uses.begin(), uses.end(), is_bare_norm);
  std::vector<Group> groups;
  std::vector<std::string> names;
  for (const Use& use : uses) {
    Origin origin = origins_.of(name, values, use);
    if (origin.kind == OriginKind::untold && ones && is_bare_norm(use)) origin.kind = OriginKind::literal;
    for (std::string& known : origins_.all_names(name, origin.target)) names.push_back(std::move(known));
    const auto known = std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.origin == origin; });
    if (known == groups.end()) groups.push_back({origin, {use}});
    else known->uses.push_back(use);
  }
  groups = split(name, values, std::move(groups));
  return first_match(options_.tie, names) ? joined(std::move(groups)) : groups;
}

std::vector<Group> Planner::joined(std::vector<Group> groups) {
  std::vector<Group> parts;
  const auto is_fixed = [](const Group& group) {
    return group.origin.kind == OriginKind::literal || std::any_of(group.uses.begin(), group.uses.end(), is_statistic);
  };
  for (Group& group : groups) {
    const auto first = std::find_if_not(parts.begin(), parts.end(), is_fixed);
    if (is_fixed(group) || first == parts.end()) parts.push_back(std::move(group));
    else first->uses.insert(first->uses.end(), group.uses.begin(), group.uses.end());
  }
  return parts;
}

bool Planner::is_thawed_apart(const std::string& name, const Group& group) const {
  const std::vector<std::string> names = origins_.all_names(name, group.origin.target);
  return first_match(options_.train, names) && first_match(options_.untie, names) &&
         std::none_of(group.uses.begin(), group.uses.end(), is_statistic);
}

std::vector<Group> Planner::split(const std::string& name, const Tensor& values, std::vector<Group> groups) const {
  std::vector<Group> parts;
  for (Group& group : groups) {
    const Origin& origin = group.origin;
    const bool trains = origin.kind == OriginKind::untold || origin.kind == OriginKind::parameter;
    const auto norms = std::count_if(group.uses.begin(), group.uses.end(), is_use_of_norm);
    const bool statistics = std::any_of(group.uses.begin(), group.uses.end(), is_statistic);
    const bool borrowed = std::any_of(group.uses.begin(), group.uses.end(), [](const Use& u) { return u.norm_is_nameless; }) &&
                          norms < std::ssize(group.uses);
    // An exporter that left the names of what it merged would have left another name for another norm.
    const bool fresh = merged_.empty() && has_one_value(values) && (norms >= 2 || borrowed);
    const bool merged = origin.kind == OriginKind::untold && (fresh || statistics) && !are_of_one_module(group.uses);
    if (is_thawed_apart(name, group) ||
        (trains && (merged || first_match(options_.untie, origins_.all_names(name, origin.target)))))
      for (const Use& use : group.uses) parts.push_back({origin, {use}});
    else parts.push_back(std::move(group));
  }
  return parts;
}

}  // namespace gcomp::frontend
