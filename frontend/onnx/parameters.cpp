#include "frontend/onnx/parameters.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <tuple>

#include "frontend/onnx/tensor_proto.h"
#include "frontend/onnx/uses.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::frontend {
namespace {

/// Names that exporters make up: val_14, onnx::Conv_28, 123, /blocks.0/Constant_output_0.
bool is_anonymous(std::string_view name) {
  auto digits = [](std::string_view s) { return !s.empty() && s.find_first_not_of("0123456789") == std::string_view::npos; };
  if (digits(name) || name.starts_with("onnx::") || name.starts_with("/") || name.find("onstant") != std::string_view::npos)
    return true;
  if (name.find("_output_") != std::string_view::npos) return true;
  for (std::string_view stem : {"val_", "_to_copy", "scalar_tensor", "full", "fill", "ones", "zeros", "arange", "const_", "clone",
                                "unsqueeze", "view", "expand", "lift_fresh"})
    if (name.starts_with(stem) && name.find('.') == std::string_view::npos) return true;
  return false;
}

bool has_module_path(std::string_view name) { return name.find('.') != std::string_view::npos && !is_anonymous(name); }

bool has_one_value(const Tensor& tensor) {
  for (std::int64_t i = 1; i < tensor.elements(); ++i)
    if (tensor.at(i) != tensor.at(0)) return false;
  return tensor.elements() > 0;
}

/// Zeros and one value that hides: -inf, -10000, the lowest float.
bool is_mask(const Tensor& tensor) {
  double hidden = 0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = tensor.at(i);
    if (value == 0) continue;
    if (value > -1000 || (hidden != 0 && value != hidden)) return false;
    hidden = value;
  }
  return hidden != 0;
}

struct Verdict {
  bool trained = false;
  bool doubtful = false;
  std::string reason;
};

const std::string* first_match(const std::vector<std::string>& globs, const std::string& name) {
  auto it = std::find_if(globs.begin(), globs.end(), [&](const std::string& glob) { return matches_glob(glob, name); });
  return it == globs.end() ? nullptr : &*it;
}

std::string used_as(const Use& use) {
  if (use.role == UseRole::norm_scale) return "scale of " + use.op;
  if (use.role == UseRole::norm_bias) return "bias of " + use.op;
  return concat(name_of(use.role), " of ", use.op);
}

/// By uses, name and values alone, as docs/semantics of exporters has it.
Verdict verdict_of(const std::string& name, const Tensor& values, const std::vector<Use>& uses) {
  auto any = [&](auto test) { return std::any_of(uses.begin(), uses.end(), test); };
  auto all = [&](UseRole role) { return std::all_of(uses.begin(), uses.end(), [&](const Use& u) { return u.role == role; }); };
  auto role_is = [](std::initializer_list<UseRole> roles) {
    return [roles = std::vector(roles)](const Use& u) { return std::find(roles.begin(), roles.end(), u.role) != roles.end(); };
  };
  if (any(role_is({UseRole::running_statistic}))) return {false, false, "running statistic"};
  if (all(UseRole::setting)) return {false, false, concat("setting of ", uses[0].op)};
  if (values.elements() == 0) return {false, false, "empty"};
  const bool anonymous = is_anonymous(name);
  if (values.elements() == 1) {
    const bool plain_bias = values.type().rank() > 0 && any(role_is({UseRole::bias}));
    const bool own_operand = any([](const Use& u) {
      return (u.role == UseRole::bias && u.op != "Add") || u.role == UseRole::slope ||
             ((u.role == UseRole::norm_scale || u.role == UseRole::norm_bias) && u.op != "Mul" && u.op != "Add");
    });
    if (plain_bias || own_operand) return {true, false, used_as(uses[0])};
    if (has_module_path(name)) return {true, false, "scalar with a module's name"};
    return {false, false, "scalar constant"};
  }
  if (is_mask(values)) return {false, false, "mask"};
  const bool weight = any(role_is({UseRole::weight}));
  const bool bias = any(role_is({UseRole::bias}));
  if (anonymous && has_one_value(values) && !weight && !bias) return {false, false, "anonymous tensor of one constant"};
  for (const Use& use : uses)
    if (use.role != UseRole::other && use.role != UseRole::setting) return {true, false, used_as(use)};
  // A sinusoid table or rotary frequencies look like a parameter that is added or multiplied.
  return {true, anonymous, anonymous ? "anonymous " + used_as(uses[0]) : used_as(uses[0])};
}

std::vector<std::string> names_of(const std::vector<Use>& uses) {
  std::vector<std::string> names;
  for (const Use& use : uses) names.push_back(use.node_name);
  return names;
}

bool is_norm(const Use& use) { return use.role == UseRole::norm_scale || use.role == UseRole::norm_bias; }

/// Builds the plan initializer by initializer.
class Planner {
 public:
  Planner(const Source& source, const Initializers& initializers, const ImportOptions& options)
      : source_(source), initializers_(initializers), options_(options), uses_(uses_of_initializers(source.model.graph())) {}

