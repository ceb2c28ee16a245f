// Positions computed or looked up, and running combinations along an axis.
#pragma once

#include "ir/ops/pointwise.h"
#include "ir/ops/reduce.h"
#include "ir/ops/shown.h"
#include "ir/ops/table.h"
#include "ir/ops/view.h"

namespace gcomp::ir::ops {

inline constexpr AttributeSpec kIotaAttributes[] = {AttributeSpec::of("dtype", AttributeType::dtype),
                                                    AttributeSpec::of("shape", AttributeType::integers),
                                                    AttributeSpec::of("axis", AttributeType::integer)};
inline constexpr Sample kIotaSamples[] = {{"", "{dtype=i64, shape=[2,3], axis=1}"}};
constexpr OpDef kIota{
    .name = "iota",
    .summary = "the position along `axis`",
    .kind = Kind::index,
    .attributes = kIotaAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          const Integers& shape = c.attributes.integers("shape");
          const std::int64_t axis = c.attributes.integer("axis");
          c.require(axis >= 0 && axis < static_cast<std::int64_t>(shape.size()), "axis ", axis, " of [", shown(shape), "]");
          return std::vector{TensorType{c.attributes.get<DType>("dtype"), shape}};
        },
    .loops =
        [](const LoopContext& c) {
          return map_nest(c.results[0], [&](const Indices& out) {
            return index_value(c.results[0].dtype, out[at(c.attributes.integer("axis"))]);
          });
        },
    .boxed = [](const BoxContext& c) -> std::optional<BoxedNode> {
      const AxisRange& range = c.box[at(c.attributes.integer("axis"))];
      if (range.start != 0 || range.step != 1) return std::nullopt;
      return BoxedNode{{}, with_shape_of_box(c)};
    },
    .no_gradient = "it has no operands",
    .samples = kIotaSamples,
};

/// An element of `indices` as a position in [0, size): negative ones count from the end.
inline Index looked_up(TermPtr value, std::int64_t size) {
  const DType dtype = value->dtype;
  if (is_signed_integer(dtype))
    value = ir::call(dtype, kSelect,
                     {ir::call(DType::boolean, kLess, {value, literal(dtype, 0)}),
                      ir::call(dtype, kAdd, {value, literal(dtype, static_cast<double>(size))}), value});
  return Index::loaded(std::move(value), size);
}

inline constexpr AttributeSpec kGatherAttributes[] = {AttributeSpec::of("axis", AttributeType::integer),
                                                      AttributeSpec::optional("padding_index", AttributeType::integer, -1)};
inline constexpr AttributeSpec kScatterAddAttributes[] = {AttributeSpec::of("axis", AttributeType::integer),
                                                          AttributeSpec::of("size", AttributeType::integer)};
inline constexpr Sample kGatherSamples[] = {
    {"f64[4,3] i64[2,2]", "{axis=0}", 0, 3}, {"f64[2,3] i64[4]", "{axis=1}", 0, 2}, {"f64[5] i64[]", "{axis=0}", 0, 4}};
inline constexpr Sample kScatterAddSamples[] = {{"i64[2,2] f64[2,2,3]", "{axis=0, size=4}", 0, 3},
                                                {"i64[4] f64[2,4]", "{axis=1, size=3}", 0, 2}};

/// The gradient of gather's result, zero where `padding_index` was looked up.
inline Var without_padding(GradientContext& g, std::int64_t axis) {
  const std::int64_t padding = g.attributes().integer("padding_index");
  if (padding < 0) return g.dy();
  Builder& b = g.builder();
  std::vector<std::int64_t> axes;
  for (std::int64_t i = 0; i < g.operand(1).rank(); ++i) axes.push_back(axis + i);
  const Var is_padding = g.operand(1) == b.like(g.operand(1), static_cast<double>(padding));
  return b.select(b.broadcast(is_padding, g.dy().shape(), axes), b.like(g.dy(), 0), g.dy());
}

