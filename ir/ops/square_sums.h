// The sum of the squares of many arrays, in one launch where a target takes the node as it is (TargetInfo::sums_squares). A norm of
// all gradients would else be one reduction for each of them.
#pragma once

#include <algorithm>

#include "ir/ops/shown.h"
#include "ir/ops/table.h"
#include "ir/ops/view.h"
#include "ir/square_sums.h"

namespace gcomp::ir::ops {

inline constexpr AttributeSpec kSquareSumAttributes[] = {AttributeSpec::optional("parts", AttributeType::integer, 1)};
inline constexpr Sample kSquareSumSamples[] = {{"f64[3,4]"}, {"f64[2,3] f64[5] f64[]"}, {"f64[130] f64[2]", "{parts=4}"}};
constexpr OpDef kSquareSums{
    .name = "square_sums",
    .summary = "partial sums of the squares of all elements of many arrays, in f64; those of the first part of each come first",
    .kind = Kind::composite,
    .operands = -1,
    .attributes = kSquareSumAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          const std::int64_t parts = c.attributes.integer("parts");
          c.require(parts >= 1, parts, " parts, wanted 1 or more");
          std::int64_t sums = 0;
          for (std::size_t i = 0; i < c.operands.size(); ++i) {
            const TensorType& x = c.operand(i);
            c.require(is_float(x.dtype) && x.dtype == c.operand(0).dtype && x.elements() > 0, "operand ", i, " is ", shown(x),
                      ", wanted floats, of the first one's type");
            sums += square_sums_of(square_sum_part(x.elements(), parts));
          }
          return std::vector{TensorType{DType::f64, {parts * sums}}};
        },
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          const std::int64_t parts = e.attributes().integer("parts");
          std::vector<Var> sums;
          for (std::size_t i = 0; e.has(i); ++i) {
            Var x = b.cast(e.operand(i), DType::f64);
            const std::int64_t elements = x.type().elements(), part = square_sum_part(elements, parts),
                               count = square_sums_of(part), blocks = quotient_up(part, kSquareSumBlock),
                               block = std::min(part, kSquareSumBlock);
            x = b.pad(b.reshape(x * x, {elements}), {0}, {parts * part - elements}, 0);
            x = b.pad(b.reshape(x, {parts, part}), {0, 0}, {0, blocks * block - part}, 0);
            const Var of_blocks = b.sum(b.reshape(x, {parts, blocks, block}), {2});
            sums.push_back(b.pad(of_blocks, {0, 0}, {0, count - blocks}, 0));
          }
          const Var all = b.concat(std::move(sums), 1);
          return std::vector{b.reshape(all, {all.type().elements()}).value};
        },
    .no_gradient = "it is made of gradients",
    .samples = kSquareSumSamples,
};

inline constexpr const OpDef* kSquareSumOps[] = {&kSquareSums};

}  // namespace gcomp::ir::ops
