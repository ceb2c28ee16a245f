// Sliding windows over the last dimensions, or those before the channel where that comes last: pooling is a window and a reduction,
// its gradient a sum back over windows. The geometry is shared with convolution: window position s, offset k read input s * stride
// + k * dilation - pad_low.
#pragma once

#include <limits>

#include "ir/ops/pointwise.h"
#include "ir/ops/reduce.h"
#include "ir/ops/shown.h"
#include "ir/ops/table.h"
#include "ir/ops/view.h"

namespace gcomp::ir::ops {

inline constexpr AttributeSpec kWindowAttributes[] = {AttributeSpec::of("kernel", AttributeType::integers),
                                                      AttributeSpec::of("strides", AttributeType::integers),
                                                      AttributeSpec::of("low", AttributeType::integers),
                                                      AttributeSpec::of("high", AttributeType::integers),
                                                      AttributeSpec::of("dilations", AttributeType::integers),
                                                      AttributeSpec::optional("value", AttributeType::real),
                                                      AttributeSpec::optional("channels_last", AttributeType::flag)};
inline constexpr AttributeSpec kWindowSumAttributes[] = {AttributeSpec::of("kernel", AttributeType::integers),
                                                         AttributeSpec::of("strides", AttributeType::integers),
                                                         AttributeSpec::of("low", AttributeType::integers),
                                                         AttributeSpec::of("high", AttributeType::integers),
                                                         AttributeSpec::of("dilations", AttributeType::integers),
                                                         AttributeSpec::of("sizes", AttributeType::integers),
                                                         AttributeSpec::optional("channels_last", AttributeType::flag)};
inline constexpr Sample kWindowSamples[] = {
    {"f64[2,5]", "{kernel=[3], strides=[2], low=[1], high=[1], dilations=[1], value=0.5}"},
    {"f64[1,4,5]", "{kernel=[2,2], strides=[1,2], low=[0,1], high=[0,1], dilations=[2,1]}"},
    {"f64[1,4,5,3]", "{kernel=[2,2], strides=[1,2], low=[0,1], high=[0,1], dilations=[2,1], channels_last=true}"}};
inline constexpr Sample kWindowSumSamples[] = {
    {"f64[2,3,3]", "{kernel=[3], strides=[2], low=[1], high=[1], dilations=[1], sizes=[5]}"},
    {"f64[2,3,4,3]", "{kernel=[3], strides=[2], low=[1], high=[1], dilations=[1], sizes=[5], channels_last=true}"}};
inline constexpr Sample kMaxPoolSamples[] = {
    {"f64[2,3,4,5]", "{kernel=[2,2], strides=[2,2], low=[0,0], high=[0,1], dilations=[1,1]}"},
    {"f64[1,1,6]", "{kernel=[3], strides=[1], low=[1], high=[1], dilations=[2]}"}};

/// Positions of a window along one axis: floor((size + low + high - dilation * (kernel - 1) - 1) / stride) + 1.
inline Shape window_positions(const InferContext& c, std::span<const std::int64_t> sizes) {
  const Integers &kernel = c.attributes.integers("kernel"), &strides = c.attributes.integers("strides"),
                 &dilations = c.attributes.integers("dilations"), &low = c.attributes.integers("low"),
                 &high = c.attributes.integers("high");
  c.require(kernel.size() == sizes.size() && strides.size() == sizes.size() && dilations.size() == sizes.size() &&
                low.size() == sizes.size() && high.size() == sizes.size(),
            "kernel, strides, dilations, low and high need one entry for each of ", sizes.size(), " axes");
  Shape positions;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    c.require(kernel[i] > 0 && strides[i] > 0 && dilations[i] > 0, "kernel, strides and dilations must be positive");
    const std::int64_t room = sizes[i] + low[i] + high[i] - dilations[i] * (kernel[i] - 1) - 1;
    c.require(room >= 0, "a window of ", dilations[i] * (kernel[i] - 1) + 1, " does not fit into ", sizes[i] + low[i] + high[i],
              " padded elements");
    positions.push_back(room / strides[i] + 1);
  }
  return positions;
}

/// Index into the unpadded input and the condition that it lies inside.
inline Index window_input(const Attributes& a, std::size_t axis, const Index& position, const Index& offset, std::int64_t size,
                          std::vector<Condition>& inside) {
  const Index in = position * a.integers("strides")[axis] + offset * a.integers("dilations")[axis] - Index(a.integers("low")[axis]);
  inside.push_back({in, 0, size});
  return in;
}
/// Window position that reads `input` at `offset`, and the conditions that there is one.
inline Index window_position(const Attributes& a, std::size_t axis, const Index& input, const Index& offset, std::int64_t positions,
                             std::vector<Condition>& inside) {
  const std::int64_t stride = a.integers("strides")[axis];
  const Index scaled = input + Index(a.integers("low")[axis]) - offset * a.integers("dilations")[axis];
  inside.push_back({scaled, 0, (positions - 1) * stride + 1});
  inside.push_back({scaled.remainder(stride), 0, 1});
  return scaled.quotient(stride);
}