constexpr OpDef kGather{
    .name = "gather",
    .summary =
        "slices of `data` along `axis` at integer `indices`; negative ones count from the end; out of range is a fault; what "
        "the index `padding_index` takes gives no gradient, as in PyTorch's embedding",
    .kind = Kind::index,
    .operands = 2,
    .attributes = kGatherAttributes,
    .precision = Precision::promoted,
    .looks_up = true,
    .infer =
        [](const InferContext& c) {
          const TensorType &data = c.operand(0), &indices = c.operand(1);
          const std::int64_t axis = c.attributes.integer("axis");
          c.require(axis >= 0 && axis < data.rank(), "axis ", axis, " of ", shown(data));
          c.require(is_integer(indices.dtype), "indices are ", shown(indices), ", wanted integers");
          const std::int64_t padding = c.attributes.integer("padding_index");
          c.require(padding >= -1 && padding < data.shape[at(axis)], "padding_index ", padding, " of ", shown(data), " along axis ",
                    axis);
          Shape shape(data.shape.begin(), data.shape.begin() + axis);
          shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
          shape.insert(shape.end(), data.shape.begin() + axis + 1, data.shape.end());
          return std::vector{TensorType{data.dtype, shape}};
        },
    .loops =
        [](const LoopContext& c) {
          return map_nest(c.results[0], [&](const Indices& out) {
            const auto axis = c.attributes.integer("axis"), rank = c.operands[1].rank();
            Indices in(out.begin(), out.begin() + axis);
            in.push_back(looked_up(read(c.operands[1].dtype, 1, Indices(out.begin() + axis, out.begin() + axis + rank)),
                                   c.operands[0].shape[at(axis)]));
            in.insert(in.end(), out.begin() + axis + rank, out.end());
            return read(c.operands[0].dtype, 0, in);
          });
        },
    .gradient =
        [](GradientContext& g) {
          const std::int64_t axis = g.attributes().integer("axis");
          if (g.wants(0))
            g.add(0, g.builder().apply(kScatterAdd, {g.operand(1), without_padding(g, axis)},
                                       {{"axis", axis}, {"size", g.operand(0).dim(axis)}}));
        },
    .samples = kGatherSamples,
};

constexpr OpDef kScatterAdd{
    .name = "scatter_add",
    .summary =
        "adds slices of `updates` into zeros of `size` along `axis` at `indices`, in row-major order: the transpose of gather",
    .kind = Kind::index,
    .operands = 2,
    .attributes = kScatterAddAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          const TensorType &indices = c.operand(0), &updates = c.operand(1);
          const std::int64_t axis = c.attributes.integer("axis");
          c.require(is_integer(indices.dtype), "indices are ", shown(indices), ", wanted integers");
          c.require(axis >= 0 && axis + indices.rank() <= updates.rank() &&
                        std::equal(indices.shape.begin(), indices.shape.end(), updates.shape.begin() + axis),
                    "updates are ", shown(updates), ", indices ", shown(indices), " at axis ", axis);
          Shape shape(updates.shape.begin(), updates.shape.begin() + axis);
          shape.push_back(c.attributes.integer("size"));
          shape.insert(shape.end(), updates.shape.begin() + axis + indices.rank(), updates.shape.end());
          return std::vector{TensorType{updates.dtype, shape}};
        },
    .loops =
        [](const LoopContext& c) {
          const TensorType &indices = c.operands[0], &updates = c.operands[1];
          const auto axis = c.attributes.integer("axis");
          LoopNest nest = map_nest(updates, [&](const Indices& in) { return read(updates.dtype, 1, in); });
          const Indices in = axes_of_shape(updates.shape);
          Indices out(in.begin(), in.begin() + axis);
          out.push_back(looked_up(read(indices.dtype, 0, Indices(in.begin() + axis, in.begin() + axis + indices.rank())),
                                  c.attributes.integer("size")));
          out.insert(out.end(), in.begin() + axis + indices.rank(), in.end());
          nest.outputs[0] = {0, out, true};
          return nest;
        },
    .gradient =
        [](GradientContext& g) {
          if (g.wants(1)) g.add(1, g.builder().gather(g.dy(), g.operand(0), g.attributes().integer("axis")));
        },
    .samples = kScatterAddSamples,
};

