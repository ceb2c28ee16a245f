#include "gcomp/driver/adaptation.h"

#include "ir/base/error.h"
#include "ir/strided_view.h"
#include "passes/training/lora.h"

namespace gcomp::driver {
namespace {

const Tensor& state_of(const std::map<std::string, Tensor>& states, const std::string& name, const Shape& shape) {
  const auto found = states.find(name);
  check_user(found != states.end(), "the state '", name, "' of an adapter is missing");
  check_user(found->second.shape() == shape, "the state '", name, "' of an adapter is ", to_string(found->second.type()),
             ", wanted ", gcomp::to_string(shape));
  return found->second;
}

/// In f64; `weight` may have any float type.
Tensor with_product(const Tensor& weight, const ir::StridedView& map, const std::vector<double>& a, const std::vector<double>& b,
                    std::int64_t rank, double scale) {
  Tensor sum = weight.cast(DType::f64);
  const std::span<double> values = sum.as<double>();
  const Tensor positions = map.positions();
  const std::int64_t outputs = map.shape[0], inputs = positions.elements() / outputs;
  std::vector<double> row(static_cast<std::size_t>(inputs));
  for (std::int64_t o = 0; o < outputs; ++o) {
    std::fill(row.begin(), row.end(), 0.0);
    for (std::int64_t r = 0; r < rank; ++r) {
      const double factor = b[static_cast<std::size_t>(o * rank + r)];
      const double* from = a.data() + r * inputs;
      for (std::size_t i = 0; i < row.size(); ++i) row[i] += factor * from[i];
    }
    const std::int64_t* to = positions.as<std::int64_t>().data() + o * inputs;
    for (std::size_t i = 0; i < row.size(); ++i) values[static_cast<std::size_t>(to[i])] += scale * row[i];
  }
  return sum;
}

}  // namespace

std::string difference(const Adaptation& before, const Adaptation& now) {
  if (before.rank != now.rank) return concat("rank was ", before.rank, " and is ", now.rank);
  if (before.alpha != now.alpha) return concat("alpha was ", before.alpha, " and is ", now.alpha);
  if (before.scale() != now.scale()) return concat("their scale was ", before.scale(), " and is ", now.scale());
  return "";
}

void merge_adapters(const Adaptation& adaptation, std::map<std::string, Tensor>& states) {
  for (const AdaptedWeight& weight : adaptation.weights) {
    const auto base = states.find(weight.parameter);
    check_user(base != states.end(), "the parameter '", weight.parameter, "' of an adapter is missing");
    const ir::StridedView map{weight.shape, weight.strides};
    const std::string violation = find_violation(map, base->second.elements());
    check_user(violation.empty() && map.shape.size() >= 2 && element_count(map.shape) == base->second.elements(),
               "the adapter of '", weight.parameter, "' ", violation.empty() ? "is none of its elements" : violation);
    const Tensor& a = state_of(states, weight.a(), passes::shape_of_a(map, adaptation.rank));
    const Tensor& b = state_of(states, weight.b(), passes::shape_of_b(map, adaptation.rank));
    base->second = with_product(base->second, map, a.to_doubles(), b.to_doubles(), adaptation.rank, adaptation.scale());
  }
}

}  // namespace gcomp::driver
