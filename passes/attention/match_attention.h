// Attention recognised as a whole, in the forward graph, so that it is differentiated as one op and its scores never become values:
//
//   %s = matmul %q, %k {transpose_b=true}
//   %t = mul %s, full 0.25
//   %m = add %t, %mask                                         ->  %y, %top, %sum = attention %q, %k, %v, %mask {scale=0.25}
//   %p = softmax %m {axis=3}
//   %y = matmul %p, %v
//
// Between the ops may stand casts between the operands' dtype and the one it is computed in, and reshapes of the batch. Scales by
// one number are taken along, also as a division, and those of q and k before their product. A mask is added, or selects scores
// against one very negative number; one that is constant and lower triangular becomes `causal`, any other keeps its dimensions of 1
// where it only repeats. Dropout of the probabilities, select(ratio <= random_uniform, p / (1 - ratio), 0), becomes the operand
// `kept`: a bit for each score in place of its probability, in one kernel with the numbers that decide them.
//
// Not matched: scores or probabilities that something else reads, a mask that depends on a parameter, two masks unless both hide
// with -inf and one is causal, and what the target does not take. A row whose keys are all hidden gives what it gave: NaN, or
// zeros where the graph guards against it (select(is_nan(p), 0, p), or the guard of the ONNX operator), or the mean over all keys
// where hidden scores are finite.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace gcomp::passes {

/// To be run before differentiation. `legal` says of a node `attention` whether it is a legal composite of the target; without it
/// every one is. Gives the number of matches.
int match_attention(ir::Graph& graph, const std::function<bool(const ir::Node&)>& legal = {});

}  // namespace gcomp::passes