  ParameterPlan run() {
    for (const auto& proto : source_.model.graph().initializer()) taken_.insert(proto.name());
    for (const auto& proto : source_.model.graph().initializer()) {
      const auto& initializer = initializers_.at(proto.name());
      if (!initializer.values || !is_float(initializer.values->dtype())) continue;
      if (uses_[proto.name()].empty()) continue;
      plan(proto.name(), *initializer.values);
    }
    tie_equals();
    report_folded_norms();
    check_globs();
    return std::move(plan_);
  }

 private:
  void plan(const std::string& name, const Tensor& values) {
    std::vector<Use> uses = uses_[name];
    uses = without_borrowed_ones(name, values, std::move(uses));
    if (uses.empty()) return;
    Verdict verdict = verdict_of(name, values, uses);
    const bool split = verdict.trained && splits(name, values, uses);
    if (!split) return add(name, name, values, uses, verdict);
    // The first use keeps the name; the others get states of their own, which export adds as initializers.
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const std::string state = i == 0 ? name : unique(concat(name, "@", uses[i].node_name));
      if (i > 0) {
        plan_.redirected[{uses[i].node, uses[i].operand}] = state;
        plan_.aliases.push_back({state, name, uses[i].node, uses[i].operand, false});
      }
      add(state, name, values, {uses[i]}, verdict);
    }
    plan_.repairs.push_back(concat("'", name, "' serves ", uses.size(),
                                   " nodes that the exporter merged; each trains its own copy: ", listing(names_of(uses)),
                                   " (--tie '", name, "' keeps it one parameter)"));
  }

  /// A LayerNorm without affine parameters borrows any vector of ones as its scale: such a use reads the constant.
  std::vector<Use> without_borrowed_ones(const std::string& name, const Tensor& values, std::vector<Use> uses) {
    auto bare = [](const Use& u) { return u.role == UseRole::norm_scale && !u.norm_has_bias && u.node >= 0; };
    const bool all_bare = std::all_of(uses.begin(), uses.end(), bare);
    if (all_bare || !has_one_value(values) || values.at(0) != 1) return uses;
    std::vector<Use> kept;
    for (const Use& use : uses) {
      if (bare(use)) plan_.redirected[{use.node, use.operand}] = "";
      else kept.push_back(use);
    }
    if (kept.size() < uses.size())
      plan_.repairs.push_back(concat("'", name, "' also serves ", uses.size() - kept.size(),
                                     " LayerNormalization nodes without bias as plain ones: those have no scale to train"));
    return kept;
  }

  bool splits(const std::string& name, const Tensor& values, const std::vector<Use>& uses) const {
    if (uses.size() < 2 || std::any_of(uses.begin(), uses.end(), [](const Use& u) { return u.node < 0; })) return false;
    if (first_match(options_.tie, name)) return false;
    if (first_match(options_.untie, name)) return true;
    const auto norms = std::count_if(uses.begin(), uses.end(), is_norm);
    return norms >= 2 && has_one_value(values);
  }

  void add(const std::string& state, const std::string& initializer, const Tensor& values, const std::vector<Use>& uses,
           Verdict verdict) {
    if (const std::string* glob = match(options_.train, state, initializer); glob && verdict.reason != "running statistic")
      verdict = {true, false, "--thaw=" + *glob};
    if (const std::string* glob = match(options_.freeze, state, initializer)) verdict = {false, false, "--freeze=" + *glob};
    const auto file_type = dtype_of(initializers_.at(initializer).proto->data_type());
    const std::string likely = is_anonymous(initializer) ? uses[0].likely_name : "";
    plan_.parameters.push_back({state,
                                initializer,
                                likely,
                                {file_type.value_or(values.dtype()), values.shape()},
                                verdict.trained,
                                verdict.trained && verdict.doubtful,
                                verdict.reason,
                                names_of(uses)});
    const bool statistic = std::any_of(uses.begin(), uses.end(), [](const Use& u) { return u.role == UseRole::running_statistic; });
    // Small constants take part in folding; large ones are kept out of the code as states that nothing updates.
    const bool large = values.bytes().size() >= (std::size_t{1} << 16);
    if (verdict.trained || statistic || large)
      plan_.states.push_back(
          {state, initializer, statistic ? ir::StateRole::running_statistic : ir::StateRole::parameter, verdict.trained});
    if (verdict.trained && shared(uses))
      plan_.repairs.push_back(
          concat("'", state, "' is one parameter shared by ", uses.size(), " nodes: ", listing(names_of(uses))));
  }

  /// Shapes and slices of a parameter are no further uses.
  static bool shared(const std::vector<Use>& uses) {
    return std::count_if(uses.begin(), uses.end(),
                         [](const Use& u) { return u.role != UseRole::setting && u.op != "Slice" && u.op != "Split"; }) > 1;
  }

  /// Exporters write a tied matrix twice, the second time often transposed. Equal values are reported, and shared under --tie.
  void tie_equals() {
    std::map<std::tuple<std::int64_t, std::uint64_t, std::uint64_t>, std::vector<std::string>> buckets;
    for (const Parameter& parameter : plan_.parameters) {
      const Tensor& values = *initializers_.at(parameter.initializer).values;
      if (!parameter.trained || parameter.name != parameter.initializer || values.elements() < 2 || has_one_value(values)) continue;
      buckets[{values.elements(), std::bit_cast<std::uint64_t>(values.at(0)),
               std::bit_cast<std::uint64_t>(values.at(values.elements() - 1))}]
          .push_back(parameter.name);
    }
    for (const auto& [key, names] : buckets)
      for (std::size_t i = 1; i < names.size(); ++i) tie_if_equal(names[0], names[i]);
  }

  void tie_if_equal(const std::string& first, const std::string& second) {
    const Tensor &a = *initializers_.at(first).values, &b = *initializers_.at(second).values;
    const bool same = a == b, transposed = !same && equal_transposed(a, b);
    if (!same && !transposed) return;
    const char* how = transposed ? " transposed" : "";
    const bool tie = first_match(options_.tie, first) || first_match(options_.tie, second);
    plan_.repairs.push_back(concat("'", second, "' equals '", first, "'", how,
                                   tie ? ": trained as one parameter" : ": they train apart; --tie '", tie ? "" : second,
                                   tie ? "" : "' trains them as one"));
    if (!tie) return;
    const Alias alias{first, second, -1, -1, transposed};
    plan_.tied.emplace(second, alias);
    plan_.aliases.push_back(alias);
    std::erase_if(plan_.states, [&](const PlannedState& state) { return state.name == second; });
    for (Parameter& parameter : plan_.parameters)
      if (parameter.name == second)
        parameter = {parameter.name,
                     parameter.initializer,
                     parameter.likely_name,
                     parameter.type,
                     false,
                     false,
                     concat("tied to '", first, "'", how),
                     parameter.nodes};
  }

  static bool equal_transposed(const Tensor& a, const Tensor& b) {
    if (a.shape().size() != 2 || b.shape() != Shape{a.shape()[1], a.shape()[0]} || a.dtype() != b.dtype()) return false;
    for (std::int64_t i = 0; i < a.shape()[0]; ++i)
      for (std::int64_t j = 0; j < a.shape()[1]; ++j)
        if (a.at(i * a.shape()[1] + j) != b.at(j * a.shape()[0] + i)) return false;
    return true;
  }

  /// A convolution whose weight lost its name, beside modules that kept theirs, holds a folded BatchNormalization.
  void report_folded_norms() {
    std::vector<std::string> nodes;
    bool named = false;
    for (const Parameter& parameter : plan_.parameters) {
      const bool convolution = parameter.trained && parameter.reason == "weight of Conv";
      if (convolution && is_anonymous(parameter.initializer)) nodes.push_back(parameter.nodes[0]);
      named = named || has_module_path(parameter.initializer);
    }
    if (nodes.empty() || !named) return;
    plan_.repairs.push_back(concat("the weights of ", nodes.size(),
                                   " convolutions lost their names, as when an exporter folds BatchNormalization into them: they "
                                   "train, but as a network without it: ",
                                   listing(nodes)));
  }

  static const std::string* match(const std::vector<std::string>& globs, const std::string& state, const std::string& initializer) {
    const std::string* found = first_match(globs, state);
    return found ? found : first_match(globs, initializer);
  }

  std::string unique(std::string name) {
    for (int i = 2; !taken_.insert(name).second; ++i) name = concat(name.substr(0, name.find('#')), "#", i);
    return name;
  }

  /// A glob that matches nothing is a mistake of its author's.
  void check_globs() const {
    std::vector<std::string> names;
    for (const Parameter& parameter : plan_.parameters) {
      names.push_back(parameter.name);
      if (parameter.initializer != parameter.name) names.push_back(parameter.initializer);
    }
    struct Flag {
      const char* name;
      const std::vector<std::string>& globs;
    };
    for (const Flag& flag : {Flag{"--freeze", options_.freeze}, Flag{"--thaw", options_.train}, Flag{"--tie", options_.tie},
                             Flag{"--untie", options_.untie}})
      for (const std::string& glob : flag.globs)
        if (std::none_of(names.begin(), names.end(), [&](const std::string& name) { return matches_glob(glob, name); }))
          throw UserError(concat(flag.name, " ", glob, " matches no initializer", nearest_to_glob(glob, names)), ExitCode::usage);
  }

  const Source& source_;
  const Initializers& initializers_;
  const ImportOptions& options_;
  std::unordered_map<std::string, std::vector<Use>> uses_;
  std::set<std::string> taken_;
  ParameterPlan plan_;
};

}  // namespace

bool matches_glob(std::string_view pattern, std::string_view text) {
  // On a mismatch after a star, the star takes one character more.
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == text[t] && pattern[p] != '*'))) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else return false;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

ParameterPlan plan_parameters(const Source& source, const Initializers& initializers, const ImportOptions& options) {
  return Planner(source, initializers, options).run();
}

}  // namespace gcomp::frontend
