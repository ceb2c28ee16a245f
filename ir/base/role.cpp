#include "ir/base/role.h"

#include <algorithm>

#include "ir/base/error.h"

namespace gcomp {
namespace {

std::string_view name_of(Direction direction) { return direction == Direction::input ? "input" : "output"; }

bool keeps(const TypeRule& rule, const TensorType& type) {
  return (!rule.scalar || type.shape.empty()) && (!rule.floating || is_float(type.dtype)) &&
         (!rule.dtype || type.dtype == *rule.dtype);
}

/// "f64[]", "a float scalar", "floats".
std::string wanted(const TypeRule& rule) {
  if (rule.dtype) return concat(gcomp::name_of(*rule.dtype), rule.scalar ? "[]" : " elements");
  return rule.scalar ? "a float scalar" : "floats";
}

std::string find_violation(const RoleUse& use, Direction direction) {
  const RoleDef& definition = definition_of(use.role);
  const std::string where = concat(name_of(direction), " '", use.name, "'");
  if (definition.direction && *definition.direction != direction)
    return concat(where, " has the role ", definition.name, ", which is one of ", name_of(*definition.direction), "s");
  if (!keeps(definition.type, *use.type))
    return concat(where, " is ", to_string(*use.type), ", the role ", definition.name, " wants ", wanted(definition.type));
  return "";
}

}  // namespace

std::optional<Role> parse_role(std::string_view name) {
  for (const RoleDef& definition : kRoles)
    if (definition.name == name) return definition.role;
  return std::nullopt;
}

std::vector<std::string> role_names(Direction direction) {
  std::vector<std::string> names;
  for (const RoleDef& definition : kRoles)
    if (definition.direction == direction) names.emplace_back(definition.name);
  return names;
}

std::string find_role_violation(std::span<const RoleUse> inputs, std::span<const RoleUse> outputs) {
  std::array<std::size_t, kRoles.size()> counts{};
  for (const auto& [uses, direction] : {std::pair{inputs, Direction::input}, std::pair{outputs, Direction::output}})
    for (const RoleUse& use : uses) {
      if (std::string found = find_violation(use, direction); !found.empty()) return found;
      const std::size_t count = ++counts[static_cast<std::size_t>(use.role)];
      if (count > 1 && definition_of(use.role).once)
        return concat(name_of(direction), " '", use.name, "' is the second with the role ", gcomp::name_of(use.role));
    }
  for (const RoleDef& definition : kRoles)
    if (counts[static_cast<std::size_t>(definition.role)] > 0 && definition.needs &&
        counts[static_cast<std::size_t>(*definition.needs)] == 0)
      return concat("the role ", definition.name, " needs an ", name_of(*definition_of(*definition.needs).direction),
                    " with the role ", gcomp::name_of(*definition.needs), ", and there is none");
  return "";
}

}  // namespace gcomp
