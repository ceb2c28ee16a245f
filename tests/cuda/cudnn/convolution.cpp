#include "tests/cuda/cudnn/convolution.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <span>

namespace gcomp::emulated {
namespace {

double to_tf32(double x) {
  if (!std::isfinite(x)) return x;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11);
}

std::int64_t dot(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Every point of the box, the last index fastest.
std::vector<std::vector<std::int64_t>> points_of(std::span<const std::int64_t> extents) {
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) count *= extent;
  std::vector<std::vector<std::int64_t>> points(static_cast<std::size_t>(count), std::vector<std::int64_t>(extents.size()));
  for (std::int64_t p = 0; p < count; ++p) {
    std::int64_t rest = p;
    for (std::size_t d = extents.size(); d-- > 0; rest /= extents[d]) points[static_cast<std::size_t>(p)][d] = rest % extents[d];
  }
  return points;
}

/// The same dimensions, those named `inner` next to each other, the first of them without a gap.
Tensor packed(const Tensor& tensor, std::initializer_list<std::size_t> inner) {
  Tensor packed = tensor;
  std::int64_t elements = 1;
  const auto add = [&](std::size_t d) {
    packed.strides[d] = elements;
    elements *= packed.dimensions[d];
  };
  for (const std::size_t d : inner) add(d);
  for (std::size_t d = tensor.dimensions.size(); d-- > 0;)
    if (std::find(inner.begin(), inner.end(), d) == inner.end()) add(d);
  return packed;
}

/// Calls `visit` with each element's place in `a` and in `b`, which have the same dimensions.
template <class Visit>
void visit_both(const Tensor& a, const Tensor& b, const Visit& visit) {
  std::vector<std::int64_t> point(a.dimensions.size());
  for (std::int64_t in_a = 0, in_b = 0;;) {
    visit(in_a, in_b);
    std::size_t d = point.size();
    for (; d > 0; --d) {
      in_a += a.strides[d - 1], in_b += b.strides[d - 1];
      if (++point[d - 1] < a.dimensions[d - 1]) break;
      in_a -= a.strides[d - 1] * point[d - 1], in_b -= b.strides[d - 1] * point[d - 1];
      point[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

/// The tensor's elements where `packed` has them.
std::vector<double> values_of(const Tensor& tensor, const Tensor& packed, const void* data, bool rounds_to_tf32) {
  std::vector<double> values(static_cast<std::size_t>(packed.extent()));
  visit_both(tensor, packed, [&](std::int64_t from, std::int64_t to) {
    const double value = load(data, from, tensor.type);
    values[static_cast<std::size_t>(to)] = rounds_to_tf32 ? to_tf32(value) : value;
  });
  return values;
}

/// A place in a tensor, and how it moves with the output and the input channel of a group.
struct Place {
  std::int64_t at, per_output, per_input;
  std::size_t of(std::int64_t output, std::int64_t input) const {
    return static_cast<std::size_t>(at + output * per_output + input * per_input);
  }
};

void add_multiple(double* __restrict sums, const double* __restrict values, double factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += values[i] * factor;
}

/// The products of two places' elements to those of a third, by a line of different ones of these.
void add_products(const Place* const (&places)[3], const std::int64_t (&channels)[2], const double* first, const double* second,
                  double* sums) {
  const auto [to, a, b] = places;
  const bool by_outputs = to->per_input == 0;
  const auto step = [&](const Place* place) { return by_outputs ? place->per_output : place->per_input; };
  const std::int64_t step_to = step(to), step_a = step(a), step_b = step(b);
  for (std::int64_t line = 0; line < channels[by_outputs]; ++line) {
    const auto start = [&](const Place* place) { return by_outputs ? place->of(0, line) : place->of(line, 0); };
    double* sum = sums + start(to);
    const double *x = first + start(a), *y = second + start(b);
    const std::int64_t count = channels[!by_outputs];
    if (step_to == 1 && step_a == 0 && step_b == 1) add_multiple(sum, y, *x, count);
    else if (step_to == 1 && step_a == 1 && step_b == 0) add_multiple(sum, x, *y, count);
    else
      for (std::int64_t i = 0; i < count; ++i) sum[i * step_to] += x[i * step_a] * y[i * step_b];
  }
}

}  // namespace

const Tensor& Convolution::result() const {
  return written == Written::output ? output : written == Written::input ? input : weight;
}

bool Convolution::fits() const {
  const std::size_t rank = strides.size() + 2;
  for (const Tensor* tensor : {&input, &weight, &output})
    if (tensor->dimensions.size() != rank || tensor->strides.size() != rank || tensor->type != input.type) return false;
  if (strides.size() < 2 || weight.dimensions[1] < 1 || input.dimensions[1] % weight.dimensions[1] != 0) return false;
  if (weight.dimensions[0] % groups() != 0 || output.dimensions[1] != weight.dimensions[0]) return false;
  if (output.dimensions[0] != input.dimensions[0]) return false;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    const std::int64_t window = (weight.dimensions[d + 2] - 1) * dilations[d] + 1;
    if ((input.dimensions[d + 2] + before[d] + after[d] - window) / strides[d] + 1 != output.dimensions[d + 2]) return false;
  }
  return true;
}

void Convolution::run(const void* x, const void* w, const void* y, Order order) const {
  // What a line of products goes along is without gaps: vectors of the host add several at once, each in its turn.
  const Tensor inputs_packed = packed(input, {1}), outputs_packed = packed(output, {1}),
               weights_packed = written == Written::output ? packed(weight, {0, 1}) : packed(weight, {1, 0});
  const std::vector<double> values[] = {values_of(input, inputs_packed, x, rounds_to_tf32),
                                        values_of(weight, weights_packed, w, rounds_to_tf32),
                                        values_of(output, outputs_packed, y, rounds_to_tf32)};
  const std::size_t target = written == Written::output ? 2 : written == Written::input ? 0 : 1;
  const std::vector<double>&first = values[target == 0 ? 1 : 0], &second = values[target == 2 ? 1 : 2];
  std::vector<double> sums(values[target].size());
  const std::int64_t inputs = weight.dimensions[1], outputs = weight.dimensions[0] / groups(), batch = output.dimensions[0];
  const auto positions = points_of(std::span(output.dimensions).subspan(2)),
             taps = points_of(std::span(weight.dimensions).subspan(2));
  const auto turned = [&](std::int64_t index, std::int64_t count) { return order == Order::backwards ? count - 1 - index : index; };
  const auto in_turn = [&](const auto& points, std::size_t i) -> const auto& {
    return points[static_cast<std::size_t>(turned(static_cast<std::int64_t>(i), static_cast<std::int64_t>(points.size())))];
  };
  const auto add = [&](const Place(&places)[3]) {
    const Place &to = places[target], &a = places[target == 0 ? 1 : 0], &b = places[target == 2 ? 1 : 2];
    if (order == Order::fixed) return add_products({&to, &a, &b}, {outputs, inputs}, first.data(), second.data(), sums.data());
    for (std::int64_t i = 0; i < outputs; ++i)
      for (std::int64_t j = 0; j < inputs; ++j) {
        const std::int64_t o = turned(i, outputs), c = turned(j, inputs);
        double& sum = sums[to.of(o, c)];
        sum = static_cast<double>(static_cast<float>(sum + first[a.of(o, c)] * second[b.of(o, c)]));
      }
  };
  const auto spatial = [](const Tensor& tensor) { return std::span(tensor.strides).subspan(2); };
  constexpr std::int64_t kOutside = -1;
  std::vector<std::int64_t> read_at, at(strides.size());  // of an image, by each tap at each position
  for (std::size_t t = 0; t < taps.size(); ++t)
    for (std::size_t p = 0; p < positions.size(); ++p) {
      const std::vector<std::int64_t>&position = in_turn(positions, p), &tap = in_turn(taps, t);
      bool inside = true;
      for (std::size_t d = 0; d < at.size(); ++d) {
        at[d] = position[d] * strides[d] + tap[d] * dilations[d] - before[d];
        inside = inside && at[d] >= 0 && at[d] < input.dimensions[d + 2];
      }
      read_at.push_back(inside ? dot(at, spatial(inputs_packed)) : kOutside);
    }
  for (std::int64_t image = 0; image < batch * groups(); ++image) {
    const std::int64_t turn = turned(image, batch * groups()), n = turn / groups(), group = turn % groups();
    const std::int64_t of_input = n * inputs_packed.strides[0] + group * inputs * inputs_packed.strides[1],
                       of_output = n * outputs_packed.strides[0] + group * outputs * outputs_packed.strides[1];
    const std::int64_t* reads = read_at.data();
    for (std::size_t t = 0; t < taps.size(); ++t) {
      const std::int64_t of_weight = group * outputs * weights_packed.strides[0] + dot(in_turn(taps, t), spatial(weights_packed));
      for (std::size_t p = 0; p < positions.size(); ++p) {
        const std::int64_t read = *reads++;
        if (read == kOutside) continue;
        add({{of_input + read, 0, inputs_packed.strides[1]},
             {of_weight, weights_packed.strides[0], weights_packed.strides[1]},
             {of_output + dot(in_turn(positions, p), spatial(outputs_packed)), outputs_packed.strides[1], 0}});
      }
    }
  }
  const void* const data[] = {x, w, y};
  const Tensor* const all_packed[] = {&inputs_packed, &weights_packed, &outputs_packed};
  visit_both(result(), *all_packed[target], [&](std::int64_t to, std::int64_t from) {
    store(const_cast<void*>(data[target]), to, result().type, sums[static_cast<std::size_t>(from)]);
  });
}

}  // namespace gcomp::emulated
