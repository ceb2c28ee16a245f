#include "frontend/onnx/verdict.h"

#include <algorithm>
#include <initializer_list>

#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

bool is_digits(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos; }

/// "slice_3", "sub_1", "tmp": named after the operation that made it, as folded values are.
bool looks_computed(std::string_view name) {
  constexpr std::string_view kOperations[] = {"add", "cat",   "cos",     "div",   "embedding", "exp",        "index",  "log",
                                              "mul", "neg",   "permute", "pow",   "rearrange", "reciprocal", "repeat", "rsqrt",
                                              "sin", "slice", "select",  "split", "sigmoid",   "softplus",   "sqrt",   "stack",
                                              "sub", "sum",   "tanh",    "tmp",   "transpose", "tril",       "triu",   "where"};
  const std::size_t last = name.rfind('_');
  if (last != std::string_view::npos && is_digits(name.substr(last + 1))) name = name.substr(0, last);
  return std::find(std::begin(kOperations), std::end(kOperations), name) != std::end(kOperations);
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

}  // namespace

std::string used_as(const Use& use) {
  if (use.role == UseRole::norm_scale) return "scale of " + use.op;
  if (use.role == UseRole::norm_bias) return "bias of " + use.op;
  return concat(name_of(use.role), " of ", use.op);
}

bool is_anonymous(std::string_view name) {
  if (is_digits(name) || name.starts_with("onnx::") || name.starts_with("/") || name.find("onstant") != std::string_view::npos)
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

Verdict verdict_of(const std::string& name, const Tensor& values, const std::vector<Use>& uses) {
  auto any = [&](auto test) { return std::any_of(uses.begin(), uses.end(), test); };
  auto all = [&](UseRole role) { return std::all_of(uses.begin(), uses.end(), [&](const Use& u) { return u.role == role; }); };
  auto role_is = [](std::initializer_list<UseRole> roles) {
    return [roles = std::vector(roles)](const Use& u) { return std::find(roles.begin(), roles.end(), u.role) != roles.end(); };
  };
  if (any(role_is({UseRole::running_statistic}))) return {false, false, "running statistic"};
  if (all(UseRole::setting)) return {false, false, concat("setting of ", uses[0].op)};
  if (values.elements() == 0) return {false, false, "empty"};
  const bool anonymous = is_anonymous(name), computed = looks_computed(name);
  if (values.elements() == 1) {
    const bool plain_bias = values.type().rank() > 0 && any(role_is({UseRole::bias}));
    const bool own_operand = any([](const Use& u) {
      return (u.role == UseRole::bias && u.op != "Add") || u.role == UseRole::slope ||
             ((u.role == UseRole::norm_scale || u.role == UseRole::norm_bias) && u.op != "Mul" && u.op != "Add");
    });
    if (plain_bias || own_operand) return {true, false, used_as(uses[0])};
    if (has_module_path(name)) return {true, false, "scalar with a module's name"};
    return {false, !anonymous && !computed, "scalar constant"};
  }
  if (is_mask(values)) return {false, false, "mask"};
  const bool weight = any(role_is({UseRole::weight}));
  const bool bias = any(role_is({UseRole::bias}));
  if (anonymous && has_one_value(values) && !weight && !bias) {
    // A batch norm has statistics of its own, so a file that does not name those either has its scale and bias among the nameless.
    const auto norm = std::find_if(uses.begin(), uses.end(), [](const Use& use) { return use.norm_is_nameless; });
    if (norm != uses.end() && norm->op == "BatchNormalization") return {true, true, "anonymous " + used_as(*norm)};
    return {false, norm != uses.end(), "anonymous tensor of one constant"};
  }
  for (const Use& use : uses)
    if (use.role != UseRole::other && use.role != UseRole::setting) return {true, computed && !weight, used_as(use)};
  // A sinusoid table or rotary frequencies look like a parameter that is added or multiplied.
  return {true, anonymous || computed, anonymous ? "anonymous " + used_as(uses[0]) : used_as(uses[0])};
}

}  // namespace gcomp::frontend
