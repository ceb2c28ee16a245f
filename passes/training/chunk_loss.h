// The last product and the loss over some rows after others, so that no more than a part of the logits is ever in memory.
//
//   %logits = matmul %h, %w                      %h.0    = slice %h                   // the first rows
//   %loss   = cross_entropy %logits, %label      %part.0 = matmul %h.0, %w
//                                         ->     %sum.0  = cross_entropy {sum} %part.0, %label.0
//                                                ...                                  // so the other parts
//                                                %loss   = (%sum.0 + %sum.1 + ...) / count of %label
//
// Differentiated, each part gives the gradient of its rows of %h and its share of the gradient of %w as soon as it is there, and
// the order of nodes takes part after part. A language model's logits, which are larger than all else, shrink to a part.
//
// The loss is summed part by part, and so is the gradient of %w, in f32: another order of sums than without, decided by the number
// of parts alone.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace gcomp::passes {

/// As many parts as fit, by the pass's own choice.
inline constexpr std::int64_t kChosenChunks = 0;
inline constexpr std::int64_t kMostLossChunks = 4096;

/// Cuts the rows of the largest product that only the loss looks at, row by row, into `chunks` equal parts; gives the loss, which
/// is an output in the place of the other. Before the graph is differentiated. kChosenChunks takes the first number from 8 on that
/// the rows allow, less where a part would have fewer rows than the product sums elements: what is added to the gradient of %w then
/// costs more than the part is worth. Throws UserError, with what stands in the way, where no product can be cut so.
ir::Value* chunk_loss(ir::Graph& graph, ir::Value* loss, std::int64_t chunks);

/// The same for the outputs of a graph that evaluates, sums over rows that no gradient follows. False where some output is not
/// such, as the rows that a metric keeps: the graph stays as it is.
bool chunk_outputs(ir::Graph& graph, std::int64_t chunks);

}  // namespace gcomp::passes
