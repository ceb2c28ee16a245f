#include "frontend/onnx/ties.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "frontend/globs.h"
#include "frontend/onnx/verdict.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

bool equal_transposed(const Tensor& a, const Tensor& b) {
  if (a.shape().size() != 2 || b.shape() != Shape{a.shape()[1], a.shape()[0]} || a.dtype() != b.dtype()) return false;
  for (std::int64_t i = 0; i < a.shape()[0]; ++i)
    for (std::int64_t j = 0; j < a.shape()[1]; ++j)
      if (a.at(i * a.shape()[1] + j) != b.at(j * a.shape()[0] + i)) return false;
  return true;
}

bool equal_reshaped(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.elements() == b.elements() && std::ranges::equal(a.bytes(), b.bytes());
}

enum class View { same, reshaped, transposed };

/// How `b` holds the values of `a`.
std::optional<View> view_of(const Tensor& a, const Tensor& b) {
  if (a == b) return View::same;
  if (equal_transposed(a, b)) return View::transposed;
  if (equal_reshaped(a, b)) return View::reshaped;
  return std::nullopt;
}

const char* text_of(View view) { return view == View::same ? "" : view == View::transposed ? " transposed" : " reshaped"; }

class Tying {
 public:
  using Merged = std::map<std::string, std::string>;
  Tying(ParameterPlan& plan, const Initializers& initializers, const Origins& origins, const Merged& merged,
        const ImportOptions& options)
      : plan_(plan), initializers_(initializers), origins_(origins), merged_(merged), options_(options) {}

  void run() {
    for (const auto& [target, names] : by_target())
      for (std::size_t i = 1; i < names.size(); ++i) tie_told(names[0], names[i]);
    tie_merged();
    for (const auto& [key, names] : by_value())
      for (std::size_t i = 1; i < names.size(); ++i) tie_if_equal(names, i);
    for (const std::string& glob : options_.tie) tell_if_idle(glob);
  }

 private:
  /// Trained initializers that are one parameter each, not a part of a merged one.
  template <class Visit>
  void for_each_whole(const Visit& visit) const {
    for (const Parameter& parameter : plan_.parameters)
      if (parameter.trained && parameter.name == parameter.initializer && initializers_.contains(parameter.name)) visit(parameter);
  }

  /// By the parameter of the module that they were: first the one that goes by its name, if the file still has it.
  std::map<std::string, std::vector<std::string>> by_target() const {
    std::map<std::string, std::vector<std::string>> groups;
    for_each_whole([&](const Parameter& parameter) {
      const Origin origin = origins_.of(parameter.name);
      if (origin.kind != OriginKind::parameter || origin.target.empty()) return;
      std::vector<std::string>& names = groups[origin.target];
      names.insert(origin.folded ? names.end() : names.begin(), parameter.name);
    });
    return groups;
  }

  /// Candidates for equality: same number of elements, first and last value.
  std::map<std::tuple<std::int64_t, std::uint64_t, std::uint64_t>, std::vector<std::string>> by_value() const {
    std::map<std::tuple<std::int64_t, std::uint64_t, std::uint64_t>, std::vector<std::string>> buckets;
    for_each_whole([&](const Parameter& parameter) {
      const Tensor& values = *initializers_.at(parameter.name).values;
      if (values.elements() < 2 || has_one_value(values)) return;
      buckets[{values.elements(), std::bit_cast<std::uint64_t>(values.at(0)),
               std::bit_cast<std::uint64_t>(values.at(values.elements() - 1))}]
          .push_back(parameter.name);
    });
    return buckets;
  }

  /// What the exporter merged becomes one again where --tie asks for it, whatever its values.
  void tie_merged() {
    std::set<std::string> whole;
    for_each_whole([&](const Parameter& parameter) { whole.insert(parameter.name); });
    for (const auto& [name, root] : merged_)
      if (whole.contains(name) && whole.contains(root) && !plan_.tied.contains(name) && asked(options_.tie, root, name))
        tie(root, name, View::same, "");
  }

