#include "frontend/onnx/verdict.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <span>

#include "frontend/onnx/node_context.h"
#include "ir/base/error.h"
#include "ir/base/finite.h"

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

/// What hides may be -inf, added to distances, say.
bool holds_infinity(const Tensor& tensor) {
  if (is_finite(tensor)) return false;
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    if (std::isnan(tensor.at(i))) return false;
  return true;
}

/// Zeros and one value that hides: -inf, -10000, the lowest float.
bool is_mask(const Tensor& tensor) {
  if (has_one_value(tensor)) return tensor.at(0) <= -1000;
  double hidden = 0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = tensor.at(i);
    if (value == 0) continue;
    if (value > -1000 || (hidden != 0 && value != hidden)) return false;
    hidden = value;
  }
  return hidden != 0;
}

/// Each row along the last axis a ramp or a geometric series: positions, frequencies, a grid.
bool is_progression(const Tensor& tensor) {
  const std::int64_t length = tensor.type().rank() ? tensor.shape().back() : 0;
  if (length < 3) return false;
  for (std::int64_t row = 0; row < tensor.elements(); row += length) {
    const double a = tensor.at(row), b = tensor.at(row + 1);
    double largest = 0, off_ramp = 0, off_series = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      const double value = tensor.at(row + i), steps = static_cast<double>(i);
      largest = std::max(largest, std::fabs(value));
      off_ramp = std::max(off_ramp, std::fabs(value - (a + (b - a) * steps)));
      off_series = std::max(off_series, a == 0 ? largest : std::fabs(value - a * std::pow(b / a, steps)));
    }
    if (a == b || !(std::min(off_ramp, off_series) <= 1e-4 * largest)) return false;
  }
  return true;
}

/// Zeros and ones, both of them.
bool is_selection(const Tensor& tensor) {
  std::int64_t ones = 0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = tensor.at(i);
    if (value != 0 && value != 1) return false;
    ones += value == 1;
  }
  return ones > 0 && ones < tensor.elements();
}

/// Rows of as many sines as cosines: their squares add up to half the row.
bool is_sinusoids(const Tensor& tensor) {
  const std::int64_t length = tensor.type().rank() ? tensor.shape().back() : 0;
  if (length < 4 || length % 2 != 0 || tensor.elements() < 2 * length) return false;
  constexpr std::int64_t kRows = 64;
  for (std::int64_t row = 0; row < std::min(tensor.elements(), kRows * length); row += length) {
    double sum = 0;
    for (std::int64_t i = row; i < row + length; ++i) {
      if (std::fabs(tensor.at(i)) > 1) return false;
      sum += tensor.at(i) * tensor.at(i);
    }
    if (std::fabs(sum / static_cast<double>(length) - 0.5) > 1e-3) return false;
  }
  return !is_selection(tensor);
}

/// A number that somebody wrote: 0.5, 1e-5, the root of a whole number. A parameter that was trained or computed has more digits.
bool is_written_number(double value) {
  const auto narrow = static_cast<float>(value);
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, std::fabs(narrow)).ptr;
  const auto digits = std::count_if(text, std::find(text, end, 'e'), [](char c) { return c >= '1' && c <= '9'; });
  return digits <= 4 || !std::isfinite(narrow) || intended_number(narrow) != static_cast<double>(narrow);
}

/// Added to products as a whole matrix, which is no layer's bias: positions, distances, a mask.
bool is_wide_bias(const Use& use, const Tensor& values) {
  const auto wide = std::count_if(values.shape().begin(), values.shape().end(), [](std::int64_t dim) { return dim > 1; });
  return use.role == UseRole::bias && use.op == "Add" && wide > 1;
}

/// Whether a value that trains may be a buffer, by its name, its values and its telling use.
bool may_be_buffer(const std::string& name, const Tensor& values, const Use& use, Naming naming) {
  if (is_sinusoids(values)) return true;
  const bool anonymous = is_anonymous(name);
  if (looks_computed(name)) return use.role != UseRole::weight;
  if (use.role == UseRole::other || use.role == UseRole::setting || is_wide_bias(use, values))
    return anonymous || !is_parameter_name(name);
  if (anonymous) return is_progression(values) || is_selection(values);
  return naming == Naming::module_paths && !is_parameter_name(name);
}

