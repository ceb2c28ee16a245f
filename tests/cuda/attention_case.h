// Attention that cuDNN is asked for in tests: heads side by side in rows, as projections leave them.
#pragma once

#include <cstdint>

#include "runtime/program.h"

namespace gcomp::tests {

struct AttentionCase {
  runtime::AttentionKind kind = runtime::AttentionKind::forward;
  DType dtype = DType::bf16;
  std::int64_t batch = 2, heads = 3, queries = 8, keys = 8, width = 16, value_width = 16;
  double scale = 0.25;
  bool causal = false;
};

/// Buffers are numbered q, k, v, y, dy, dq, dk, dv, top, sum.
inline runtime::AttentionCall attention_call(const AttentionCase& c) {
  int buffer = 0;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return runtime::MatrixView{.buffer = buffer++,
                               .offset = 0,
                               .batch_strides = {rows * c.heads * columns, columns},
                               .row_stride = c.heads * columns,
                               .column_stride = 1};
  };
  return {.kind = c.kind,
          .dtype = c.dtype,
          .batch = {c.batch, c.heads},
          .queries = c.queries,
          .keys = c.keys,
          .width = c.width,
          .value_width = c.value_width,
          .scale = c.scale,
          .causal = c.causal,
          .q = matrix(c.queries, c.width),
          .k = matrix(c.keys, c.width),
          .v = matrix(c.keys, c.value_width),
          .y = matrix(c.queries, c.value_width),
          .dy = matrix(c.queries, c.value_width),
          .dq = matrix(c.queries, c.width),
          .dk = matrix(c.keys, c.width),
          .dv = matrix(c.keys, c.value_width),
          .top = 8,
          .sum = 9,
          .generated = {},
          .origin = "attention"};
}

}  // namespace gcomp::tests
