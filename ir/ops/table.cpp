// The op definitions, compiled here and nowhere else.
#include "ir/ops/table.h"

#include <array>
#include <unordered_map>

#include "ir/ops/attention.h"
#include "ir/ops/collective.h"
#include "ir/ops/composite.h"
#include "ir/ops/contract.h"
#include "ir/ops/elementary.h"
#include "ir/ops/index.h"
#include "ir/ops/lock_step.h"
#include "ir/ops/logic.h"
#include "ir/ops/pointwise.h"
#include "ir/ops/random.h"
#include "ir/ops/reduce.h"
#include "ir/ops/square_sums.h"
#include "ir/ops/structure.h"
#include "ir/ops/view.h"
#include "ir/ops/window.h"

namespace gcomp::ir {
namespace ops {
namespace {

template <std::size_t... N>
constexpr auto join_tables(const OpDef* const (&... tables)[N]) {
  std::array<const OpDef*, (N + ...)> all{};
  std::size_t next = 0;
  (
      [&] {
        for (const OpDef* op : tables) all[next++] = op;
      }(),
      ...);
  return all;
}
constexpr auto kAll =
    join_tables(kStructureOps, kPointwiseOps, kElementaryOps, kLogicOps, kReduceOps, kContractOps, kViewOps, kWindowOps, kIndexOps,
                kRandomOps, kCompositeOps, kAttentionOps, kSquareSumOps, kCollectiveOps, kLockStepOps);

constexpr bool has_attribute(const OpDef& op, std::string_view name) {
  for (const AttributeSpec& spec : op.attributes)
    if (spec.name == name) return true;
  return false;
}

consteval bool every_op_is_complete() {
  for (const OpDef* op : kAll) {
    const bool structural = op->kind == Kind::constant || op->kind == Kind::update || op->kind == Kind::kernel;
    const bool defined = structural || (op->kind == Kind::pointwise   ? op->scalar.reference != nullptr
                                        : op->kind == Kind::reduce    ? op->reduction.of != Reduction::Of::none
                                        : op->kind == Kind::composite ? op->expand != nullptr
                                        : op->kind == Kind::collective || op->kind == Kind::barrier ? op->infer != nullptr
                                                                                                    : op->loops != nullptr);
    const bool sampled = structural || op->kind == Kind::pointwise || !op->samples.empty();
    const bool gradient = (op->gradient != nullptr) != !op->no_gradient.empty();
    const bool costed = (op->cost > 0) == (op->scalar.reference != nullptr);
    const bool precise = op->precision != Precision::undecided && (!op->wide_where || op->precision == Precision::promoted);
    const bool viewed = op->kind == Kind::view || (!op->fills && !op->alias);
    const bool looked_up = op->kind == Kind::index || !op->looks_up;
    const bool laid_out = op->layouts.any() == has_attribute(*op, "channels_last");
    if (!viewed || !looked_up || !laid_out) return false;
    if (op->name.empty() || op->summary.empty() || !defined || !costed || !precise || !sampled || !gradient) return false;
  }
  return true;
}
static_assert(every_op_is_complete(),
              "an op lacks a summary, a body, loops or expansion, a cost, a precision, a gradient or the reason for none, samples, "
              "or layouts where it has channels_last; or it has a fact that its kind cannot have");

}  // namespace

constexpr std::span<const OpDef* const> kTable = kAll;

}  // namespace ops

const OpDef* find_op(std::string_view name) {
  static const auto* const kByName = [] {
    auto* map = new std::unordered_map<std::string_view, const OpDef*>();
    for (const OpDef* op : ops::kTable) map->emplace(op->name, op);
    return map;
  }();
  auto it = kByName->find(name);
  return it == kByName->end() ? nullptr : it->second;
}

}  // namespace gcomp::ir
