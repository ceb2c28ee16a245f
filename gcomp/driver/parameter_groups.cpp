#include "gcomp/driver/parameter_groups.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "frontend/globs.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "passes/training/optimizers/parameter_kind.h"
#include "passes/training/optimizers/parameter_use.h"
#include "passes/training/training.h"

namespace gcomp::driver {
namespace {

constexpr std::string_view kKindPrefix = "kind:";

[[noreturn]] void refuse(const std::string& group, const std::string& message) {
  throw UserError(concat("--group '", group, "': ", message), ExitCode::usage);
}

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t") - begin + 1));
}

/// Parts between commas that stand in no brackets.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size()) depth += (text[i] == '[' || text[i] == '(') - (text[i] == ']' || text[i] == ')');
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    parts.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return parts;
}

/// "0.1x" and "0.001" as times the base rate.
double rate_of(const std::string& group, const std::string& text, double base_rate) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  const bool relative = read.ptr != end && *read.ptr == 'x' && read.ptr + 1 == end;
  if (read.ec != std::errc() || (read.ptr != end && !relative) || !(value >= 0 && std::isfinite(value)))
    refuse(group, concat("lr: found ", text, ", wanted a number of at least 0, or with an x what the base rate is multiplied by"));
  if (relative) return value;
  if (!(base_rate > 0))
    refuse(group, concat("lr=", text, " stands beside a base rate of ", base_rate, ", which a schedule cannot turn; give --lr"));
  return value / base_rate;
}

void read_selectors(GroupRequest& request, std::string_view text) {
  request.selectors = parts_of(text);
  for (const std::string& selector : request.selectors) {
    if (selector.empty()) refuse(request.text, "a selector is empty; wanted globs of names or kind:NAME, with commas between");
    if (!selector.starts_with(kKindPrefix)) continue;
    const std::string name = selector.substr(kKindPrefix.size());
    const std::vector<std::string> known = passes::parameter_kind_names();
    if (!passes::parse_parameter_kind(name))
      refuse(request.text, concat("unknown kind '", name, "', there are ", listing(known), did_you_mean(name, known)));
  }
}

void read_options(GroupRequest& request, std::string_view text, double base_rate) {
  std::string others;
  bool has_rate = false;
  for (const std::string& part : parts_of(text)) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos)
      refuse(request.text,
             concat("found '", part, "' behind the last ':', wanted option=value, such as lr=0.1x or weight_decay=0"));
    const std::string name = trimmed(std::string_view(part).substr(0, equals));
    if (name != "lr") {
      others += (others.empty() ? "" : ", ") + part;
      continue;
    }
    if (has_rate) refuse(request.text, "lr is given twice");
    has_rate = true;
    request.group.rate = rate_of(request.text, trimmed(std::string_view(part).substr(equals + 1)), base_rate);
  }
  if (!others.empty())
    request.given = request.group.optimizer.set_all(concat(request.group.optimizer.definition().name, "(", others, ")"),
                                                    concat("--group '", request.text, "'"));
}

/// What another choice has decided, or what no single group can have.
void check_effect(const GroupRequest& request, const passes::OptimizerSpec& base) {
  const passes::OptimizerSpec& made = request.group.optimizer;
  for (const std::string& option : request.given) {
    if (option == made.option_of_all())
      refuse(request.text,
             concat(option, " of ", made.definition().name, " is one for all parameters together; give it with --optimizer"));
    if (!base.turns_momentum()) continue;
    if (option == "momentum" || (option == "betas" && made.options().numbers("betas")[0] != base.options().numbers("betas")[0]))
      refuse(request.text, concat(option, ": the schedule turns ", option == "betas" ? "the first of them" : "it",
                                  "; cycle_momentum=false leaves it"));
  }
}

std::vector<std::string> names_of(const frontend::Parameter& parameter) {
  std::vector<std::string> names{parameter.name};
  for (const std::string& other : {parameter.initializer, parameter.likely_name})
    if (!other.empty() && std::ranges::count(names, other) == 0) names.push_back(other);
  return names;
}

bool matches(const std::string& selector, const frontend::Parameter& parameter, passes::ParameterKind kind) {
  if (selector.starts_with(kKindPrefix)) return passes::name_of(kind) == std::string_view(selector).substr(kKindPrefix.size());
  return std::ranges::any_of(names_of(parameter), [&](const std::string& name) { return frontend::matches_glob(selector, name); });
}

/// The trained parameters of a model and what they are.
struct Trained {
  std::vector<const frontend::Parameter*> parameters;
  std::vector<passes::ParameterKind> kinds;
};

