// Two units of fusion as one: the consumer's loops with the producer's statements before its own.
//
//   p: %h[i,j] = x[i,j] * 2        c: %y[i] = sum over j of exp(h[i,j])        ->  h = x[i,j] * 2; %y[i] = sum over j of exp(h)
#pragma once

#include "passes/fusion_units.h"
#include "passes/nest_domains.h"

namespace gcomp::passes {

/// The map from the producer's axes into the consumer's domain, whose extents may gain axes at the end.
struct DomainFit {
  AxisMap map;
  std::vector<std::int64_t> extents;
};

/// Nothing where the consumer does not read result `output` of the producer, its operand `slot`, one to one.
std::optional<DomainFit> fit_domain(const FusionUnit& p, const FusionUnit& c, std::size_t output, int slot);
/// One unit that does what both do, with the results of both; nothing where it would lack the row form.
std::optional<FusionUnit> join_units(const FusionUnit& p, const FusionUnit& c, const DomainFit& fit);
void merge_equal_statements(ir::LoopNest& nest);
void drop_unread_operands(FusionUnit& unit);

}  // namespace gcomp::passes
