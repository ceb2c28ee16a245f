// Lays every value of a graph out in memory: one arena for all temporaries, in place where that is legal.
#pragma once

#include <string>

#include "ir/memory_plan.h"

namespace gcomp::passes {

struct PlanOptions {
  std::int64_t alignment = 64;  ///< of every offset; a power of two of at least 64 (256 for CUDA)
};

/// Gives every value of `graph` its place, for its nodes in the order in which they stand. Spaces: `state` holds the states in
/// declaration order, one after another; `constant` the tensors of constant nodes; `io` the inputs, then the outputs; the
/// `arena` all else. A value of no bytes lies at offset 0 and takes no space.
///
///   %h = kernel ... %z ...        : f32[64,128]   // %z ends here and is read where %h is stored: %h has the place of %z
///   %r = reshape %h {shape=[8192]} : f32[8192]    // has the place of %h
///   %w_next = kernel ... %w, %g    : f32[784,128] // all other reads of %w came before: has the place of %w
///   update %w, %w_next                            // so nothing is left to do
///
/// An output that is a state or a constant, or an alias of one, stays where that is.
ir::MemoryPlan plan_memory(const ir::Graph& graph, const PlanOptions& options = {});

/// Follows the bytes through the nodes in order and throws InternalError, with the names, where a node would read bytes that
/// another value has overwritten; where results of one node, or a result and an operand that it may not overwrite, share
/// bytes; and where a value has no place, a misaligned one, one outside its space, or one that contradicts its alias_of.
void verify_plan(const ir::Graph& graph, const ir::MemoryPlan& plan, const PlanOptions& options = {});

/// What lies where, one fact a line: bytes of parameters, optimizer and other states, the arena beside its lower bound, and
/// the node where the most memory is in use with the largest values that are held there.
std::string describe(const ir::Graph& graph, const ir::MemoryPlan& plan, const PlanOptions& options = {});

}  // namespace gcomp::passes
