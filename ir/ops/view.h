// Views: each element of the result is one element of an operand, or a fill value. Fusion reads through them.
#pragma once

#include "ir/builder.h"
#include "ir/nest/loops.h"
#include "ir/op.h"
#include "ir/ops/algebra.h"
#include "ir/ops/shown.h"
#include "ir/ops/table.h"

namespace gcomp::ir::ops {

using Integers = std::vector<std::int64_t>;
using Indices = std::vector<Index>;
inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Of an op that goes along one axis of its first operand, or along all from there on, and reads the others whole.
inline std::optional<BoxedNode> boxed_besides(const BoxContext& c, std::size_t axis, std::size_t count) {
  if (!is_whole(c.box, c.result.shape, axis, count)) return std::nullopt;
  BoxedNode boxed{std::vector<std::optional<Box>>(c.operands.size()), {}};
  boxed.operands[0] = c.box;
  return boxed;
}
inline std::optional<BoxedNode> boxed_along_axis(const BoxContext& c) {
  return boxed_besides(c, at(c.attributes.integer("axis")), 1);
}
/// Of an op whose attribute `shape` is the result's.
inline Attributes with_shape_of_box(const BoxContext& c) {
  Attributes attributes = c.attributes;
  attributes.set("shape", shape_of_box(c.box));
  return attributes;
}

inline constexpr AttributeSpec kBroadcastAttributes[] = {AttributeSpec::of("axes", AttributeType::integers),
                                                         AttributeSpec::of("shape", AttributeType::integers)};
inline constexpr Sample kBroadcastSamples[] = {
    {"f64[3]", "{axes=[1], shape=[2,3]}"}, {"f64[2,1,4]", "{axes=[0,1,2], shape=[2,3,4]}"}, {"f64[]", "{axes=[], shape=[2,2]}"}};
constexpr OpDef kBroadcast{
    .name = "broadcast",
    .summary = "dimension d of the operand becomes dimension axes[d] of `shape`; size 1 repeats",
    .kind = Kind::view,
    .operands = 1,
    .attributes = kBroadcastAttributes,
    .precision = Precision::promoted,
    .rules = kBroadcastRules,
    .infer =
        [](const InferContext& c) {
          const Integers &axes = c.attributes.integers("axes"), &shape = c.attributes.integers("shape");
          const TensorType& x = c.operand(0);
          c.require(axes.size() == x.shape.size(), axes.size(), " axes for an operand of rank ", x.rank());
          for (std::size_t d = 0; d < axes.size(); ++d) {
            c.require(axes[d] >= 0 && axes[d] < static_cast<std::int64_t>(shape.size()) && (d == 0 || axes[d] > axes[d - 1]),
                      "axes must ascend within the result's rank");
            c.require(x.shape[d] == 1 || x.shape[d] == shape[at(axes[d])], "dimension ", d, " of ", shown(x),
                      " does not repeat to [", shown(shape), "]");
          }
          return std::vector{TensorType{x.dtype, shape}};
        },
    .loops =
        [](const LoopContext& c) {
          return map_nest(c.results[0], [&](const Indices& out) {
            Indices in;
            const Integers& axes = c.attributes.integers("axes");
            for (std::size_t d = 0; d < axes.size(); ++d) in.push_back(c.operands[0].shape[d] == 1 ? Index(0) : out[at(axes[d])]);
            return read(c.operands[0].dtype, 0, in);
          });
        },
    .boxed =
        [](const BoxContext& c) {
          const Integers& axes = c.attributes.integers("axes");
          Box x = whole_box(c.operands[0].shape);
          for (std::size_t d = 0; d < axes.size(); ++d)
            if (x[d].size != 1) x[d] = c.box[at(axes[d])];
          return std::optional(BoxedNode{{x}, with_shape_of_box(c)});
        },
    .gradient =
        [](GradientContext& g) {
          const Integers& axes = g.attributes().integers("axes");
          Var x = g.operand(0);
          Integers summed;
          for (std::int64_t d = 0, next = 0; d < g.dy().rank(); ++d) {
            const bool mapped = next < static_cast<std::int64_t>(axes.size()) && axes[at(next)] == d;
            if (!mapped || (x.dim(next) == 1 && g.dy().dim(d) != 1)) summed.push_back(d);
            if (mapped) ++next;
          }
          g.add(0, g.builder().reshape(g.builder().sum(g.dy(), summed), x.shape()));
        },
    .samples = kBroadcastSamples,
};

inline constexpr AttributeSpec kReshapeAttributes[] = {AttributeSpec::of("shape", AttributeType::integers)};
inline constexpr Sample kReshapeSamples[] = {
    {"f64[2,6]", "{shape=[3,4]}"}, {"f64[4]", "{shape=[2,1,2]}"}, {"f64[1,1]", "{shape=[]}"}};
constexpr OpDef kReshape{
    .name = "reshape",
    .summary = "the same elements in row-major order under another shape",
    .kind = Kind::view,
    .operands = 1,
    .attributes = kReshapeAttributes,
    .precision = Precision::promoted,
    .alias = true,
    .rules = kReshapeRules,
    .infer =
        [](const InferContext& c) {
          const Integers& shape = c.attributes.integers("shape");
          c.require(element_count(shape) == c.operand(0).elements(), shown(c.operand(0)), " has ", c.operand(0).elements(),
                    " elements, [", shown(shape), "] has ", element_count(shape));
          return std::vector{TensorType{c.operand(0).dtype, shape}};
        },
    .loops =
        [](const LoopContext& c) {
          return map_nest(c.results[0], [&](const Indices& out) {
            return read(c.operands[0].dtype, 0, split_index(linear_index(out, c.results[0].shape), c.operands[0].shape));
          });
        },
    .boxed = [](const BoxContext& c) -> std::optional<BoxedNode> {
      const std::optional<Box> x = box_before_reshape(c.operands[0].shape, c.result.shape, c.box);
      if (!x) return std::nullopt;
      return BoxedNode{{x}, with_shape_of_box(c)};
    },
    .gradient = [](GradientContext& g) { g.add(0, g.builder().reshape(g.dy(), g.operand(0).shape())); },
    .samples = kReshapeSamples,
};

inline constexpr AttributeSpec kTransposeAttributes[] = {AttributeSpec::of("permutation", AttributeType::integers)};
inline constexpr Sample kTransposeSamples[] = {{"f64[2,3]", "{permutation=[1,0]}"}, {"f64[2,3,4]", "{permutation=[2,0,1]}"}};
constexpr OpDef kTranspose{
    .name = "transpose",
    .summary = "dimension i of the result is dimension permutation[i] of the operand",
    .kind = Kind::view,
    .operands = 1,
    .attributes = kTransposeAttributes,
    .precision = Precision::promoted,
    .rules = kTransposeRules,
    .infer =
        [](const InferContext& c) {
          const Integers& permutation = c.attributes.integers("permutation");
          Integers sorted = permutation;
          std::sort(sorted.begin(), sorted.end());
          Shape shape;
          c.require(static_cast<std::int64_t>(permutation.size()) == c.operand(0).rank(), "permutation of ", permutation.size(),
                    " axes for ", shown(c.operand(0)));
          for (std::size_t i = 0; i < permutation.size(); ++i) {
            c.require(sorted[i] == static_cast<std::int64_t>(i), "[", shown(permutation), "] is no permutation");
            shape.push_back(c.operand(0).shape[at(permutation[i])]);
          }
          return std::vector{TensorType{c.operand(0).dtype, shape}};
        },
    .loops =
        [](const LoopContext& c) {
          return map_nest(c.results[0], [&](const Indices& out) {
            const Integers& permutation = c.attributes.integers("permutation");
            Indices in(out.size());
            for (std::size_t i = 0; i < out.size(); ++i) in[at(permutation[i])] = out[i];
            return read(c.operands[0].dtype, 0, in);
          });
        },
    .boxed =
        [](const BoxContext& c) {
          const Integers& permutation = c.attributes.integers("permutation");
          Box x(c.box.size());
          for (std::size_t i = 0; i < x.size(); ++i) x[at(permutation[i])] = c.box[i];
          return std::optional(BoxedNode{{x}, {}});
        },
    .gradient =
        [](GradientContext& g) {
          const Integers& permutation = g.attributes().integers("permutation");
          Integers inverse(permutation.size());
          for (std::size_t i = 0; i < permutation.size(); ++i) inverse[at(permutation[i])] = static_cast<std::int64_t>(i);
          g.add(0, g.builder().transpose(g.dy(), inverse));
        },
    .samples = kTransposeSamples,
};

inline constexpr AttributeSpec kSliceAttributes[] = {AttributeSpec::of("starts", AttributeType::integers),
                                                     AttributeSpec::of("sizes", AttributeType::integers),
                                                     AttributeSpec::of("steps", AttributeType::integers)};
inline constexpr Sample kSliceSamples[] = {{"f64[4,5]", "{starts=[1,0], sizes=[2,3], steps=[1,2]}"},
                                           {"f64[6]", "{starts=[5], sizes=[3], steps=[-2]}"}};
inline constexpr AttributeSpec kUnsliceAttributes[] = {AttributeSpec::of("starts", AttributeType::integers),
                                                       AttributeSpec::of("shape", AttributeType::integers),
                                                       AttributeSpec::of("steps", AttributeType::integers)};
inline constexpr Sample kUnsliceSamples[] = {{"f64[2,3]", "{starts=[1,0], shape=[4,5], steps=[1,2]}"},
                                             {"f64[3]", "{starts=[5], shape=[6], steps=[-2]}"}};

constexpr OpDef kSlice{
    .name = "slice",
    .summary = "element start + i * step along each axis",
    .kind = Kind::view,
    .operands = 1,
    .attributes = kSliceAttributes,
    .precision = Precision::promoted,
    .rules = kSliceRules,
    .infer =
        [](const InferContext& c) {
          const Integers &starts = c.attributes.integers("starts"), &sizes = c.attributes.integers("sizes"),
                         &steps = c.attributes.integers("steps");
          const TensorType& x = c.operand(0);
          c.require(starts.size() == x.shape.size() && sizes.size() == x.shape.size() && steps.size() == x.shape.size(),
                    "starts, sizes and steps need one entry for each axis of ", shown(x));
          for (std::size_t i = 0; i < sizes.size(); ++i) {
            const std::int64_t last = starts[i] + (sizes[i] - 1) * steps[i];
            c.require(
                sizes[i] >= 0 && (sizes[i] == 0 || (starts[i] >= 0 && starts[i] < x.shape[i] && last >= 0 && last < x.shape[i])),
                "axis ", i, ": ", sizes[i], " elements from ", starts[i], " by ", steps[i], " leave ", shown(x));
          }
          return std::vector{TensorType{x.dtype, sizes}};
        },
    .loops =
        [](const LoopContext& c) {
          return map_nest(c.results[0], [&](const Indices& out) {
            Indices in;
            for (std::size_t i = 0; i < out.size(); ++i)
              in.push_back(out[i] * c.attributes.integers("steps")[i] + Index(c.attributes.integers("starts")[i]));
            return read(c.operands[0].dtype, 0, in);
          });
        },
    .gradient =
        [](GradientContext& g) {
          g.add(0, g.builder().apply(kUnslice, {g.dy()},
                                     {{"starts", g.attributes().integers("starts")},
                                      {"steps", g.attributes().integers("steps")},
                                      {"shape", g.operand(0).shape()}}));
        },
    .samples = kSliceSamples,
};
constexpr OpDef kUnslice{
    .name = "unslice",
    .summary = "puts element i at start + i * step of `shape`; zeros elsewhere",
    .kind = Kind::view,
    .operands = 1,
    .attributes = kUnsliceAttributes,
    .precision = Precision::promoted,
    .fills = true,
    .infer =
        [](const InferContext& c) {
          const Integers &starts = c.attributes.integers("starts"), &shape = c.attributes.integers("shape"),
                         &steps = c.attributes.integers("steps");
          const TensorType& x = c.operand(0);
          c.require(starts.size() == x.shape.size() && shape.size() == x.shape.size() && steps.size() == x.shape.size(),
                    "starts, shape and steps need one entry for each axis of ", shown(x));
          for (std::size_t i = 0; i < shape.size(); ++i) {
            std::int64_t last = 0;
            const bool fits =
                !__builtin_mul_overflow(x.shape[i] - 1, steps[i], &last) && !__builtin_add_overflow(starts[i], last, &last);
            c.require(steps[i] != 0 &&
                          (x.shape[i] == 0 || (fits && starts[i] >= 0 && starts[i] < shape[i] && last >= 0 && last < shape[i])),
                      "axis ", i, " of ", shown(x), " leaves [", shown(shape), "]");
          }
          return std::vector{TensorType{x.dtype, shape}};
        },
    .loops =
        [](const LoopContext& c) {
          return map_nest(c.results[0], [&](const Indices& out) {
            Indices in;
            std::vector<Condition> inside;
            for (std::size_t i = 0; i < out.size(); ++i) {
              const std::int64_t start = c.attributes.integers("starts")[i], step = c.attributes.integers("steps")[i],
                                 size = c.operands[0].shape[i];
              const Index offset = step > 0 ? out[i] - Index(start) : Index(start) - out[i];
              const std::int64_t stride = step > 0 ? step : -step;
              inside.push_back({offset, 0, (size - 1) * stride + 1});
              inside.push_back({offset.remainder(stride), 0, 1});
              in.push_back(offset.quotient(stride));
            }
            return guard(inside, read(c.operands[0].dtype, 0, in), literal(c.operands[0].dtype, 0));
          });
        },
    .gradient =
        [](GradientContext& g) {
          g.add(0, g.builder().slice(g.dy(), g.attributes().integers("starts"), g.operand(0).shape(),
                                     g.attributes().integers("steps")));
        },
    .samples = kUnsliceSamples,
};

inline constexpr AttributeSpec kPadAttributes[] = {AttributeSpec::of("low", AttributeType::integers),
                                                   AttributeSpec::of("high", AttributeType::integers),
                                                   AttributeSpec::optional("value", AttributeType::real)};
inline constexpr Sample kPadSamples[] = {{"f64[2,3]", "{low=[1,0], high=[0,2], value=0.5}"}, {"f64[5]", "{low=[-1], high=[2]}"}};
constexpr OpDef kPad{
    .name = "pad",
    .summary = "adds `low` and `high` elements of `value` around each axis; negative counts crop",
    .kind = Kind::view,
    .operands = 1,
    .attributes = kPadAttributes,
    .precision = Precision::promoted,
    .reads = Reads::inside,
    .fills = true,
    .infer =
        [](const InferContext& c) {
          const Integers &low = c.attributes.integers("low"), &high = c.attributes.integers("high");
          TensorType type = c.operand(0);
          c.require(low.size() == type.shape.size() && high.size() == type.shape.size(),
                    "low and high need one entry for each axis of ", shown(type));
          for (std::size_t i = 0; i < low.size(); ++i) {
            const bool fits = !__builtin_add_overflow(type.shape[i], low[i], &type.shape[i]) &&
                              !__builtin_add_overflow(type.shape[i], high[i], &type.shape[i]);
            c.require(fits, "axis ", i, " of ", shown(c.operand(0)), " has no size with ", low[i], " and ", high[i], " more");
            c.require(type.shape[i] >= 0, "axis ", i, " of ", shown(c.operand(0)), " is cropped below zero");
          }
          return std::vector{type};
        },
    .loops =
        [](const LoopContext& c) {
          return map_nest(c.results[0], [&](const Indices& out) {
            Indices in;
            std::vector<Condition> inside;
            for (std::size_t i = 0; i < out.size(); ++i) {
              in.push_back(out[i] - Index(c.attributes.integers("low")[i]));
              inside.push_back({in.back(), 0, c.operands[0].shape[i]});
            }
            return guard(inside, read(c.operands[0].dtype, 0, in), literal(c.operands[0].dtype, c.attributes.real("value")));
          });
        },
    .gradient =
        [](GradientContext& g) {
          Integers low = g.attributes().integers("low"), high = g.attributes().integers("high");
          for (auto& l : low) l = -l;
          for (auto& h : high) h = -h;
          g.add(0, g.builder().pad(g.dy(), low, high, 0));
        },
    .samples = kPadSamples,
};

inline constexpr AttributeSpec kConcatAttributes[] = {AttributeSpec::of("axis", AttributeType::integer)};
inline constexpr Sample kConcatSamples[] = {{"f64[2,3] f64[2,1]", "{axis=1}"}, {"f64[1,2] f64[2,2] f64[3,2]", "{axis=0}"}};
constexpr OpDef kConcat{
    .name = "concat",
    .summary = "operands one after another along an axis",
    .kind = Kind::view,
    .operands = -1,
    .attributes = kConcatAttributes,
    .precision = Precision::promoted,
    .rules = kConcatRules,
    .infer =
        [](const InferContext& c) {
          const std::int64_t axis = c.attributes.integer("axis");
          TensorType type = c.operand(0);
          c.require(axis >= 0 && axis < type.rank(), "axis ", axis, " of ", shown(type));
          for (std::size_t i = 1; i < c.operands.size(); ++i) {
            TensorType part = c.operand(i);
            c.require(part.rank() == type.rank() && part.dtype == type.dtype, "operand ", i, " is ", shown(part), ", the first ",
                      shown(c.operand(0)));
            type.shape[at(axis)] += part.shape[at(axis)];
            part.shape[at(axis)] = type.shape[at(axis)];
            c.require(part == type, "operand ", i, " is ", shown(c.operand(i)), ", the first ", shown(c.operand(0)), "; only axis ",
                      axis, " may differ");
          }
          return std::vector{type};
        },
    .loops =
        [](const LoopContext& c) {
          return map_nest(c.results[0], [&](const Indices& out) {
            const std::size_t axis = at(c.attributes.integer("axis"));
            TermPtr result;
            std::int64_t start = c.results[0].shape[axis];
            for (std::size_t i = c.operands.size(); i-- > 0;) {
              const std::int64_t end = start;
              start -= c.operands[i].shape[axis];
              if (start == end) continue;
              Indices in = out;
              in[axis] = in[axis] - Index(start);
              TermPtr part = read(c.operands[i].dtype, static_cast<int>(i), in);
              result = result ? guard({{out[axis], start, end}}, part, result) : part;
            }
            return result ? result : literal(c.results[0].dtype, 0);
          });
        },
    .gradient =
        [](GradientContext& g) {
          const std::int64_t axis = g.attributes().integer("axis");
          std::int64_t start = 0;
          for (std::size_t i = 0; i < g.node().operands.size(); ++i) {
            const std::int64_t size = g.operand(i).dim(axis);
            if (g.wants(i)) g.add(i, g.builder().slice_axis(g.dy(), axis, start, size));
            start += size;
          }
        },
    .samples = kConcatSamples,
};

inline constexpr const OpDef* kViewOps[] = {&kBroadcast, &kReshape, &kTranspose, &kSlice, &kUnslice, &kPad, &kConcat};

}  // namespace gcomp::ir::ops
