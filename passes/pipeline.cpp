#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "ir/expand.h"
#include "ir/verify.h"
#include "passes/choose_layout.h"
#include "passes/join_bias_gradients.h"
#include "passes/match_attention.h"
#include "passes/order.h"
#include "passes/plan_memory.h"
#include "passes/view_attention.h"
#include "passes/widen_contractions.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr Pass kPipeline[] = {
    {"match_attention", "softmax(q k^T) v becomes one op, where the target takes it whole", Form::composite, Form::composite,
     [](Graph& g, const PipelineOptions& o) {
       return o.target.legal_composite && match_attention(g, o.target.legal_composite) > 0;
     }},
    {"expand", "composites become the ops that define them", Form::composite, Form::primitive,
     [](Graph& g, const PipelineOptions& o) { return expand(g, [&](const Node& node) { return !o.target.is_legal(node); }); }},
    {"simplify", "folding, algebra, common subexpressions, dead code", Form::composite, Form::composite,
     [](Graph& g, const PipelineOptions& o) { return simplify(g, o.simplify); }},
    {"choose_layout", "convolutions and what lies between them go channels last", Form::primitive, Form::primitive,
     [](Graph& g, const PipelineOptions& o) { return o.channels_last && choose_layout(g); }},
    {"widen_contractions", "products in f16 and bf16 run in f32, where the target has no others", Form::composite, Form::composite,
     [](Graph& g, const PipelineOptions& o) { return !o.target.half_products && widen_contractions(g); }},
    {"align_products", "products in 16 bits get rows of whole packs of 16 bytes", Form::primitive, Form::primitive,
     [](Graph& g, const PipelineOptions& o) { return align_products(g, o.target, o.align); }},
    {"view_attention", "attention reads its matrices where they lie and writes them where they are wanted", Form::primitive,
     Form::primitive,
     [](Graph& g, const PipelineOptions& o) { return o.target.legal_composite && view_attention(g, o.target.legal_composite); }},
    {"simplify", "folding, algebra, common subexpressions, dead code", Form::composite, Form::composite,
     [](Graph& g, const PipelineOptions& o) { return simplify(g, o.simplify); }},
    {"join_bias_gradients", "the bias gradient becomes part of the weight gradient, as one product", Form::primitive,
     Form::primitive, [](Graph& g, const PipelineOptions& o) { return join_bias_gradients(g, o.target); }},
    {"split_reductions", "long reductions to few elements run in two steps", Form::primitive, Form::primitive,
     [](Graph& g, const PipelineOptions& o) { return split_reductions(g, o.target, o.split); }},
    {"fuse", "ops become kernels in index notation", Form::primitive, Form::fused,
     [](Graph& g, const PipelineOptions& o) { return fuse(g, o.fuse); }},
    {"fuse_epilogues", "what is done to each element of a matrix product becomes part of it", Form::fused, Form::fused,
     [](Graph& g, const PipelineOptions& o) { return fuse_epilogues(g, o.target, o.epilogues); }},
    {"order", "the order of nodes that needs least memory", Form::fused, Form::fused,
     [](Graph& g, const PipelineOptions& o) { return order(g, {.alignment = o.target.buffer_alignment}); }},
};

/// Each pass finds the form it needs: the one that the last changing pass before it gave. A pass over any form keeps it.
consteval bool order_works() {
  Form form = Form::composite;
  for (const Pass& pass : kPipeline) {
    if (pass.needs == Form::composite && pass.gives == Form::composite) continue;
    const bool any = pass.needs == Form::composite;
    if (!any && pass.needs != form) return false;
    form = pass.gives;
  }
  return form == Form::fused;
}
static_assert(order_works(), "a pass does not find the form of graph that it needs");

/// Runs passes over one graph. What changed is told by the graph's hash and not by the pass, and only what changed is verified.
class Runner {
 public:
  Runner(Graph& graph, const PipelineOptions& options) : graph_(graph), options_(options), hash_(hash_of(graph)) {}

  void run(const Pass& pass, const PipelineOptions& options) {
    const auto start = std::chrono::steady_clock::now();
    bool changed = false;
    try {
      pass.run(graph_, options);
      const std::size_t hash = hash_of(graph_);
      changed = hash != std::exchange(hash_, hash);
      if (options.verify && (changed || !verified_)) verify(graph_);
      verified_ = true;
    } catch (const SizeError& error) {
      throw SizeError(concat("in pass '", pass.name, "', ", error.what(), "; give smaller shapes"));
    } catch (const Error& error) { throw InternalError(concat("after pass '", pass.name, "': ", error.what())); }
    observe(pass.name, changed, start);
  }

  MemoryPlan plan() {
    const auto start = std::chrono::steady_clock::now();
    MemoryPlan plan = plan_memory(graph_, {.alignment = options_.target.buffer_alignment});
    observe("plan_memory", true, start);
    return plan;
  }

 private:
  void observe(std::string_view pass, bool changed, std::chrono::steady_clock::time_point start) const {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (options_.observer) options_.observer(pass, graph_, changed, seconds);
  }

  Graph& graph_;
  const PipelineOptions& options_;
  std::size_t hash_;
  bool verified_ = false;
};

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

const Pass* find_pass(std::string_view name) {
  auto it = std::find_if(std::begin(kPipeline), std::end(kPipeline), [&](const Pass& p) { return p.name == name; });
  return it == std::end(kPipeline) ? nullptr : &*it;
}

MemoryPlan lower(Graph& graph, const PipelineOptions& options) {
  auto disabled = [&](std::string_view name) {
    return std::find(options.disabled.begin(), options.disabled.end(), name) != options.disabled.end();
  };
  Runner runner(graph, options);
  for (const Pass& pass : kPipeline) {
    if (!disabled(pass.name)) {
      runner.run(pass, options);
    } else if (pass.name == "fuse") {
      PipelineOptions unfused = options;  // kernels are needed all the same: one for each op
      unfused.fuse.inlining = unfused.fuse.merging = unfused.fuse.multi_update = false;
      runner.run(pass, unfused);
    }
  }
  return runner.plan();
}

}  // namespace gcomp::passes