  /// No parameter that matches is read by several nodes, and none has the values of another.
  void tell_if_idle(const std::string& glob) {
    std::size_t matching = 0;
    std::string last;
    for (const Parameter& parameter : plan_.parameters) {
      if (!first_match({glob}, names_of(parameter.name))) continue;
      const auto is_its = [&](const auto& tied) { return tied.second.state == parameter.name; };
      if (parameter.nodes.size() > 1 || !parameter.tied_to.empty() || std::ranges::any_of(plan_.tied, is_its)) return;
      if (!parameter.trained) continue;
      ++matching;
      last = parameter.name;
    }
    if (matching == 1)
      plan_.repairs.push_back(concat("--tie '", glob, "' ties nothing: no other parameter has the values of '", last, "'"));
    if (matching > 1)
      plan_.repairs.push_back(concat("--tie '", glob, "' ties nothing: no two of the ", matching,
                                     " parameters that match have the same values, so that they train apart"));
  }

  bool were_merged(const std::string& first, const std::string& second) const {
    const auto root = [&](const std::string& name) {
      const auto merged = merged_.find(name);
      return merged == merged_.end() ? name : merged->second;
    };
    return root(first) == root(second);
  }

  bool asked(const std::vector<std::string>& globs, const std::string& first, const std::string& second) const {
    return first_match(globs, names_of(first)) || first_match(globs, names_of(second));
  }

  std::vector<std::string> names_of(const std::string& initializer) const {
    return origins_.all_names(initializer, origins_.of(initializer).target);
  }

  void tie_told(const std::string& first, const std::string& second) {
    const auto view = view_of(values(first), values(second));
    if (view && !asked(options_.untie, first, second)) tie(first, second, *view, " (--untie '" + second + "' trains them apart)");
    if (!view)
      plan_.repairs.push_back(concat("'", second, "' was folded from '", origins_.of(second).target, "', which the file has as '",
                                     first, "' too: they train apart"));
  }

  void tie_if_equal(const std::vector<std::string>& names, std::size_t index) {
    const std::string& second = names[index];
    if (plan_.tied.contains(second)) return;
    for (std::size_t i = 0; i < index; ++i) {
      const std::string& first = names[i];
      const auto view = plan_.tied.contains(first) ? std::nullopt : view_of(values(first), values(second));
      if (!view || *view == View::reshaped) continue;
      if (asked(options_.tie, first, second)) return tie(first, second, *view, "");
      // Two parameters of equal value are two: a layer that was copied.
      if (told_apart(first, second) || were_merged(first, second) || asked(options_.untie, first, second)) continue;
      plan_.repairs.push_back(concat("'", second, "' equals '", first, "'", text_of(*view), ": they train apart; --tie '", second,
                                     "' trains them as one"));
      return;
    }
  }

  bool told_apart(const std::string& first, const std::string& second) const {
    const Origin a = origins_.of(first), b = origins_.of(second);
    return a.kind == OriginKind::parameter && b.kind == OriginKind::parameter && a.target != b.target;
  }

  void tie(const std::string& first, const std::string& second, View view, const std::string& advice) {
    const char* how = text_of(view);
    plan_.repairs.push_back(concat("'", second, "' equals '", first, "'", how, ": trained as one parameter", advice));
    const Alias alias{first, second, -1, -1, view == View::transposed, Alias::Kind::tied};
    plan_.tied.emplace(second, alias);
    plan_.aliases.push_back(alias);
    std::erase_if(plan_.states, [&](const PlannedState& state) { return state.name == second; });
    for (Parameter& parameter : plan_.parameters) {
      if (parameter.name != second) continue;
      parameter.trained = parameter.doubtful = false;
      parameter.tied_to = first;
      parameter.reason = concat("tied to '", first, "'", how);
    }
  }

  const Tensor& values(const std::string& name) const { return *initializers_.at(name).values; }

  ParameterPlan& plan_;
  const Initializers& initializers_;
  const Origins& origins_;
  const Merged& merged_;
  const ImportOptions& options_;
};

}  // namespace

void tie_equals(ParameterPlan& plan, const Initializers& initializers, const Origins& origins,
                const std::map<std::string, std::string>& merged, const ImportOptions& options) {
  Tying(plan, initializers, origins, merged, options).run();
}

}  // namespace gcomp::frontend
