#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>

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
     [](Graph& g, const PipelineOptions& o) { return o.whole && match_attention(g, o.whole) > 0; }},
    {"expand", "composites become the ops that define them", Form::composite, Form::primitive,
     [](Graph& g, const PipelineOptions& o) { return expand(g, [&](const Node& node) { return !o.whole || !o.whole(node); }); }},
    {"simplify", "folding, algebra, common subexpressions, dead code", Form::composite, Form::composite,
     [](Graph& g, const PipelineOptions& o) { return simplify(g, o.simplify); }},
    {"choose_layout", "convolutions and what lies between them go channels last", Form::primitive, Form::primitive,
     [](Graph& g, const PipelineOptions& o) { return o.channels_last && choose_layout(g); }},
    {"widen_contractions", "products in f16 and bf16 run in f32, where the target has no others", Form::composite, Form::composite,
     [](Graph& g, const PipelineOptions& o) { return o.widen_contractions && widen_contractions(g); }},
    {"align_products", "products in 16 bits get rows of whole packs of 16 bytes", Form::primitive, Form::primitive,
     [](Graph& g, const PipelineOptions& o) { return align_products(g, o.align); }},
    {"view_attention", "attention reads its matrices where they lie and writes them where they are wanted", Form::primitive,
     Form::primitive, [](Graph& g, const PipelineOptions& o) { return o.whole && view_attention(g, o.whole); }},
    {"simplify", "folding, algebra, common subexpressions, dead code", Form::composite, Form::composite,
     [](Graph& g, const PipelineOptions& o) { return simplify(g, o.simplify); }},
    {"join_bias_gradients", "the bias gradient becomes part of the weight gradient, as one product", Form::primitive,
     Form::primitive, [](Graph& g, const PipelineOptions& o) { return o.epilogues.enabled && join_bias_gradients(g); }},
    {"split_reductions", "long reductions to few elements run in two steps", Form::primitive, Form::primitive,
     [](Graph& g, const PipelineOptions& o) { return split_reductions(g, o.split); }},
    {"fuse", "ops become kernels in index notation", Form::primitive, Form::fused,
     [](Graph& g, const PipelineOptions& o) { return fuse(g, o.fuse); }},
    {"fuse_epilogues", "what is done to each element of a matrix product becomes part of it", Form::fused, Form::fused,
     [](Graph& g, const PipelineOptions& o) { return fuse_epilogues(g, o.epilogues); }},
    {"order", "the order of nodes that needs least memory", Form::fused, Form::fused,
     [](Graph& g, const PipelineOptions& o) { return order(g, {.alignment = o.alignment}); }},
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

void run_pass(const Pass& pass, Graph& graph, const PipelineOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::size_t before = options.observer ? hash_of(graph) : 0;
  try {
    pass.run(graph, options);
    if (options.verify) verify(graph);
  } catch (const Error& error) { throw InternalError(concat("after pass '", pass.name, "': ", error.what())); }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.observer) options.observer(pass.name, graph, hash_of(graph) != before, seconds);
}

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
  for (const Pass& pass : kPipeline) {
    if (!disabled(pass.name)) {
      run_pass(pass, graph, options);
    } else if (pass.name == "fuse") {
      PipelineOptions unfused = options;  // kernels are needed all the same: one for each op
      unfused.fuse.inlining = unfused.fuse.merging = unfused.fuse.multi_update = false;
      run_pass(pass, graph, unfused);
    }
  }
  const auto start = std::chrono::steady_clock::now();
  MemoryPlan plan = plan_memory(graph, {.alignment = options.alignment});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.observer) options.observer("plan_memory", graph, true, seconds);
  return plan;
}

}  // namespace gcomp::passes
