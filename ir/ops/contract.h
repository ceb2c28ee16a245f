// Contractions: multiply and sum. Library calls match these; their loop nests are the generated fallback and the reference.
#pragma once

#include "ir/ops/algebra.h"
#include "ir/ops/pointwise.h"
#include "ir/ops/shown.h"
#include "ir/ops/structure.h"
#include "ir/ops/table.h"
#include "ir/ops/window.h"

namespace gcomp::ir::ops {

inline constexpr AttributeSpec kMatmulAttributes[] = {
    AttributeSpec::optional("transpose_a", AttributeType::flag), AttributeSpec::optional("transpose_b", AttributeType::flag),
    AttributeSpec::optional(kOperandViews, AttributeType::views), AttributeSpec::optional(kResultViews, AttributeType::views)};
inline constexpr Sample kMatmulSamples[] = {{"f64[2,3] f64[3,4]"},
                                            {"f64[2,3,2] f64[2,3,4]", "{transpose_a=true}"},
                                            {"f64[2,3] f64[4,3]", "{transpose_b=true}"},
                                            {"f64[3,2] f64[4,3]", "{transpose_a=true, transpose_b=true}"},
                                            {"f64[6,10] f64[3,4,2]",  // heads beside others; weights shared by the batch
                                             "{operand_views=[(2,2,3,4):(30,4,10,1)+2, (2,2,4,2):(0,8,2,1)+2], "
                                             "result_views=[(2,2,3,2):(12,2,4,1)]}"}};

constexpr OpDef kMatmul{
    .name = "matmul",
    .summary = "[batch..., m, k] times [batch..., k, n]; equal batch dimensions; either operand may be stored transposed",
    .kind = Kind::contract,
    .operands = 2,
    .matrices = {.operands = 2, .results = 1},
    .attributes = kMatmulAttributes,
    .precision = Precision::low,
    .rules = kMatmulRules,
    .infer =
        [](const InferContext& c) {
          const TensorType &a = c.operand(0), &b = c.operand(1);
          c.require(a.rank() >= 2 && a.rank() == b.rank() && a.dtype == b.dtype, "lhs is ", shown(a), ", rhs is ", shown(b));
          const std::size_t r = a.shape.size();
          const bool ta = c.attributes.flag("transpose_a"), tb = c.attributes.flag("transpose_b");
          c.require(std::equal(a.shape.begin(), a.shape.end() - 2, b.shape.begin()), "batch dimensions differ: lhs is ", shown(a),
                    ", rhs is ", shown(b));
          c.require(a.shape[ta ? r - 2 : r - 1] == b.shape[tb ? r - 1 : r - 2], "inner dimensions differ: lhs is ", shown(a),
                    ", rhs is ", shown(b));
          TensorType type = a;
          type.shape[r - 2] = a.shape[ta ? r - 1 : r - 2];
          type.shape[r - 1] = b.shape[tb ? r - 2 : r - 1];
          return std::vector{type};
        },
    .loops =
        [](const LoopContext& c) {
          const bool ta = c.attributes.flag("transpose_a"), tb = c.attributes.flag("transpose_b");
          const std::size_t r = c.operands[0].shape.size();
          return reduce_nest(c.results[0], {c.operands[0].shape[ta ? r - 2 : r - 1]}, kReduceSum,
                             [&](const Indices& out, const Indices& k) {
                               Indices a = out, b = out;
                               a[r - 1] = k[0];
                               b[r - 2] = k[0];
                               if (ta) std::swap(a[r - 1], a[r - 2]);
                               if (tb) std::swap(b[r - 1], b[r - 2]);
                               const DType dtype = c.operands[0].dtype;
                               return ir::call(compute_type(dtype), kMul, {read(dtype, 0, a), read(dtype, 1, b)});
                             });
        },
    .boxed =
        [](const BoxContext& c) {
          const bool ta = c.attributes.flag("transpose_a"), tb = c.attributes.flag("transpose_b");
          const std::size_t row = c.box.size() - 2, column = row + 1;
          const std::int64_t depth = c.operands[0].shape[ta ? row : column];
          Box a = c.box, b = c.box;
          a[column] = b[row] = {0, depth, 1};
          if (ta) std::swap(a[row], a[column]);
          if (tb) std::swap(b[row], b[column]);
          return std::optional(BoxedNode{{a, b}, {}});
        },
    .gradient =
        [](GradientContext& g) {
          Builder& m = g.builder();
          const bool ta = g.attributes().flag("transpose_a"), tb = g.attributes().flag("transpose_b");
          Var a = g.operand(0), b = g.operand(1), dy = g.dy();
          if (g.wants(0)) g.add(0, ta ? m.matmul(b, dy, tb, true) : m.matmul(dy, b, false, !tb));
          if (g.wants(1)) g.add(1, tb ? m.matmul(dy, a, true, ta) : m.matmul(a, dy, !ta, false));
        },
    .samples = kMatmulSamples,
};

inline constexpr AttributeSpec kConvolutionAttributes[] = {
    AttributeSpec::of("strides", AttributeType::integers),        AttributeSpec::of("low", AttributeType::integers),
    AttributeSpec::of("high", AttributeType::integers),           AttributeSpec::of("dilations", AttributeType::integers),
    AttributeSpec::optional("groups", AttributeType::integer, 1), AttributeSpec::optional("channels_last", AttributeType::flag)};
inline constexpr AttributeSpec kConvolutionGradientAttributes[] = {
    AttributeSpec::of("strides", AttributeType::integers),        AttributeSpec::of("low", AttributeType::integers),
    AttributeSpec::of("high", AttributeType::integers),           AttributeSpec::of("dilations", AttributeType::integers),
    AttributeSpec::optional("groups", AttributeType::integer, 1), AttributeSpec::optional("channels_last", AttributeType::flag),
    AttributeSpec::of("sizes", AttributeType::integers)};

/// Splits [n, c, spatial...] or, channels last, [n, spatial..., c].
struct ImageShape {
  std::int64_t batch = 0, channels = 0;
  Shape spatial;