inline constexpr AttributeSpec kScanAttributes[] = {AttributeSpec::of("axis", AttributeType::integer),
                                                    AttributeSpec::optional("exclusive", AttributeType::flag),
                                                    AttributeSpec::optional("reverse", AttributeType::flag)};
inline constexpr Sample kScanSamples[] = {{"f64[2,4]", "{axis=1}"},
                                          {"f64[2,1]", "{axis=1}"},
                                          {"f64[1,3]", "{axis=0, exclusive=true}"},
                                          {"f64[3,2]", "{axis=0, exclusive=true}"},
                                          {"f64[5]", "{axis=0, reverse=true}"}};

inline std::vector<TensorType> infer_scan(const InferContext& c) {
  const std::int64_t axis = c.attributes.integer("axis");
  c.require(axis >= 0 && axis < c.operand(0).rank(), "axis ", axis, " of ", shown(c.operand(0)));
  return {c.operand(0)};
}
inline LoopNest scan_loops(const LoopContext& c, const OpDef& combine) {
  const std::int64_t axis = c.attributes.integer("axis");
  const DType dtype = c.operands[0].dtype;
  // Over one element nothing runs: a map, which stays sound when fusion drops axes of size 1.
  if (c.results[0].shape[static_cast<std::size_t>(axis)] == 1 && c.attributes.flag("exclusive"))
    return map_nest(c.results[0], [&](const Indices&) { return literal(dtype, identity_of(combine.reduction.of, dtype)); });
  LoopNest nest = map_nest(c.results[0], [&](const Indices& in) { return read(dtype, 0, in); });
  if (c.results[0].shape[static_cast<std::size_t>(axis)] == 1) return nest;
  Statement& s = nest.statements[0];
  s.kind = Statement::Kind::scan;
  s.combine = &combine;
  s.over = {static_cast<int>(axis)};
  s.exclusive = c.attributes.flag("exclusive");
  s.reverse = c.attributes.flag("reverse");
  return nest;
}
constexpr OpDef kCumulativeSum{
    .name = "cumulative_sum",
    .summary = "running sum along an axis",
    .kind = Kind::scan,
    .operands = 1,
    .attributes = kScanAttributes,
    .precision = Precision::wide,
    .infer = infer_scan,
    .loops = [](const LoopContext& c) { return scan_loops(c, kReduceSum); },
    .boxed = boxed_along_axis,
    .gradient =
        [](GradientContext& g) {
          g.add(0, g.builder().apply(kCumulativeSum, {g.dy()},
                                     {{"axis", g.attributes().integer("axis")},
                                      {"exclusive", g.attributes().flag("exclusive")},
                                      {"reverse", !g.attributes().flag("reverse")}}));
        },
    .samples = kScanSamples,
};
constexpr OpDef kCumulativeProduct{
    .name = "cumulative_product",
    .summary = "running product along an axis",
    .kind = Kind::scan,
    .operands = 1,
    .attributes = kScanAttributes,
    .precision = Precision::wide,
    .infer = infer_scan,
    .loops = [](const LoopContext& c) { return scan_loops(c, kReduceProduct); },
    .boxed = boxed_along_axis,
    .no_gradient = "no rule yet for running products",
    .samples = kScanSamples,
};

inline constexpr const OpDef* kIndexOps[] = {&kIota, &kGather, &kScatterAdd, &kCumulativeSum, &kCumulativeProduct};

}  // namespace gcomp::ir::ops
