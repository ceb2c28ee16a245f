// The sum of the squares of many arrays, in one launch where a target takes the node as it is (TargetInfo::sums_squares). A norm of
// all gradients would else be one reduction for each of them.
#pragma once

#include "ir/ops/shown.h"
#include "ir/ops/table.h"
#include "ir/ops/view.h"
#include "ir/square_sums.h"

namespace gcomp::ir::ops {

inline constexpr Sample kSquareSumSamples[] = {{"f64[3,4]"}, {"f64[2,3] f64[5] f64[]"}};
constexpr OpDef kSquareSums{
    .name = "square_sums",
    .summary = "partial sums of the squares of all elements of many arrays, in f64",
    .kind = Kind::composite,
    .operands = -1,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          std::int64_t sums = 0;
          for (std::size_t i = 0; i < c.operands.size(); ++i) {
            const TensorType& x = c.operand(i);
            c.require(is_float(x.dtype) && x.dtype == c.operand(0).dtype && x.elements() > 0, "operand ", i, " is ", shown(x),
                      ", wanted floats, of the first one's type");
            sums += square_sums_of(x.elements());
          }
          return std::vector{TensorType{DType::f64, {sums}}};
        },
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          std::vector<Var> sums;
          for (std::size_t i = 0; e.has(i); ++i) {
            Var x = b.cast(e.operand(i), DType::f64);
            const std::int64_t elements = x.type().elements(), count = square_sums_of(elements);
            x = b.pad(b.reshape(x * x, {elements}), {0}, {count * kSquareSumBlock - elements}, 0);
            sums.push_back(b.sum(b.reshape(x, {count, kSquareSumBlock}), {1}));
          }
          return std::vector{b.concat(std::move(sums), 0).value};
        },
    .no_gradient = "it is made of gradients",
    .samples = kSquareSumSamples,
};

inline constexpr const OpDef* kSquareSumOps[] = {&kSquareSums};

}  // namespace gcomp::ir::ops
