// Chooses the order of nodes that needs the least memory at its peak.
#pragma once

#include "ir/graph.h"

namespace gcomp::passes {

struct OrderOptions {
  std::int64_t alignment = 64;  ///< as in PlanOptions
  int window = 64;              ///< how many of the nodes that could run next are weighed; the earliest in the given order
  double gain = 0.01;           ///< a new order must lower the peak by this share of it
};

/// Reorders nodes so that less arena memory is in use at the peak. True if any node moved.
///
///   %h  = kernel ... %x      : f32[64,128]       %h  = kernel ... %x
///   %g  = matmul %h, %dy     : f32[128,10]       %g  = matmul %h, %dy
///   %dx = matmul %dy, %w                   ->    %w1 = kernel ... %w, %g      // waits for the matmul that reads %w, frees %g
///   %w1 = kernel ... %w, %g                      update %w, %w1
///   update %w, %w1
///
/// Besides operands, an order keeps: reads of a state, also through views, before its update, and, where nothing stands
/// against it, before the node that computes the new value, so that plan_memory can place that in the state itself;
/// collectives among themselves. Candidates are the given order and list schedules that prefer the node (or the node
/// together with the one it makes ready) that frees most memory, the given order deciding ties; the lowest peak wins.
/// The result depends on the graph alone.
bool order(ir::Graph& graph, const OrderOptions& options = {});

}  // namespace gcomp::passes
