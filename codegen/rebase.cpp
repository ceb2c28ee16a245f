#include "codegen/rebase.h"

#include <algorithm>
#include <limits>

namespace gcomp::codegen {
namespace {

using namespace ir;

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kUnread = std::numeric_limits<std::int64_t>::max();

/// Elements before the first that each operand's reads can reach.
std::vector<std::int64_t> first_elements(const LoopNest& nest, const std::vector<TensorType>& operands) {
  std::vector<std::int64_t> first(operands.size(), kUnread);
  auto visit = [&](const TermPtr& term) {
    if (term->kind != Term::Kind::read) return;
    const auto slot = static_cast<std::size_t>(term->slot);
    const Index position = linear_index(term->indices, operands[slot].shape);
    first[slot] = std::min(first[slot], position.has_loaded() ? 0 : std::max<std::int64_t>(position.range().low, 0));
  };
  for (const Statement& s : nest.statements) for_each_term(s.value, visit);
  for (const LoopOutput& output : nest.outputs)
    for (const Index& index : output.index)
      if (index.has_loaded()) for_each_term(index_value(DType::i64, index), visit);
  return first;
}

}  // namespace

Rebased rebase(const LoopNest& nest, const std::vector<TensorType>& operands, const std::vector<bool>& movable) {
  Rebased result{nest, operands, std::vector<std::int64_t>(operands.size())};
  const std::vector<std::int64_t> first = first_elements(nest, operands);
  std::vector<std::int64_t> moved(operands.size());
  bool any = false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto size = static_cast<std::int64_t>(size_of(operands[i].dtype));
    if (!movable[i] || first[i] == kUnread || first[i] * size < kAlignment) continue;
    result.byte_offsets[i] = first[i] * size / kAlignment * kAlignment;
    moved[i] = result.byte_offsets[i] / size;
    result.operands[i].shape = {operands[i].elements() - moved[i]};
    any = true;
  }
  if (!any) return result;
  TermRewriter rewriter;
  rewriter.leaf = [&](const TermPtr& term) -> TermPtr {
    const auto slot = static_cast<std::size_t>(term->slot);
    if (term->kind != Term::Kind::read || moved[slot] == 0) return nullptr;
    return read(term->dtype, term->slot, {linear_index(term->indices, operands[slot].shape) - Index(moved[slot])});
  };
  for (Statement& s : result.nest.statements) s.value = rewriter(s.value);
  return result;
}

}  // namespace gcomp::codegen
