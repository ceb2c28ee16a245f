#include "frontend/layers/initial_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "ir/base/dtype.h"
#include "ir/base/named_draws.h"

namespace gcomp::frontend {
namespace {

constexpr std::int64_t kPart = 4096;

}  // namespace

InitialValues all_of(double value) {
  return [=](std::int64_t, std::span<double> values) { std::ranges::fill(values, value); };
}

InitialValues uniform_values(std::uint64_t seed, const std::string& name, double bound) {
  return [bound, draws = NamedDraws(seed, name)](std::int64_t first, std::span<double> values) {
    draws.fill(first, values);
    for (double& value : values) value = (2 * value - 1) * bound;
  };
}

InitialValues normal_values(std::uint64_t seed, const std::string& name, double deviation) {
  return [deviation, draws = NamedDraws(seed, name)](std::int64_t first, std::span<double> values) {
    std::array<double, 2 * kPart> pairs;
    for (std::size_t done = 0; done < values.size();) {
      const std::span<double> part = values.subspan(done, std::min(values.size() - done, pairs.size() / 2));
      draws.fill(2 * (first + static_cast<std::int64_t>(done)), std::span(pairs).first(2 * part.size()));
      for (std::size_t i = 0; i < part.size(); ++i) {
        const double radius = std::sqrt(-2 * std::log(1 - pairs[2 * i]));
        part[i] = radius * std::cos(2 * std::numbers::pi * pairs[2 * i + 1]) * deviation;
      }
      done += part.size();
    }
  };
}

Tensor filled(const TensorType& type, const InitialValues& initial) {
  Tensor tensor(type);
  std::array<double, kPart> part;
  for (std::int64_t first = 0; first < tensor.elements(); first += kPart) {
    const std::int64_t count = std::min(kPart, tensor.elements() - first);
    initial(first, std::span(part).first(static_cast<std::size_t>(count)));
    std::byte* to = tensor.data() + first * static_cast<std::int64_t>(size_of(tensor.dtype()));
    convert_floats(DType::f64, reinterpret_cast<const std::byte*>(part.data()), tensor.dtype(), to, count);
  }
  return tensor;
}

}  // namespace gcomp::frontend
