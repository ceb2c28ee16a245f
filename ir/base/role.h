// What each input and output of a graph, and of the program that it becomes, is for. A training step takes more than the model's
// arrays and gives other things than its outputs; whoever drives it finds them by role, and neither by name nor by place.
//
//   graph @train_step(%x: f32[8,4], %label: i64[8] label, %learning_rate: f64[] learning_rate) -> (%loss loss) {
//
// A new role is one enumerator and its block in kRoles.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/tensor.h"

namespace gcomp {

enum class Role : std::uint8_t {
  array,  ///< the model's own input or output; not spelled in text
  label,
  rows,
  learning_rate,
  momentum,
  loss,
  gradient,
  loss_scale,
  skipped,
  evaluated,
  gradient_norm,
  shard,
};

enum class Direction : std::uint8_t { input, output };

/// What a role asks of a type.
struct TypeRule {
  bool scalar = false;
  bool floating = false;
  std::optional<DType> dtype = {};
};

struct RoleDef {
  Role role = Role::array;
  std::string_view name;
  std::string_view summary;
  std::optional<Direction> direction = {};  ///< none: both
  TypeRule type = {};
  bool once = true;                ///< at most one in a graph
  bool from_data = false;          ///< as an input: an array that the caller gives for each batch
  std::optional<Role> needs = {};  ///< another role that the graph must have then
};

inline constexpr std::array kRoles{
    RoleDef{.role = Role::array, .name = "array", .summary = "the model's own input or output", .once = false, .from_data = true},
    RoleDef{.role = Role::label,
            .name = "label",
            .summary = "an array of the data that the loss reads beside the model's inputs",
            .direction = Direction::input,
            .once = false,
            .from_data = true},
    RoleDef{.role = Role::rows,
            .name = "rows",
            .summary = "how many rows of the batch count",
            .direction = Direction::input,
            .type = {.scalar = true, .dtype = DType::i64},
            .needs = Role::evaluated},
    RoleDef{.role = Role::learning_rate,
            .name = "learning_rate",
            .summary = "of this step",
            .direction = Direction::input,
            .type = {.scalar = true, .dtype = DType::f64},
            .needs = Role::loss},
    RoleDef{.role = Role::momentum,
            .name = "momentum",
            .summary = "of this step, or its first beta, where a schedule turns it",
            .direction = Direction::input,
            .type = {.scalar = true, .dtype = DType::f64},
            .needs = Role::learning_rate},
    RoleDef{.role = Role::loss,
            .name = "loss",
            .summary = "of the batch, before the step",
            .direction = Direction::output,
            .type = {.scalar = true, .floating = true}},
    RoleDef{.role = Role::gradient,
            .name = "gradient",
            .summary = "of the loss by a parameter, in the order of the parameters",
            .direction = Direction::output,
            .type = {.floating = true},
            .once = false,
            .needs = Role::loss},
    RoleDef{.role = Role::loss_scale,
            .name = "loss_scale",
            .summary = "what the next step multiplies its loss by",
            .direction = Direction::output,
            .type = {.scalar = true, .dtype = DType::f32},
            .needs = Role::skipped},
    RoleDef{.role = Role::skipped,
            .name = "skipped",
            .summary = "1 where the step changed nothing but the loss scale, else 0",
            .direction = Direction::output,
            .type = {.scalar = true, .dtype = DType::i64},
            .needs = Role::loss},
    RoleDef{.role = Role::evaluated,
            .name = "evaluated",
            .summary = "what the batch adds to a loss or metric",
            .direction = Direction::output,
            .type = {.floating = true},
            .once = false},
    RoleDef{.role = Role::gradient_norm,
            .name = "gradient_norm",
            .summary = "of all gradients together, before they are clipped",
            .direction = Direction::output,
            .type = {.scalar = true, .dtype = DType::f64},
            .needs = Role::loss},
    RoleDef{.role = Role::shard,
            .name = "shard",
            .summary = "which of the parts of a batch this run takes, from 0",
            .direction = Direction::input,
            .type = {.dtype = DType::i64}},
};
static_assert(
    [] {
      for (std::size_t i = 0; i < kRoles.size(); ++i)
        if (kRoles[i].role != static_cast<Role>(i) || kRoles[i].name.empty() || kRoles[i].summary.empty()) return false;
      return true;
    }(),
    "a block for each role, in their order");

constexpr const RoleDef& definition_of(Role role) { return kRoles[static_cast<std::size_t>(role)]; }
constexpr std::string_view name_of(Role role) { return definition_of(role).name; }
std::optional<Role> parse_role(std::string_view name);
/// The names of the roles that an input (or output) may have, but for Role::array.
std::vector<std::string> role_names(Direction direction);

/// One input or output, as the rules of the roles see it.
struct RoleUse {
  Role role = Role::array;
  std::string_view name;  ///< of the value
  const TensorType* type = nullptr;
};
/// The first rule that inputs and outputs break: a role of the other direction, of another type, given twice, or without the role
/// that it needs. Empty where they keep all.
std::string find_role_violation(std::span<const RoleUse> inputs, std::span<const RoleUse> outputs);

}  // namespace gcomp
