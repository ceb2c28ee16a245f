// The order of passes that takes a graph from composites to a memory plan, as a table, and the runner.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/memory_plan.h"
#include "ir/target_info.h"
#include "passes/align_products.h"
#include "passes/fuse.h"
#include "passes/fuse_epilogues.h"
#include "passes/simplify.h"
#include "passes/split_reductions.h"

namespace gcomp::passes {

/// What a graph holds between passes; each pass needs one form and gives one.
enum class Form : std::uint8_t {
  composite,  ///< any op
  primitive,  ///< no composites but those that the target takes whole, no kernels but products that sum an operand
  fused,      ///< kernels, contractions, composites taken whole, constants, reshapes of values in memory, updates
};

struct PipelineOptions {
  ir::TargetInfo target;  ///< codegen::target_info() of the one that the graph is lowered for
  SimplifyOptions simplify;
  FuseOptions fuse;
  AlignOptions align;
  SplitOptions split;
  EpilogueOptions epilogues;
  bool channels_last = true;          ///< let choose_layout move convolutions to channels last
  std::vector<std::string> disabled;  ///< names of passes to leave out, where the order allows it
  bool verify = true;                 ///< verify the graph after every pass that changed it
  /// Called after each pass with its name, whether it changed the graph, and its seconds.
  std::function<void(std::string_view pass, const ir::Graph&, bool changed, double seconds)> observer;
};

struct Pass {
  std::string_view name;
  std::string_view summary;
  Form needs, gives;
  bool (*run)(ir::Graph&, const PipelineOptions&);
};

/// Every pass that takes a graph alone, in pipeline order; some run more than once.
std::span<const Pass> pipeline();
/// Null for an unknown name.
const Pass* find_pass(std::string_view name);

/// Runs the pipeline and plans memory. Any failure's message names the pass after which it arose. Throws SizeError, naming
/// the node, where an op needs a value on the way that is larger than any may be.
ir::MemoryPlan lower(ir::Graph& graph, const PipelineOptions& options = {});

}  // namespace gcomp::passes
