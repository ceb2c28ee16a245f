// Constants, state updates and fused kernels: the ops that give a graph its structure.
#pragma once

#include "ir/matrices.h"
#include "ir/nest/loops.h"
#include "ir/op.h"
#include "ir/ops/shown.h"
#include "ir/ops/table.h"
#include "ir/ops/view.h"

namespace gcomp::ir::ops {

inline constexpr AttributeSpec kConstantAttributes[] = {AttributeSpec::of("value", AttributeType::tensor)};
inline constexpr AttributeSpec kFullAttributes[] = {AttributeSpec::of("dtype", AttributeType::dtype),
                                                    AttributeSpec::of("shape", AttributeType::integers),
                                                    AttributeSpec::of("value", AttributeType::real)};
inline constexpr AttributeSpec kSegmentAttributes[] = {AttributeSpec::of("segments", AttributeType::integer),
                                                       AttributeSpec::optional("alike", AttributeType::flag)};
inline constexpr AttributeSpec kProductAttributes[] = {AttributeSpec::optional("transpose_a", AttributeType::flag),
                                                       AttributeSpec::optional("transpose_b", AttributeType::flag),
                                                       AttributeSpec::optional(kOperandViews, AttributeType::views)};
inline constexpr AttributeSpec kBarrierAttributes[] = {AttributeSpec::optional("of", AttributeType::text, 0, "")};
inline constexpr Sample kBarrierSamples[] = {{"f64[2,3]"}, {"f64[]", "{of=\"w\"}"}};
inline constexpr Sample kFullSamples[] = {{"", "{dtype=f64, shape=[2,3], value=0.5}"}};

constexpr OpDef kConstant{
    .name = "constant",
    .summary = "a tensor given in the graph",
    .kind = Kind::constant,
    .attributes = kConstantAttributes,
    .precision = Precision::wide,
    .infer = [](const InferContext& c) { return std::vector{c.attributes.get<std::shared_ptr<const Tensor>>("value")->type()}; },
    .no_gradient = "it has no operands",
};
constexpr OpDef kFull{
    .name = "full",
    .summary = "every element is one number",
    .kind = Kind::constant,
    .attributes = kFullAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          const auto dtype = c.attributes.get<DType>("dtype");
          const double value = c.attributes.real("value");
          c.require(is_float(dtype) || round_to(dtype, value) == value, "value is ", value, ", wanted ", range_text(dtype));
          return std::vector{TensorType{dtype, c.attributes.integers("shape")}};
        },
    .loops =
        [](const LoopContext& c) {
          return map_nest(c.results[0],
                          [&](const std::vector<Index>&) { return literal(c.results[0].dtype, c.attributes.real("value")); });
        },
    .boxed =
        [](const BoxContext& c) {
          return std::optional(BoxedNode{{}, with_shape_of_box(c)});
        },
    .no_gradient = "it has no operands",
    .samples = kFullSamples,
};
constexpr OpDef kUpdate{
    .name = "update",
    .summary = "writes its second operand to the state that is its first",
    .kind = Kind::update,
    .operands = 2,
    .results = 0,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          c.require(c.operand(0) == c.operand(1), "the state is ", shown(c.operand(0)), ", the value ", shown(c.operand(1)));
          return std::vector<TensorType>();
        },
    .no_gradient = "it writes a state",
};
/// XLA's optimization_barrier. What is between barriers becomes the same kernels whatever is around it, and so gives the same bits,
/// sums included, whose order is up to the kernel that they become part of. Fusion takes barriers out.
constexpr OpDef kBarrier{
    .name = "barrier",
    .summary = "its operand: nothing is fused across it, and those of another `of` are not the same value",
    .kind = Kind::barrier,
    .operands = 1,
    .attributes = kBarrierAttributes,
    .precision = Precision::wide,
    .infer = [](const InferContext& c) { return std::vector{c.operand(0)}; },
    .gradient = [](GradientContext& g) { g.add(0, g.dy()); },
    .samples = kBarrierSamples,
};
constexpr OpDef kKernel{
    .name = "kernel",
    .summary = "a fused region in index notation",
    .kind = Kind::kernel,
    .operands = -1,
    .precision = Precision::wide,
    .no_gradient = "fusion comes after differentiation",
};
/// Operands and results come segment by segment. The nest has one axis; in each segment its extent is the element count of
/// that segment's first result, and operands of that many elements are read as flat arrays. Where segments are alike, the nest is
/// any that a kernel has, over operands and results as they are, whose types are those of the first segment.
constexpr OpDef kMultiKernel{
    .name = "multi_kernel",
    .summary = "one kernel over many groups of tensors: pointwise, each read as a flat array, or any where all are alike",
    .kind = Kind::kernel,
    .operands = -1,
    .attributes = kSegmentAttributes,
    .precision = Precision::wide,
    .no_gradient = "fusion comes after differentiation",
};

/// The law of its nest stands in ir/product.h.
constexpr OpDef kProduct{
    .name = "product",
    .summary = "a matrix product with what is done to each of its elements",
    .kind = Kind::kernel,
    .operands = -1,
    .matrices = {.operands = 2},
    .attributes = kProductAttributes,
    .precision = Precision::wide,
    .no_gradient = "fusion comes after differentiation",
};

inline constexpr const OpDef* kStructureOps[] = {&kConstant, &kFull, &kUpdate, &kBarrier, &kKernel, &kMultiKernel, &kProduct};

}  // namespace gcomp::ir::ops
