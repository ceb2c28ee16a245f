// Random numbers as pure functions of (seed, step, op, sample, element): the same in backward as in forward, on every target, for
// any number of threads or micro-batches. Masks are drawn again where they are needed, not stored.
#pragma once

#include "ir/ops/pointwise.h"
#include "ir/ops/shown.h"
#include "ir/ops/table.h"
#include "ir/ops/view.h"

namespace gcomp::ir::ops {

inline constexpr AttributeSpec kUniformAttributes[] = {AttributeSpec::of("shape", AttributeType::integers),
                                                       AttributeSpec::of("op_id", AttributeType::integer)};
inline constexpr Sample kUniformSamples[] = {{"i64[] i64[]", "{shape=[3,5], op_id=7}", 0, 100},
                                             {"i64[] i64[] i64[1]", "{shape=[3,5], op_id=7}", 0, 100}};

/// The scalar behind random_uniform. Operands are i64: seed, step, op, sample, element. Philox4x32-10 with the seed as key and the
/// counter (element / 4, sample, step, op); word element % 4, its upper 24 bits times 2^-24.
constexpr OpDef kPhiloxUniform{
    .name = "philox_uniform",
    .summary = "uniform in [0, 1) from seed, step, op, sample and element",
    .operands = 5,
    .attributes = kCastAttributes,
    .typing = PointwiseTyping::cast,
    .cost = 6,
    .precision = Precision::promoted,
    .scalar = body<5>(
        [](auto seed, auto step, auto op, auto sample, auto element) { return philox_uniform(seed, step, op, sample, element); }),
    .no_gradient = "its operands are integers",
    .low = 0,
    .high = 100,
};

constexpr OpDef kRandomUniform{
    .name = "random_uniform",
    .summary =
        "f32 uniform in [0, 1); a function of the operands seed and step, and of op_id; axis 0 is the sample, counted through "
        "shards of equal shape where the third operand has the number of one",
    .kind = Kind::random,
    .operands = 3,
    .optional_operands = 1,
    .attributes = kUniformAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          const TensorType scalar{DType::i64, {}};
          c.require(c.operand(0) == scalar && c.operand(1) == scalar, "seed is ", shown(c.operand(0)), ", step ",
                    shown(c.operand(1)), ", wanted i64[]");
          c.require(c.operands.size() < 3 || c.operand(2) == TensorType{DType::i64, {1}}, "shard is ", shown(c.operands.back()),
                    ", wanted i64[1]");
          return std::vector{TensorType{DType::f32, c.attributes.integers("shape")}};
        },
    .loops =
        [](const LoopContext& c) {
          return map_nest(c.results[0], [&](const Indices& out) {
            const Shape& shape = c.results[0].shape;
            const Index sample = out.empty() ? Index(0) : out[0];
            const Index element =
                out.empty() ? Index(0) : linear_index(Indices(out.begin() + 1, out.end()), Shape(shape.begin() + 1, shape.end()));
            TermPtr counted = index_value(DType::i64, sample);
            if (c.operands.size() > 2) {
              const std::int64_t rows = shape.empty() ? 1 : shape[0];
              const TermPtr first =
                  ir::call(DType::i64, kMul, {read(DType::i64, 2, {Index(0)}), literal(DType::i64, static_cast<double>(rows))});
              counted = ir::call(DType::i64, kAdd, {first, counted});
            }
            return ir::call(DType::f32, kPhiloxUniform,
                            {read(DType::i64, 0, {}), read(DType::i64, 1, {}),
                             literal(DType::i64, static_cast<double>(c.attributes.integer("op_id"))), counted,
                             index_value(DType::i64, element)});
          });
        },
    .no_gradient = "its operands are integers",
    .samples = kUniformSamples,
};

inline constexpr const OpDef* kRandomOps[] = {&kPhiloxUniform, &kRandomUniform};

}  // namespace gcomp::ir::ops