Verdict verdict_of_scalar(const std::string& name, const Tensor& values, const std::vector<Use>& uses) {
  const auto any = [&](auto test) { return std::any_of(uses.begin(), uses.end(), test); };
  const bool plain_bias = values.type().rank() > 0 && any([](const Use& u) { return u.role == UseRole::bias; });
  const bool own_operand = any([](const Use& u) {
    return (u.role == UseRole::bias && u.op != "Add") || u.role == UseRole::slope ||
           ((u.role == UseRole::norm_scale || u.role == UseRole::norm_bias) && u.op != "Mul" && u.op != "Add");
  });
  const bool groups = any([](const Use& u) { return u.op == "InstanceNormalization"; });
  if (plain_bias || own_operand) return {true, groups && is_anonymous(name), used_as(uses[0])};
  if (has_module_path(name)) return {true, !is_parameter_name(name), "scalar with a module's name"};
  const bool number = is_anonymous(name) && values.type().rank() == 0 && is_written_number(values.at(0));
  return {false, !number, "scalar constant"};
}

/// An operand that nothing trains, but for exponents and bounds with a name of their own.
Verdict verdict_of_setting(const std::string& name, const Use& use) {
  const bool named = !is_anonymous(name) && !looks_computed(name);
  return {false, named && (use.op == "Pow" || use.op == "Clip"), concat("setting of ", use.op)};
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
  const std::span<const std::byte> bytes = tensor.bytes();
  const std::size_t element = size_of(tensor.dtype());
  if (bytes.size() < 2 * element) return tensor.elements() > 0;
  // A file of zeros, as a model without its weights has, is read to its end.
  if (std::memcmp(bytes.data(), bytes.data() + element, bytes.size() - element) == 0) return tensor.at(0) == tensor.at(0);
  for (std::int64_t i = 1; i < tensor.elements(); ++i)
    if (tensor.at(i) != tensor.at(0)) return false;
  return true;  // zeros of both signs
}

bool is_parameter_name(std::string_view name) {
  constexpr std::string_view kParts[] = {"weight", "bias", "kernel"};
  constexpr std::string_view kEnds[] = {"gamma", "beta",  "token",     "tokens",    "embed",       "embedding",   "embeddings",
                                        "table", "A_log", "original0", "original1", "logit_scale", "layer_scale", "mem_k"};
  if (is_anonymous(name)) return false;
  name.remove_prefix(std::min(name.size(), name.find_last_of("./") + 1));
  std::string_view stem = name.substr(0, name.find_last_not_of("0123456789") + 1);
  if (stem.ends_with('_')) stem.remove_suffix(1);
  return std::any_of(std::begin(kParts), std::end(kParts), [&](auto part) { return name.find(part) != name.npos; }) ||
         std::any_of(std::begin(kEnds), std::end(kEnds), [&](auto end) { return name.ends_with(end) || stem.ends_with(end); });
}

Verdict verdict_of(const std::string& name, const Tensor& values, const std::vector<Use>& uses, Naming naming) {
  const auto any = [&](UseRole role) {
    return std::any_of(uses.begin(), uses.end(), [&](const Use& u) { return u.role == role; });
  };
  const auto all = [&](UseRole role) {
    return std::all_of(uses.begin(), uses.end(), [&](const Use& u) { return u.role == role; });
  };
  if (any(UseRole::running_statistic)) return {false, false, "running statistic"};
  if (all(UseRole::setting)) return verdict_of_setting(name, uses[0]);
  if (values.elements() == 0) return {false, false, "empty"};
  if (values.elements() == 1) return verdict_of_scalar(name, values, uses);
  if (is_mask(values)) return {false, false, "mask"};
  if (holds_infinity(values)) return {false, false, "it holds infinity, as masks do"};
  if (is_anonymous(name) && has_one_value(values) && !any(UseRole::weight) && !any(UseRole::bias)) {
    // A batch norm has statistics of its own, so a file that does not name those either has its scale and bias among the nameless.
    const auto norm = std::find_if(uses.begin(), uses.end(), [](const Use& use) { return use.norm_is_nameless; });
    if (norm != uses.end() && norm->op == "BatchNormalization") return {true, true, "anonymous " + used_as(*norm)};
    // Groups of a norm become an InstanceNormalization with ones and zeros that nobody trains.
    const bool groups = std::all_of(uses.begin(), uses.end(), [](const Use& use) { return use.op == "InstanceNormalization"; });
    return {false, !groups, "anonymous tensor of one constant"};
  }
  const auto role = std::find_if(uses.begin(), uses.end(),
                                 [](const Use& use) { return use.role != UseRole::other && use.role != UseRole::setting; });
  const Use& use = role == uses.end() ? uses[0] : *role;
  const bool nameless = role == uses.end() && is_anonymous(name);
  return {true, may_be_buffer(name, values, use, naming), nameless ? "anonymous " + used_as(use) : used_as(use)};
}

}  // namespace gcomp::frontend
