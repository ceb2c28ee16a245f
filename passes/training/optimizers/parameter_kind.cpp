#include "passes/training/optimizers/parameter_kind.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ir/ops/table.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::array<std::pair<std::string_view, ParameterKind>, 4> kKinds{{{"bias", ParameterKind::bias},
                                                                            {"norm", ParameterKind::norm},
                                                                            {"embedding", ParameterKind::embedding},
                                                                            {"matrix", ParameterKind::matrix}}};

/// At most one dimension is no 1.
bool is_vector(const TensorType& type) {
  return std::ranges::count_if(type.shape, [](std::int64_t size) { return size != 1; }) <= 1;
}

struct Use {
  bool gathered = false, contracted = false, normalises = false, shifts = false, added = false, multiplied = false;

  Use& operator|=(const Use& other) {
    gathered |= other.gathered;
    contracted |= other.contracted;
    normalises |= other.normalises;
    shifts |= other.shifts;
    added |= other.added;
    multiplied |= other.multiplied;
    return *this;
  }
};

/// One walk in the order of the nodes.
class UseWalk {
 public:
  UseWalk(const Graph& graph, std::span<Value* const> parameters) : holders_(graph), scaled_(graph), uses_(parameters.size()) {
    for (std::size_t i = 0; i < parameters.size(); ++i) holders_[parameters[i]] = static_cast<int>(i) + 1;
    for (const auto& node : graph.nodes()) note(*node);
    for (const auto& [parameter, first] : beside_)
      uses_[static_cast<std::size_t>(parameter)] |= uses_[static_cast<std::size_t>(first)];
  }
  const Use& of(std::size_t parameter) const { return uses_[parameter]; }

 private:
  Use* held(const Value* value) {
    const int number = value ? holders_[value] : 0;
    return number > 0 ? &uses_[static_cast<std::size_t>(number - 1)] : nullptr;
  }

  void note(const Node& node) {
    if (node.operands.empty() || node.results.empty()) return;
    const OpDef& op = *node.op;
    if (op.looks_up) {
      if (Use* use = held(node.operands[0])) use->gathered = true;
    } else if (op.kind == Kind::contract || &op == &ops::kAttention) {
      for (const Value* operand : node.operands)
        if (Use* use = held(operand)) use->contracted = true;
    } else if (&op == &ops::kLayerNorm || &op == &ops::kBatchNorm) {
      for (std::size_t i = 1; i < node.operands.size(); ++i)
        if (Use* use = held(node.operands[i])) use->normalises = true;
    } else if (&op == &ops::kAdd || &op == &ops::kSub) {
      note_sum(node);
    } else if (&op == &ops::kMul) {
      note_product(node);
    } else {
      pass_on(node);
    }
  }

  /// What holds a parameter's elements in another type, order or extent. Of several parameters side by side the first stands for
  /// all; beside anything else, as a class token beside the tokens, a parameter is no longer what is computed with.
  void pass_on(const Node& node) {
    if (node.op->kind != Kind::view && !is_cast(*node.op)) return;
    const int first = holders_[node.operands[0]];
    const bool whole = std::ranges::all_of(node.operands, [&](const Value* operand) { return holders_[operand] > 0; });
    for (const Value* operand : node.operands)
      if (whole && holders_[operand] != first) beside_.emplace_back(holders_[operand] - 1, first - 1);
    for (const Value* result : node.results) {
      holders_[result] = whole ? first : 0;
      scaled_[result] = scaled_[node.operands[0]];
    }
  }

  void note_sum(const Node& node) {
    const std::array operands{node.operands[0], node.operands[1]};
    for (std::size_t i = 0; i < 2; ++i) {
      Use* use = held(operands[i]);
      if (!use) continue;
      if (scaled_[operands[1 - i]]) use->shifts = true;
      else use->added = true;
    }
    if (held(operands[0]) && held(operands[1])) holders_[node.result()] = holders_[operands[0]];
  }

  void note_product(const Node& node) {
    for (std::size_t i = 0; i < 2; ++i) {
      Use* use = held(node.operands[i]);
      if (!use) continue;
      use->multiplied = true;
      scaled_[node.result()] = true;
    }
  }

  ValueTable<int> holders_;  ///< one more than the number of the parameter
  ValueTable<char> scaled_;  ///< made by a product with a parameter
  std::vector<Use> uses_;
  std::vector<std::pair<int, int>> beside_;  ///< parameters behind the first of a concat, and that
};

ParameterKind kind_of(const Use& use, const TensorType& type) {
  if (use.gathered) return ParameterKind::embedding;
  if (use.contracted && type.rank() >= 2) return ParameterKind::matrix;
  if (use.normalises) return ParameterKind::norm;
  if ((use.multiplied || use.shifts) && is_vector(type)) return ParameterKind::norm;
  if (use.added && is_vector(type)) return ParameterKind::bias;
  return ParameterKind::other;
}

}  // namespace

std::string_view name_of(ParameterKind kind) {
  for (const auto& [name, named] : kKinds)
    if (named == kind) return name;
  return "";
}

std::optional<ParameterKind> parse_parameter_kind(std::string_view name) {
  for (const auto& [known, kind] : kKinds)
    if (known == name) return kind;
  return std::nullopt;
}

std::vector<std::string> parameter_kind_names() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kKinds) names.emplace_back(name);
  return names;
}

std::vector<ParameterKind> parameter_kinds(const Graph& forward, std::span<Value* const> parameters) {
  const UseWalk uses(forward, parameters);
  std::vector<ParameterKind> kinds;
  for (std::size_t i = 0; i < parameters.size(); ++i) kinds.push_back(kind_of(uses.of(i), parameters[i]->type));
  return kinds;
}

}  // namespace gcomp::passes
