// Two units of fusion as one: the consumer's loops with the producer's statements before its own.
//
//   p: %h[i,j] = x[i,j] * 2        c: %y[i] = sum over j of exp(h[i,j])        ->  h = x[i,j] * 2; %y[i] = sum over j of exp(h)
#pragma once

#include "passes/fusion/fusion_units.h"
#include "passes/fusion/nest_domains.h"

namespace gcomp::passes {

/// The map from the producer's axes into the consumer's domain, whose extents may gain axes at the end.
struct DomainFit {
  AxisMap map;
  std::vector<std::int64_t> extents;
};

/// Nothing where `read`, the consumer's one index vector for result `output` of the producer, is not one to one.
std::optional<DomainFit> fit_domain(const FusionUnit& p, const FusionUnit& c, std::size_t output,
                                    const std::vector<ir::Index>& read);
/// One unit that does what both do, with the results of both, equal statements once, operands in the order of first reading;
/// nothing where it would lack the row form, or find two positions in different orders of its axes.
std::optional<FusionUnit> fuse_units(const FusionUnit& p, const FusionUnit& c, const DomainFit& fit);
/// The same for two units over the same axes, of which one may sum columns: nothing where the nest would lack the strip form.
std::optional<FusionUnit> fuse_strip(const FusionUnit& p, const FusionUnit& c, std::uint64_t strip, std::uint64_t columns);
/// A unit over the axes of another, of such extents; nothing where a reduction's axes are mapped to no such axes as a whole.
std::optional<FusionUnit> moved_to(const FusionUnit& unit, const AxisMap& map, const std::vector<std::int64_t>& extents);

}  // namespace gcomp::passes