/// The geometry shared by window and window_sum.
inline Attributes window_attributes(const Attributes& a) {
  Attributes geometry{{"kernel", a.integers("kernel")},
                      {"strides", a.integers("strides")},
                      {"low", a.integers("low")},
                      {"high", a.integers("high")},
                      {"dilations", a.integers("dilations")}};
  if (const Attribute* last = a.find("channels_last")) geometry.set("channels_last", *last);
  return geometry;
}
/// First of the windowed axes of an unwindowed value of this rank.
inline std::size_t first_spatial(const Attributes& a, std::size_t rank) {
  return rank - a.integers("kernel").size() - (a.flag("channels_last") ? 1 : 0);
}
Integers last_axes(std::int64_t rank, std::size_t count) {
  Integers axes;
  for (std::size_t i = 0; i < count; ++i) axes.push_back(rank - static_cast<std::int64_t>(count) + static_cast<std::int64_t>(i));
  return axes;
}

constexpr OpDef kWindow{
    .name = "window",
    .summary = "[..., positions..., kernel...]: the windows over the last axes, `value` outside",
    .kind = Kind::view,
    .operands = 1,
    .attributes = kWindowAttributes,
    .precision = Precision::promoted,
    .layouts = {{Layout::image}, Layout::windows},
    .fills = true,
    .infer =
        [](const InferContext& c) {
          TensorType type = c.operand(0);
          const Integers& kernel = c.attributes.integers("kernel");
          c.require(kernel.size() + (c.attributes.flag("channels_last") ? 1 : 0) <= type.shape.size(), "windows over ",
                    kernel.size(), " axes of ", shown(type));
          const std::size_t first = first_spatial(c.attributes, type.shape.size());
          const Shape positions = window_positions(c, std::span(type.shape).subspan(first, kernel.size()));
          std::copy(positions.begin(), positions.end(), type.shape.begin() + static_cast<std::ptrdiff_t>(first));
          type.shape.insert(type.shape.end(), kernel.begin(), kernel.end());
          return std::vector{type};
        },
    .loops =
        [](const LoopContext& c) {
          return map_nest(c.results[0], [&](const Indices& out) {
            const TensorType& x = c.operands[0];
            const std::size_t spatial = c.attributes.integers("kernel").size(), first = first_spatial(c.attributes, x.shape.size());
            Indices in(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(x.shape.size()));
            std::vector<Condition> inside;
            for (std::size_t i = 0; i < spatial; ++i)
              in[first + i] = window_input(c.attributes, i, out[first + i], out[x.shape.size() + i], x.shape[first + i], inside);
            return guard(inside, read(x.dtype, 0, in), literal(x.dtype, c.attributes.real("value")));
          });
        },
    .gradient =
        [](GradientContext& g) {
          Attributes attributes = window_attributes(g.attributes());
          const auto first = g.operand(0).shape().begin() +
                             static_cast<std::ptrdiff_t>(first_spatial(g.attributes(), g.operand(0).shape().size()));
          attributes.set("sizes", Integers(first, first + static_cast<std::ptrdiff_t>(g.attributes().integers("kernel").size())));
          g.add(0, g.builder().apply(kWindowSum, {g.dy()}, attributes));
        },
    .samples = kWindowSamples,
};

