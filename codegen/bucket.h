// The launches of bucket and unbucket nodes (ir/bucket.h): one over all arrays, each a segment of its own, that copies them in or
// out, and for a bucket one more that zeroes what lies between and behind them.
#pragma once

#include <cstdint>
#include <string>

#include "codegen/program_builder.h"
#include "ir/graph.h"

namespace gcomp::codegen {

/// Elements that one task copies or zeroes.
inline constexpr std::int64_t kBucketBlock = 16384;

/// A target's kernels for elements of the arrays' type: from and to; to alone.
struct BucketTexts {
  std::string copy, zero;
  int threads = 1;  ///< of a CUDA block, which does one task
};

void add_bucket(ProgramBuilder& program, const ir::Node& node, const BucketTexts& texts);
void add_unbucket(ProgramBuilder& program, const ir::Node& node, const BucketTexts& texts);

}  // namespace gcomp::codegen
