// The runtime's way from an AttentionCall to cuDNN's graphs: what the operations that it lists compute, one after the other, is
// attention and its gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ir/base/tensor.h"
#include "runtime/cuda/cudnn_attention.h"
#include "runtime/cuda/session.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/cudnn_plan_test.h"

namespace gcomp::tests {
namespace {

using namespace gcomp::runtime;
using namespace gcomp::runtime::cuda;

enum AttentionPlace : std::size_t { kAtQ, kAtK, kAtV, kAtY, kAtDy, kAtDq, kAtDk, kAtDv, kAtTop };

/// Attention and its gradient in double, from the buffers of a call to those that it writes.
class AttentionReference {
 public:
  AttentionReference(const AttentionCase& c, std::vector<Tensor>& tensors) : c_(c), tensors_(tensors) {}

  void compute() {
    for (std::int64_t b = 0; b < c_.batch; ++b)
      for (std::int64_t h = 0; h < c_.heads; ++h)
        for (std::int64_t i = 0; i < c_.queries; ++i) add_row(b, h, i);
  }

  double at(AttentionPlace m, std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column) const {
    return tensors_[m].at(place(m, b, h, row, column));
  }

 private:
  std::int64_t place(AttentionPlace m, std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column) const {
    const std::int64_t rows = m == kAtK || m == kAtV || m == kAtDk || m == kAtDv ? c_.keys : c_.queries;
    const std::int64_t columns = m == kAtV || m == kAtY || m == kAtDy || m == kAtDv ? c_.value_width : c_.width;
    return ((b * rows + row) * c_.heads + h) * columns + column;
  }
  void add(AttentionPlace m, std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column, double value) {
    const std::int64_t where = place(m, b, h, row, column);
    tensors_[m].set(where, tensors_[m].at(where) + value);
  }

  void add_row(std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t keys = c_.causal ? std::min(c_.keys, i + 1) : c_.keys;
    std::vector<double> p;
    double sum = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      double score = 0;
      for (std::int64_t d = 0; d < c_.width; ++d) score += at(kAtQ, b, h, i, d) * at(kAtK, b, h, j, d);
      sum += p.emplace_back(std::exp(c_.scale * score));
    }
    for (double& weight : p) weight /= sum;
    if (c_.kind == AttentionKind::forward) {
      tensors_[kAtTop].set((b * c_.heads + h) * c_.queries + i, std::log(sum));
      for (std::int64_t j = 0; j < keys; ++j)
        for (std::int64_t e = 0; e < c_.value_width; ++e)
          add(kAtY, b, h, i, e, p[static_cast<std::size_t>(j)] * at(kAtV, b, h, j, e));
      return;
    }
    double delta = 0;
    for (std::int64_t e = 0; e < c_.value_width; ++e) delta += at(kAtDy, b, h, i, e) * at(kAtY, b, h, i, e);
    for (std::int64_t j = 0; j < keys; ++j) {
      const double weight = p[static_cast<std::size_t>(j)];
      double dp = 0;
      for (std::int64_t e = 0; e < c_.value_width; ++e) {
        dp += at(kAtDy, b, h, i, e) * at(kAtV, b, h, j, e);
        add(kAtDv, b, h, j, e, weight * at(kAtDy, b, h, i, e));
      }
      const double ds = c_.scale * weight * (dp - delta);
      for (std::int64_t d = 0; d < c_.width; ++d) {
        add(kAtDq, b, h, i, d, ds * at(kAtK, b, h, j, d));
        add(kAtDk, b, h, j, d, ds * at(kAtQ, b, h, i, d));
      }
    }
  }

  const AttentionCase& c_;
  std::vector<Tensor>& tensors_;
};

class AttentionPlan : public CudnnPlanTest {
 protected:
  /// Random operands, zeros for what is written; y and top of a gradient are those of the forward pass.
  static std::vector<Tensor> tensors_of(const AttentionCase& c) {
    const std::int64_t rows = c.batch * c.heads, q = rows * c.queries, k = rows * c.keys;
    std::vector<Tensor> tensors;
    for (const std::int64_t elements : {q * c.width, k * c.width, k * c.value_width, q * c.value_width, q * c.value_width,
                                        q * c.width, k * c.width, k * c.value_width})
      tensors.emplace_back(c.dtype, Shape{elements});
    tensors.emplace_back(DType::f32, Shape{q});
    std::mt19937 random(7);
    std::uniform_real_distribution<double> draw(-1, 1);
    for (const AttentionPlace m : {kAtQ, kAtK, kAtV, kAtDy})
      for (std::int64_t i = 0; i < tensors[m].elements(); ++i) tensors[m].set(i, draw(random));
    if (c.kind == AttentionKind::gradient) {
      AttentionCase forward = c;
      forward.kind = AttentionKind::forward;
      AttentionReference(forward, tensors).compute();
    }
    return tensors;
  }

  /// Queues the call over the tensors and reads them back.
  void run(const AttentionCall& call, std::vector<Tensor>& tensors) {
    const auto planned = CudnnAttention::plan(session_.cudnn, call, {});
    ASSERT_NE(planned, nullptr);
    std::vector<DeviceMemory> memory;
    for (const Tensor& tensor : tensors) {
      memory.emplace_back(session_.context, static_cast<std::int64_t>(tensor.bytes().size()), "a matrix");
      GCOMP_CUDA(session_.driver(), "writing", cuMemcpyHtoDAsync_v2, memory.back().address(), tensor.data(), tensor.bytes().size(),
                 session_.compute.get());
    }
    const DeviceMemory workspace(session_.context, planned->workspace_bytes(), "the workspace");
    AttentionBuffers b{.q = memory[kAtQ].address(),
                       .k = memory[kAtK].address(),
                       .v = memory[kAtV].address(),
                       .y = memory[kAtY].address(),
                       .top = memory[kAtTop].address()};
    if (call.kind == AttentionKind::gradient) {
      b.dy = memory[kAtDy].address();
      b.dq = memory[kAtDq].address();
      b.dk = memory[kAtDk].address();
      b.dv = memory[kAtDv].address();
    }
    planned->queue(call, b, workspace.address(), session_.compute.get());
    for (std::size_t i = 0; i < tensors.size(); ++i)
      GCOMP_CUDA(session_.driver(), "reading", cuMemcpyDtoHAsync_v2, tensors[i].data(), memory[i].address(),
                 tensors[i].bytes().size(), session_.compute.get());
    GCOMP_CUDA(session_.driver(), "reading", cuStreamSynchronize, session_.compute.get());
  }