/// ": no parameter is a norm; 2 are of kind bias, 3 of kind matrix", or the names that are nearest.
std::string what_there_is(const GroupRequest& request, const Trained& trained) {
  std::string text;
  for (const std::string& selector : request.selectors) {
    if (!selector.starts_with(kKindPrefix)) {
      std::vector<std::string> names;
      for (const frontend::Parameter* parameter : trained.parameters)
        for (const std::string& name : names_of(*parameter)) names.push_back(name);
      return text + nearest_to_glob(selector, names);
    }
    if (!text.empty()) continue;
    for (const std::string& kind : passes::parameter_kind_names())
      if (const auto count = std::ranges::count(trained.kinds, *passes::parse_parameter_kind(kind)); count > 0)
        text += concat(text.empty() ? "; there are " : ", ", count, " of kind:", kind);
    if (text.empty()) text = "; no parameter is of a kind";
  }
  return text;
}

[[noreturn]] void refuse_empty(const GroupRequest& request, const Trained& trained) {
  for (std::size_t i = 0; i < trained.parameters.size(); ++i)
    for (const std::string& selector : request.selectors)
      if (matches(selector, *trained.parameters[i], trained.kinds[i]))
        refuse(request.text, concat("all that it matches, such as '", trained.parameters[i]->name, "', is in a group before it"));
  refuse(request.text, concat(listing(request.selectors), request.selectors.size() == 1 ? " matches" : " match",
                              " no trained parameter", what_there_is(request, trained)));
}

}  // namespace

GroupRequest parse_group(std::string_view text, const passes::OptimizerSpec& base, double base_rate) {
  GroupRequest request;
  request.text = text;
  request.group.optimizer = base;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || trimmed(text.substr(0, colon)).empty() || trimmed(text.substr(colon + 1)).empty())
    refuse(request.text, "wanted SELECTOR: option=value, ..., such as 'kind:bias, kind:norm: weight_decay=0'");
  const std::size_t last = text.substr(0, colon).find_last_of(',') + 1;
  const std::string after = trimmed(text.substr(colon + 1));
  if (trimmed(text.substr(last, colon - last)) == "kind" &&
      passes::parse_parameter_kind(after.substr(0, after.find_first_of(" \t,="))))
    refuse(request.text,
           "no ':' between selector and options; wanted SELECTOR: option=value, ..., such as 'kind:bias: weight_decay=0'");
  read_options(request, text.substr(colon + 1), base_rate);
  read_selectors(request, text.substr(0, colon));
  check_effect(request, base);
  request.group.optimizer.check(concat("--group '", text, "'"));
  return request;
}

std::set<std::string> looked_up_tables(const frontend::ImportedModel& model) {
  std::set<std::string> tables;
  for (const frontend::Parameter& parameter : model.parameters)
    if (parameter.looked_up) tables.insert(parameter.name);
  return tables;
}

GroupedParameters group_parameters(const std::vector<GroupRequest>& requests, const passes::OptimizerSpec& base,
                                   const frontend::ImportedModel& model, const ir::Graph& forward) {
  Trained trained;
  std::vector<std::string> states;
  for (const frontend::Parameter& parameter : model.parameters) {
    if (!parameter.trained) continue;
    trained.parameters.push_back(&parameter);
    states.push_back(parameter.name);
  }
  const std::vector<ir::Value*> values = passes::states_named(forward, states);
  trained.kinds = passes::parameter_kinds(forward, values);
  const std::set<std::string> tables = looked_up_tables(model);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (tables.contains(values[i]->name)) trained.kinds[i] = passes::ParameterKind::embedding;
  const passes::ParameterUses uses(forward, values, tables);
  GroupedParameters made;
  made.groups.tables = tables;
  std::vector<bool> has_effect;
  for (const GroupRequest& request : requests) {
    made.groups.groups.push_back(request.group);
    made.summaries.push_back({.text = request.text, .rate = request.group.rate});
    has_effect.push_back(request.given.empty());
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto found = std::ranges::find_if(requests, [&](const GroupRequest& request) {
      return std::ranges::any_of(request.selectors, [&](const std::string& selector) {
        return matches(selector, *trained.parameters[i], trained.kinds[i]);
      });
    });
    if (found == requests.end()) {
      made.groups.of.push_back(-1);
      continue;
    }
    const auto number = static_cast<std::size_t>(found - requests.begin());
    made.groups.of.push_back(static_cast<std::int64_t>(number));
    ++made.summaries[number].tensors;
    made.summaries[number].elements += values[i]->type.elements();
    if (base.applies_to(uses, values[i])) has_effect[number] = true;
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (made.summaries[i].tensors == 0) refuse_empty(requests[i], trained);
    if (!has_effect[i])
      refuse(requests[i].text, concat("it has no parameter that ", base.definition().name,
                                      " takes, and what adamw's defaults update has no options but lr"));
  }
  return made;
}

}  // namespace gcomp::driver