  static ImageShape of(const Shape& shape, bool channels_last) {
    if (channels_last) return {shape.front(), shape.back(), Shape(shape.begin() + 1, shape.end() - 1)};
    return {shape[0], shape[1], Shape(shape.begin() + 2, shape.end())};
  }
  Shape join(bool channels_last) const {
    Shape shape{batch};
    if (!channels_last) shape.push_back(channels);
    shape.insert(shape.end(), spatial.begin(), spatial.end());
    if (channels_last) shape.push_back(channels);
    return shape;
  }
};
inline Indices image_index(const Index& n, const Index& c, const Indices& spatial, bool channels_last) {
  Indices index{n};
  if (!channels_last) index.push_back(c);
  index.insert(index.end(), spatial.begin(), spatial.end());
  if (channels_last) index.push_back(c);
  return index;
}

/// Checks input x [n, c, ...], weight w [o, c/groups, kernel...] and gives the output's image shape.
inline ImageShape convolution_output(const InferContext& c, const ImageShape& x, const Shape& w) {
  const std::int64_t groups = c.attributes.integer("groups");
  c.require(w.size() == x.spatial.size() + 2, "weight of rank ", w.size(), " for ", x.spatial.size(), " spatial axes");
  c.require(groups > 0 && x.channels == w[1] * groups && w[0] % groups == 0, x.channels, " input channels in ", groups,
            " groups do not fit weight [", shown(w), "]");
  Attributes a = c.attributes;
  a.set("kernel", Integers(w.begin() + 2, w.end()));
  return {x.batch, w[0], window_positions(InferContext{c.op, c.operands, a}, x.spatial)};
}

inline constexpr Sample kConvolutionSamples[] = {
    {"f64[2,4,5,4] f64[6,2,3,2]", "{strides=[2,1], low=[1,0], high=[1,1], dilations=[1,2], groups=2}"},
    {"f64[1,5,5,2] f64[3,2,3,3]", "{strides=[1,1], low=[1,1], high=[1,1], dilations=[1,1], channels_last=true}"},
    {"f64[2,2,6] f64[2,2,3]", "{strides=[1], low=[0], high=[0], dilations=[1]}"}};
inline constexpr Sample kConvolutionInputSamples[] = {
    {"f64[2,6,3,3] f64[6,2,3,2]", "{strides=[2,1], low=[1,0], high=[1,1], dilations=[1,2], groups=2, sizes=[5,4]}"}};
inline constexpr Sample kConvolutionWeightSamples[] = {
    {"f64[2,4,5,4] f64[2,6,3,3]", "{strides=[2,1], low=[1,0], high=[1,1], dilations=[1,2], groups=2, sizes=[3,2]}"}};

inline Attributes convolution_attributes(const Attributes& a) {
  return {{"strides", a.integers("strides")},     {"low", a.integers("low")},      {"high", a.integers("high")},
          {"dilations", a.integers("dilations")}, {"groups", a.integer("groups")}, {"channels_last", a.flag("channels_last")}};
}
inline Attributes with_sizes(Attributes a, Shape sizes) {
  a.set("sizes", std::move(sizes));
  return a;
}
inline Shape kernel_of(const Shape& weight) { return Shape(weight.begin() + 2, weight.end()); }

constexpr OpDef kConvolution{
    .name = "convolution",
    .summary = "image [n, c, ...] with weight [o, c/groups, kernel...]; channels_last: [n, ..., c]",
    .kind = Kind::contract,
    .operands = 2,
    .attributes = kConvolutionAttributes,
    .precision = Precision::low,
    .layouts = {{Layout::image}, Layout::image},
    .infer =
        [](const InferContext& c) {
          c.require(c.operand(0).rank() >= 3 && c.operand(0).dtype == c.operand(1).dtype, "input is ", shown(c.operand(0)),
                    ", weight is ", shown(c.operand(1)));
          const bool last = c.attributes.flag("channels_last");
          return std::vector{TensorType{
              c.operand(0).dtype, convolution_output(c, ImageShape::of(c.operand(0).shape, last), c.operand(1).shape).join(last)}};
        },
    .loops =
        [](const LoopContext& c) {
          const bool last = c.attributes.flag("channels_last");
          const ImageShape x = ImageShape::of(c.operands[0].shape, last);
          const Shape& w = c.operands[1].shape;
          Shape over{w[1]};
          over.insert(over.end(), w.begin() + 2, w.end());
          return reduce_nest(c.results[0], over, kReduceSum, [&](const Indices& out, const Indices& k) {
            const std::size_t channel_at = last ? out.size() - 1 : 1, first = last ? 1 : 2;
            const Index group = out[channel_at].quotient(w[0] / c.attributes.integer("groups"));
            std::vector<Condition> inside;
            Indices spatial, weight{out[channel_at], k[0]};
            for (std::size_t i = 0; i < x.spatial.size(); ++i)
              spatial.push_back(window_input(c.attributes, i, out[first + i], k[1 + i], x.spatial[i], inside));
            weight.insert(weight.end(), k.begin() + 1, k.end());
            const DType dtype = c.operands[0].dtype, wide = compute_type(dtype);
            return guard(
                inside,
                ir::call(wide, kMul,
                         {read(dtype, 0, image_index(out[0], group * w[1] + k[0], spatial, last)), read(dtype, 1, weight)}),
                literal(wide, 0));
          });
        },
    .gradient =
        [](GradientContext& g) {
          const bool last = g.attributes().flag("channels_last");
          const Attributes a = convolution_attributes(g.attributes());
          if (g.wants(0))
            g.add(0, g.builder().apply(kConvolutionInputGradient, {g.dy(), g.operand(1)},
                                       with_sizes(a, ImageShape::of(g.operand(0).shape(), last).spatial)));
          if (g.wants(1))
            g.add(1, g.builder().apply(kConvolutionWeightGradient, {g.operand(0), g.dy()},
                                       with_sizes(a, kernel_of(g.operand(1).shape()))));
        },
    .samples = kConvolutionSamples,
};

constexpr OpDef kConvolutionInputGradient{
    .name = "convolution_input_gradient",
    .summary = "transposed convolution: output gradient [n, o, ...] and weight to input [n, c, sizes...]",
    .kind = Kind::contract,
    .operands = 2,
    .attributes = kConvolutionGradientAttributes,
    .precision = Precision::low,
    .layouts = {{Layout::image}, Layout::image},
    .infer =
        [](const InferContext& c) {
          c.require(
              c.operand(0).rank() >= 3 && c.operand(1).rank() == c.operand(0).rank() && c.operand(0).dtype == c.operand(1).dtype,
              "gradient is ", shown(c.operand(0)), ", weight is ", shown(c.operand(1)));
          const bool last = c.attributes.flag("channels_last");
          const ImageShape dy = ImageShape::of(c.operand(0).shape, last),
                           x{dy.batch, c.operand(1).shape[1] * c.attributes.integer("groups"), c.attributes.integers("sizes")};
          const ImageShape expected = convolution_output(c, x, c.operand(1).shape);
          c.require(expected.join(last) == c.operand(0).shape, "gradient is ", shown(c.operand(0)), ", expected [",
                    shown(expected.join(last)), "]");
          return std::vector{TensorType{c.operand(0).dtype, x.join(last)}};
        },
    .loops =
        [](const LoopContext& c) {
          const bool last = c.attributes.flag("channels_last");
          const ImageShape dy = ImageShape::of(c.operands[0].shape, last);
          const Shape& w = c.operands[1].shape;
          const std::int64_t per_group = w[0] / c.attributes.integer("groups");
          Shape over{per_group};
          over.insert(over.end(), w.begin() + 2, w.end());
          return reduce_nest(c.results[0], over, kReduceSum, [&](const Indices& out, const Indices& k) {
            const std::size_t channel_at = last ? out.size() - 1 : 1, first = last ? 1 : 2;
            const Index o = out[channel_at].quotient(w[1]) * per_group + k[0];
            std::vector<Condition> inside;
            Indices spatial, weight{o, out[channel_at].remainder(w[1])};
            for (std::size_t i = 0; i < dy.spatial.size(); ++i)
              spatial.push_back(window_position(c.attributes, i, out[first + i], k[1 + i], dy.spatial[i], inside));
            weight.insert(weight.end(), k.begin() + 1, k.end());
            const DType dtype = c.operands[0].dtype, wide = compute_type(dtype);
            return guard(inside,
                         ir::call(wide, kMul, {read(dtype, 0, image_index(out[0], o, spatial, last)), read(dtype, 1, weight)}),
                         literal(wide, 0));
          });
        },
    .gradient =
        [](GradientContext& g) {
          const Attributes a = convolution_attributes(g.attributes());
          if (g.wants(0)) g.add(0, g.builder().apply(kConvolution, {g.dy(), g.operand(1)}, a));
          if (g.wants(1))
            g.add(1, g.builder().apply(kConvolutionWeightGradient, {g.dy(), g.operand(0)},
                                       with_sizes(a, kernel_of(g.operand(1).shape()))));
        },
    .samples = kConvolutionInputSamples,
};

constexpr OpDef kConvolutionWeightGradient{
    .name = "convolution_weight_gradient",
    .summary = "input and output gradient to weight [o, c/groups, sizes...]",
    .kind = Kind::contract,
    .operands = 2,
    .attributes = kConvolutionGradientAttributes,
    .precision = Precision::low,
    .layouts = {{Layout::image, Layout::image}, Layout::fixed},
    .infer =
        [](const InferContext& c) {
          c.require(
              c.operand(0).rank() >= 3 && c.operand(1).rank() == c.operand(0).rank() && c.operand(0).dtype == c.operand(1).dtype,
              "input is ", shown(c.operand(0)), ", gradient is ", shown(c.operand(1)));
          const bool last = c.attributes.flag("channels_last");
          const ImageShape x = ImageShape::of(c.operand(0).shape, last), dy = ImageShape::of(c.operand(1).shape, last);
          Shape w{dy.channels, x.channels / c.attributes.integer("groups")};
          w.insert(w.end(), c.attributes.integers("sizes").begin(), c.attributes.integers("sizes").end());
          const ImageShape expected = convolution_output(c, x, w);
          c.require(expected.join(last) == c.operand(1).shape, "gradient is ", shown(c.operand(1)), ", expected [",
                    shown(expected.join(last)), "]");
          return std::vector{TensorType{c.operand(0).dtype, w}};
        },
    .loops =
        [](const LoopContext& c) {
          const bool last = c.attributes.flag("channels_last");
          const ImageShape x = ImageShape::of(c.operands[0].shape, last), dy = ImageShape::of(c.operands[1].shape, last);
          const Shape& w = c.results[0].shape;
          Shape over{x.batch};
          over.insert(over.end(), dy.spatial.begin(), dy.spatial.end());
          return reduce_nest(c.results[0], over, kReduceSum, [&](const Indices& out, const Indices& k) {
            const Index group = out[0].quotient(w[0] / c.attributes.integer("groups"));
            std::vector<Condition> inside;
            Indices spatial;
            for (std::size_t i = 0; i < x.spatial.size(); ++i)
              spatial.push_back(window_input(c.attributes, i, k[1 + i], out[2 + i], x.spatial[i], inside));
            const DType dtype = c.operands[0].dtype, wide = compute_type(dtype);
            return guard(inside,
                         ir::call(wide, kMul,
                                  {read(dtype, 0, image_index(k[0], group * w[1] + out[1], spatial, last)),
                                   read(dtype, 1, image_index(k[0], out[0], Indices(k.begin() + 1, k.end()), last))}),
                         literal(wide, 0));
          });
        },
    .gradient =
        [](GradientContext& g) {
          const bool last = g.attributes().flag("channels_last");
          const Attributes a = convolution_attributes(g.attributes());
          if (g.wants(0))
            g.add(0, g.builder().apply(kConvolutionInputGradient, {g.operand(1), g.dy()},
                                       with_sizes(a, ImageShape::of(g.operand(0).shape(), last).spatial)));
          if (g.wants(1)) g.add(1, g.builder().apply(kConvolution, {g.operand(0), g.dy()}, a));
        },
    .samples = kConvolutionWeightSamples,
};

inline constexpr const OpDef* kContractOps[] = {&kMatmul, &kConvolution, &kConvolutionInputGradient, &kConvolutionWeightGradient};

}  // namespace gcomp::ir::ops