  /// Everything that the call writes against the reference: weights and scores are rounded to the operands' type on the way.
  void check(const AttentionCase& c) {
    std::vector<Tensor> found = tensors_of(c), exact;
    for (const Tensor& tensor : found) {
      exact.emplace_back(DType::f64, tensor.shape());
      for (std::int64_t i = 0; i < tensor.elements(); ++i) exact.back().set(i, tensor.at(i));
    }
    AttentionReference(c, exact).compute();
    ASSERT_NO_FATAL_FAILURE(run(attention_call(c), found));
    const double rounding = c.dtype == DType::bf16 ? 0x1p-7 : 0x1p-10;
    const auto written = c.kind == AttentionKind::forward ? std::vector{kAtY, kAtTop} : std::vector{kAtDq, kAtDk, kAtDv};
    for (const AttentionPlace m : written) {
      double largest = 0, off = 0;
      for (std::int64_t i = 0; i < exact[m].elements(); ++i) {
        largest = std::max(largest, std::abs(exact[m].at(i)));
        off = std::max(off, std::abs(exact[m].at(i) - found[m].at(i)));
      }
      EXPECT_GT(largest, 0.01) << "matrix " << m;
      EXPECT_LE(off, rounding * largest) << "matrix " << m << " of " << name_of(c.dtype);
    }
  }
};

TEST_F(AttentionPlan, IsAttentionAndItsGradient) {
  for (const AttentionKind kind : {AttentionKind::forward, AttentionKind::gradient})
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const bool causal : {false, true}) {
        check({.kind = kind, .dtype = dtype, .causal = causal});
        check({.kind = kind, .dtype = dtype, .batch = 1, .queries = 5, .keys = 7, .value_width = 24, .scale = 1, .causal = causal});
        check({.kind = kind, .dtype = dtype, .heads = 1, .queries = 9, .keys = 4, .width = 8, .causal = causal});
      }
}

// At least a tile of 64 x 64 scores is counted for each head: 256 MiB for each of six rows of the batch.
TEST_F(AttentionPlan, TheGradientOfALargeBatchIsComputedInParts) {
  const AttentionCase large{
      .kind = AttentionKind::gradient, .batch = 6, .heads = 1 << 15, .queries = 2, .keys = 2, .width = 8, .value_width = 8};
  const auto planned = CudnnAttention::plan(session_.cudnn, attention_call(large), {});
  ASSERT_NE(planned, nullptr);
  EXPECT_EQ(planned->rounds(), 2);
  check(large);
  AttentionCase small = large;
  small.batch = 4;
  EXPECT_EQ(CudnnAttention::plan(session_.cudnn, attention_call(small), {})->rounds(), 1);
}

// Versions and shapes for which NVIDIA's frontend has workarounds, or which it refuses.
TEST_F(AttentionPlan, WhatIsKnownToGoWrongIsLeftOut) {
  const auto takes = [&](const AttentionCase& c) { return CudnnAttention::plan(session_.cudnn, attention_call(c), {}) != nullptr; };
  for (const AttentionKind kind : {AttentionKind::forward, AttentionKind::gradient}) {
    EXPECT_TRUE(takes({.kind = kind}));
    EXPECT_FALSE(takes({.kind = kind, .width = 12}));
    EXPECT_FALSE(takes({.kind = kind, .value_width = 4}));
    EXPECT_FALSE(takes({.kind = kind, .queries = 1, .keys = 1}));
    setenv("GCOMP_EMULATED_CUDNN", "9.15", 1);
    EXPECT_FALSE(takes({.kind = kind}));
    setenv("GCOMP_EMULATED_CUDNN", "9.16", 1);
    EXPECT_TRUE(takes({.kind = kind}));
    unsetenv("GCOMP_EMULATED_CUDNN");
  }
}

TEST_F(AttentionPlan, EnginesThatVaryAreLeftOut) {
  // So many that the order of sums shows in some element after its rounding.
  const AttentionCall call = attention_call(
      {.kind = AttentionKind::gradient, .dtype = DType::f16, .queries = 96, .keys = 96, .width = 32, .value_width = 32});
  offer("0");
  EXPECT_EQ(CudnnAttention::plan(session_.cudnn, call, {}), nullptr);
  offer("43");  // the first one's notes are wrong
  const auto planned = CudnnAttention::plan(session_.cudnn, call, {});
  ASSERT_NE(planned, nullptr);
  EXPECT_EQ(planned->plans().engine(), 4);
  std::string reason;
  CudnnProof proof(session_, options_);
  EXPECT_TRUE(proof.prove(planned->plans(), planned->trial(call), reason)) << reason;
  EXPECT_EQ(planned->plans().engine(), 3);
  EXPECT_NE(log_.find("attention: cuDNN's engine 4 does not repeat its bits and is passed over"), std::string::npos) << log_;
}

}  // namespace
}  // namespace gcomp::tests