constexpr OpDef kWindowSum{
    .name = "window_sum",
    .summary = "adds overlapping windows back: the transpose of window",
    .kind = Kind::index,
    .operands = 1,
    .attributes = kWindowSumAttributes,
    .precision = Precision::wide,
    .reads = Reads::once,
    .layouts = {{Layout::windows}, Layout::image},
    .infer =
        [](const InferContext& c) {
          TensorType type = c.operand(0);
          const Integers &kernel = c.attributes.integers("kernel"), &sizes = c.attributes.integers("sizes");
          const Shape positions = window_positions(c, sizes);
          c.require(2 * kernel.size() + (c.attributes.flag("channels_last") ? 1 : 0) <= type.shape.size(), "windows over ",
                    kernel.size(), " axes in ", shown(type));
          const std::size_t rank = type.shape.size() - kernel.size(), first = first_spatial(c.attributes, rank);
          Shape expected = type.shape;
          std::copy(positions.begin(), positions.end(), expected.begin() + static_cast<std::ptrdiff_t>(first));
          std::copy(kernel.begin(), kernel.end(), expected.begin() + static_cast<std::ptrdiff_t>(rank));
          c.require(expected == type.shape, "windows of [", shown(sizes), "] are [", shown(expected), "], found ", shown(type));
          type.shape.resize(rank);
          std::copy(sizes.begin(), sizes.end(), type.shape.begin() + static_cast<std::ptrdiff_t>(first));
          return std::vector{type};
        },
    .loops =
        [](const LoopContext& c) {
          const TensorType& windows = c.operands[0];
          const Integers& kernel = c.attributes.integers("kernel");
          const std::size_t first = first_spatial(c.attributes, windows.shape.size() - kernel.size());
          return reduce_nest(c.results[0], kernel, kReduceSum, [&](const Indices& out, const Indices& offset) {
            Indices in = out;
            std::vector<Condition> inside;
            for (std::size_t i = 0; i < kernel.size(); ++i)
              in[first + i] = window_position(c.attributes, i, out[first + i], offset[i], windows.shape[first + i], inside);
            in.insert(in.end(), offset.begin(), offset.end());
            return guard(inside, read(windows.dtype, 0, in), literal(windows.dtype, 0));
          });
        },
    .gradient = [](GradientContext& g) { g.add(0, g.builder().apply(kWindow, {g.dy()}, window_attributes(g.attributes()))); },
    .samples = kWindowSumSamples,
};

Var pool_windows(Builder& b, Var x, const Attributes& a) {
  Attributes attributes = window_attributes(a);
  attributes.set("value", -std::numeric_limits<double>::infinity());
  return b.apply(kWindow, {x}, attributes);
}

inline constexpr AttributeSpec kMaxPoolAttributes[] = {
    AttributeSpec::of("kernel", AttributeType::integers), AttributeSpec::of("strides", AttributeType::integers),
    AttributeSpec::of("low", AttributeType::integers), AttributeSpec::of("high", AttributeType::integers),
    AttributeSpec::of("dilations", AttributeType::integers)};
constexpr OpDef kMaxPool{
    .name = "max_pool",
    .summary = "maximum of each window over the last axes; the first of equals takes the gradient",
    .kind = Kind::composite,
    .operands = 1,
    .attributes = kMaxPoolAttributes,
    .precision = Precision::promoted,
    .infer =
        [](const InferContext& c) {
          TensorType type = c.operand(0);
          const std::size_t spatial = c.attributes.integers("kernel").size();
          c.require(spatial <= type.shape.size(), "windows over ", spatial, " axes of ", shown(type));
          const std::size_t first = type.shape.size() - spatial;
          const Shape positions = window_positions(c, std::span(type.shape).subspan(first));
          std::copy(positions.begin(), positions.end(), type.shape.begin() + static_cast<std::ptrdiff_t>(first));
          return std::vector{type};
        },
    .expand =
        [](ExpandContext& e) {
          Var windows = pool_windows(e.builder(), e.operand(0), e.attributes());
          return std::vector{e.builder().max(windows, last_axes(windows.rank(), e.attributes().integers("kernel").size())).value};
        },
    .gradient =
        [](GradientContext& g) {
          Builder& b = g.builder();
          const Integers& kernel = g.attributes().integers("kernel");
          Var windows = pool_windows(b, g.operand(0), g.attributes());
          const Integers offsets = last_axes(windows.rank(), kernel.size());
          const DType position = element_count(kernel) <= 255 ? DType::u8 : DType::i32;
          Var winner = b.cast(b.apply(kArgMax, {windows}, {{"axes", offsets}}), position);
          Shape flat = winner.shape();
          flat.push_back(element_count(kernel));
          Integers mapped(flat.size() - 1);
          for (std::size_t i = 0; i < mapped.size(); ++i) mapped[i] = static_cast<std::int64_t>(i);
          Var number = b.iota({position, flat}, static_cast<std::int64_t>(flat.size()) - 1);
          Var dy = b.broadcast(g.dy(), flat, mapped);
          Var spread = b.reshape(choose(number == b.broadcast(winner, flat, mapped), dy, 0), windows.shape());
          Attributes attributes = window_attributes(g.attributes());
          const Shape& shape = g.operand(0).shape();
          attributes.set("sizes", Integers(shape.end() - static_cast<std::ptrdiff_t>(kernel.size()), shape.end()));
          g.add(0, b.apply(kWindowSum, {spread}, attributes));
        },
    .samples = kMaxPoolSamples,
};

inline constexpr const OpDef* kWindowOps[] = {&kWindow, &kWindowSum, &kMaxPool};

}  // namespace gcomp::ir::ops
