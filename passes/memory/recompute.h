// Less memory for more work: what the backward pass reads of the forward pass is computed again shortly before.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace gcomp::passes {

struct RecomputeOptions {
  std::int64_t alignment = 64;  ///< as in PlanOptions
  std::int64_t most_bytes = 0;  ///< in use in the arena at any node; 0 asks for as few as can be
};

/// Copies nodes to where their results are read again after a long time, until at most `most_bytes` of the arena are in use at any
/// node, or nothing is left that would lower the peak. Nodes stand as they will run, before and afterwards. True if any was copied.
///
///   %h = matmul %x, %w                       %h = matmul %x, %w
///   %y = kernel ... %h      // GELU          %y = kernel ... %h
///   %z = matmul %y, %v                       %z = matmul %y, %v
///   ...                                ->    ...                                // %y is in no memory here
///   %dv = matmul %y, %dz                     %y.again = kernel ... %h
///                                            %dv = matmul %y.again, %dz
///
/// A copy is the node itself over the same operands, so its results have the bits of the first: a step computes what it would
/// without. No node is copied twice, and no copy is copied: nothing runs more than twice. Where a copy needs what is
/// in memory no more, that is computed again before it; a copy of it that stands behind is moved there. Not copied: updates,
/// collectives, what updates read, and where the graph has a loss, what that is not made of: gradients.
///
/// At the node where most is in use, those that lie between two reads are weighed: bytes that would not be there for the work that
/// a copy takes, counted as bytes that are moved and multiply-adds at the rates of a GPU. The best go first, several at once where
/// they have nothing to do with each other; none before a better one that has to wait for the next look at the peak.
bool recompute(ir::Graph& graph, const RecomputeOptions& options);

/// The same until a plan of the graph takes at most `most` bytes, those of states, constants, inputs and outputs among them; 0 for
/// as few as can be. Throws SizeError, with the least, where that is more than `most`.
bool recompute_to(ir::Graph& graph, std::int64_t most, std::int64_t alignment);

/// Whether the node is such a copy: its origin says so, in every profile too.
bool is_recomputed(const ir::Node& node);

}  // namespace gcomp::passes
