// The table of passes. Of two rows next to each other the second needs the first, but for these, which are independent:
// choose_layout, which moves convolutions, match_products, which makes products of some, and the rows from transpose_products to
// view_operands, which change products and attention wherever these stand. What acts for no target twice may still stand in one
// order alone.

#include <algorithm>

#include "ir/base/nearest.h"
#include "ir/expand.h"
#include "passes/attention/match_attention.h"
#include "passes/choose_layout.h"
#include "passes/hoist_slices.h"
#include "passes/memory/order.h"
#include "passes/memory/plan_memory.h"
#include "passes/memory/recompute.h"
#include "passes/pipeline.h"
#include "passes/products/align_channels.h"
#include "passes/products/fuse_bias_gradients.h"
#include "passes/products/join_products.h"
#include "passes/products/match_products.h"
#include "passes/products/transpose_products.h"
#include "passes/products/widen_contractions.h"
#include "passes/training/lock_step.h"
#include "passes/training/step_passes.h"
#include "passes/views/view_operands.h"

namespace gcomp::passes {
namespace {

using namespace ir;
using F = Form;

bool run_match_attention(PassContext& c) {
  const auto& legal = c.options.target.legal_composite;
  if (!legal) return false;
  const std::size_t before = c.graph.nodes().size();
  return match_attention(c.graph, legal) > 0 || c.graph.nodes().size() != before;  // it drops what nothing needs
}

bool run_fold_constants(PassContext& c) { return fold_constants(c.graph, c.options.simplify); }
bool run_simplify(PassContext& c) { return simplify(c.graph, c.options.simplify); }

bool fuse_all(PassContext& c) {
  FuseOptions options = c.options.fuse;
  options.strips = options.strips && c.options.target.row_strips > 0;
  options.alike = options.alike && c.options.target.dear_launches;
  return fuse(c.graph, options);
}
/// Kernels are needed all the same: one for each op.
bool fuse_nothing(PassContext& c) {
  FuseOptions options = c.options.fuse;
  options.inlining = options.loop_fusion = options.horizontal_fusion = false;
  return fuse(c.graph, options);
}

bool run_plan_memory(PassContext& c) {
  c.made.plan = plan_memory(c.graph, {.alignment = c.options.target.buffer_alignment});
  return true;
}

bool run_recompute(PassContext& c) {
  return c.options.most_memory && recompute_to(c.graph, *c.options.most_memory, c.options.target.buffer_alignment);
}

constexpr std::string_view kIsAsked = "without it there is no training step";
/// Forms of a step while it is made; a complete one has no more of them.
constexpr Forms kOfTraining{F::loss_attached,    F::loss_scaled,         F::differentiated,
                            F::gradients_total,  F::gradients_final,     F::gradients_clipped,
                            F::updates_attached, F::parameters_averaged, F::updates_guarded};
constexpr Forms kPrimitive{F::primitive, F::unfused};

constexpr Pass kPipeline[] = {
    {.name = "fold_constants",
     .summary = "what depends on no input becomes a constant",
     .stage = Stage::preparing,
     .gives = F::constants_folded,
     .run = run_fold_constants},
    {.name = "match_attention",
     .summary = "softmax(q k^T) v becomes one op, where that is legal for the target",
     .stage = Stage::preparing,
     .needs = {F::forward, F::constants_folded},
     .before = F::primitive,
     .gives = F::attention_matched,
     .run = run_match_attention},
    {.name = "hoist_slices",
     .summary = "slices move before what computes elements that they drop",
     .stage = Stage::preparing,
     .needs = {F::forward, F::attention_matched},
     .before = F::precision_decided,
     .run = [](PassContext& c) { return hoist_slices(c.graph); }},
    {.name = "autocast",
     .summary = "mixed precision: each op computes in bf16 (or f16) or in f32, as PyTorch's autocast has it",
     .stage = Stage::preparing,
     .needs = {F::forward, F::attention_matched},
     .before = F::primitive,
     .gives = F::precision_decided,
     .run =
         [](PassContext& c) {
           if (!c.options.autocast) return false;
           AutocastOptions options = *c.options.autocast;
           options.half_attention = c.options.target.half_attention;
           return autocast(c.graph, options);
         }},
    {.name = "attach_loss",
     .summary = "the loss becomes an output, and the arrays of the data that it reads become inputs",
     .stage = Stage::preparing,
     .walks = kDifferentiated,
     .needs = {F::forward, F::precision_decided},
     .before = F::loss_attached,
     .gives = F::loss_attached,
     .run = run_attach_loss,
     .required = kIsAsked},
    {.name = "chunk_loss",
     .summary = "where it is asked for: the last product and the loss go over some rows after others",
     .stage = Stage::preparing,
     .walks = kDifferentiated,
     .needs = {F::forward, F::loss_attached},
     .before = F::loss_scaled,
     .run = run_chunk_loss,
     .required = "without --loss-chunks the loss is computed in one part"},
    {.name = "scale_loss",
     .summary = "f16: what is differentiated is the loss times the loss scale",
     .stage = Stage::preparing,
     .walks = kDifferentiated,
     .needs = {F::forward, F::loss_attached},
     .gives = F::loss_scaled,
     .run = run_scale_loss,
     .required = "--loss-scale 1 does not scale the loss"},
    {.name = "differentiate",
     .summary = "gradients of the loss by every trained parameter, or by every float input where there is none",
     .stage = Stage::preparing,
     .walks = kDifferentiated,
     .needs = {F::forward, F::loss_scaled},
     .gives = F::differentiated,
     .takes = F::forward,
     .run = run_differentiate,
     .required = kIsAsked},
    {.name = "accumulate",
     .summary = "micro-batches: what a shard computes parts from what is done once a step, on totals",
     .stage = Stage::preparing,
     .walks = Walk::training,
     .needs = F::differentiated,
     .before = F::gradients_final,
     .gives = F::gradients_total,
     .run = run_accumulate,
     .required = "without --micro-batches the batch is one shard"},
    {.name = "unscale_gradients",
     .summary = "f16: gradients are divided by the loss scale, in f32",
     .stage = Stage::preparing,
     .walks = kDifferentiated,
     .needs = {F::loss_scaled, F::differentiated},
     .gives = F::gradients_final,
     .run = run_unscale,
     .required = "--loss-scale 1 does not scale the loss"},
    {.name = "clip_gradients",
     .summary = "the norm of all gradients together, or each of their elements, is held below a bound",
     .stage = Stage::preparing,
     .walks = Walk::training,
     .needs = {F::differentiated, F::gradients_total, F::gradients_final},
     .before = F::updates_attached,
     .gives = F::gradients_clipped,
     .run = run_clip_gradients,
     .required = "without --clip-norm and --clip-value nothing is clipped"},
    {.name = "attach_optimizer",
     .summary = "the optimizer's updates of every trained parameter",
     .stage = Stage::preparing,
     .walks = Walk::training,
     .needs = {F::differentiated, F::gradients_final, F::gradients_clipped},
     .gives = F::updates_attached,
     .run = run_attach_optimizer,
     .required = kIsAsked},
    {.name = "average_parameters",
     .summary = "an exponential moving average of every trained parameter",
     .stage = Stage::preparing,
     .walks = Walk::training,
     .needs = F::updates_attached,
     .before = F::updates_guarded,
     .gives = F::parameters_averaged,
     .run = run_average_parameters,
     .required = "without --ema there is no average"},
    {.name = "skip_non_finite",
     .summary = "f16, or where asked: a step whose loss or gradients are not finite changes nothing but the loss scale",
     .stage = Stage::preparing,
     .walks = Walk::training,
     .needs = {F::loss_scaled, F::updates_attached, F::parameters_averaged},
     .gives = F::updates_guarded,
     .run = run_skip_non_finite,
     .required = "a step that overflows would ruin the parameters"},
    {.name = "show_loss",
     .summary = "the loss becomes the only output, beside what loss scaling reports",
     .stage = Stage::preparing,
     .walks = Walk::training,
     .needs = {F::loss_attached, F::updates_guarded},
     .gives = F::complete,
     .takes = kOfTraining,
     .run = run_show_loss,
     .required = kIsAsked},
    {.name = "distribute",
     .summary = "several ranks: what the shards of each add up to goes between them, and each updates its share",
     .stage = Stage::preparing,
     .walks = Walk::training,
     .needs = F::complete,
     .before = F::primitive,
     .run = run_distribute,
     .required = "one rank has nobody to exchange with"},
    {.name = "show_gradients",
     .summary = "loss and gradients become the outputs, and nothing is updated",
     .stage = Stage::preparing,
     .walks = Walk::gradients,
     .needs = F::gradients_final,
     .gives = F::complete,
     .takes = kOfTraining,
     .run = run_show_gradients,
     .required = kIsAsked},
    {.name = "fold_constants",  // of a graph that is lowered as it was imported
     .summary = "what depends on no input becomes a constant",
     .walks = Walk::inference,
     .gives = F::constants_folded,
     .run = run_fold_constants},
    {.name = "match_attention",  // likewise
     .summary = "softmax(q k^T) v becomes one op, where that is legal for the target",
     .walks = Walk::inference,
     .needs = {F::forward, F::complete, F::constants_folded},
     .before = F::primitive,
     .gives = F::attention_matched,
     .run = run_match_attention},
    {.name = "hoist_slices",  // likewise
     .summary = "slices move before what computes elements that they drop",
     .walks = Walk::inference,
     .needs = {F::forward, F::attention_matched},
     .before = F::primitive,
     .run = [](PassContext& c) { return hoist_slices(c.graph); }},
    {.name = "expand",
     .summary = "composites become the ops that define them",
     .needs = {F::complete, F::attention_matched, F::precision_decided},
     .gives = F::primitive,
     .takes = {F::folded, F::simplified},
     .run = [](PassContext& c) { return expand(c.graph, [&](const Node& node) { return !c.options.target.is_legal(node); }); },
     .required = "composites have no code of their own"},
    {.name = "simplify",
     .summary = "folding, algebra, common subexpressions, dead code",
     .gives = {F::folded, F::simplified},
     .run = run_simplify},
    {.name = "choose_layout",
     .summary = "convolutions and what lies between them go channels last",
     .needs = kPrimitive | F::folded,
     .gives = F::layouts_chosen,
     .takes = F::simplified,
     .run = [](PassContext& c) { return c.options.channels_last && choose_layout(c.graph); }},
    {.name = "match_products",
     .summary = "convolutions whose windows lie side by side become matrix products, where the target computes those faster",
     .needs = kPrimitive | Forms{F::folded, F::layouts_chosen},
     .gives = F::products_matched,
     .takes = F::simplified,
     .run = [](PassContext& c) { return match_products(c.graph, c.options.target); }},
    {.name = "transpose_products",
     .summary = "a product that is only read transposed is computed transposed",
     .needs = kPrimitive | F::folded,
     .before = F::products_legal,
     .takes = F::simplified,
     .run = [](PassContext& c) { return transpose_products(c.graph); }},
    {.name = "join_products",
     .summary = "a sum of products over few rows each becomes one product over all the rows",
     .needs = kPrimitive | F::folded,
     .before = F::products_legal,
     .takes = F::simplified,
     .run = [](PassContext& c) { return join_products(c.graph); }},
    {.name = "widen_contractions",
     .summary = "products in f16 and bf16 run in f32, where the target has no faster ones",
     .needs = kPrimitive | F::folded,
     .gives = F::products_legal,
     .takes = F::simplified,
     .run = [](PassContext& c) { return c.options.target.widens && widen_contractions(c.graph, c.options.target.widens); },
     .required = "it changes only products that the target does not compute in 16 bits"},
    {.name = "align_channels",
     .summary = "convolutions in 16 bits get channels of whole vectors of 16 bytes",
     .needs = kPrimitive | Forms{F::folded, F::layouts_chosen, F::products_matched, F::products_legal},
     .takes = F::simplified,
     .run = [](PassContext& c) { return align_channels(c.graph, c.options.target, c.options.align.min_work); }},
    {.name = "align_products",
     .summary = "products in 16 bits get rows of whole vectors of 16 bytes",
     .needs = kPrimitive | Forms{F::folded, F::products_matched, F::products_legal},
     .before = F::bias_gradients_fused,
     .gives = F::products_aligned,
     .takes = F::simplified,
     .run = [](PassContext& c) { return align_products(c.graph, c.options.target, c.options.align); }},
    {.name = "view_operands",
     .summary = "attention and products read their matrices where they lie and write them where they are wanted",
     .needs = kPrimitive | Forms{F::folded, F::products_aligned},
     .gives = F::views_resolved,
     .takes = F::simplified,
     .run = [](PassContext& c) { return view_operands(c.graph, c.options.target); }},
    {.name = "simplify",
     .summary = "folding, algebra, common subexpressions, dead code",
     .gives = {F::folded, F::simplified},
     .run = run_simplify},
    {.name = "fuse_bias_gradients",
     .summary = "the bias gradient becomes part of the weight gradient, as one product",
     .needs = kPrimitive | Forms{F::simplified, F::layouts_chosen, F::products_aligned, F::views_resolved},
     .before = F::reductions_split,
     .gives = F::bias_gradients_fused,
     .takes = F::simplified,
     .run = [](PassContext& c) { return fuse_bias_gradients(c.graph, c.options.target); }},
    {.name = "split_reductions",
     .summary = "long reductions to few elements run in two steps",
     .needs = kPrimitive | F::bias_gradients_fused,
     .gives = F::reductions_split,
     .takes = F::simplified,
     .run = [](PassContext& c) { return split_reductions(c.graph, c.options.target, c.options.split); }},
    {.name = "fuse",
     .summary = "ops become kernels in index notation",
     .needs = {F::primitive, F::reductions_split},
     .gives = F::fused,
     .takes = {F::unfused, F::simplified},
     .run = fuse_all,
     .without = fuse_nothing},
    {.name = "fuse_epilogues",
     .summary = "what is done to each element of a matrix product becomes part of it",
     .needs = F::fused,
     .gives = F::epilogues_fused,
     .run = [](PassContext& c) { return fuse_epilogues(c.graph, c.options.target, c.options.epilogues); }},
    {.name = "lock_step",
     .summary = "micro-batches that know of each other: the kernels of one become those of all that share a process",
     .needs = F::epilogues_fused,
     .before = F::ordered,
     .run = [](PassContext& c) { return lock_step(c.graph); },
     .required = "what goes between micro-batches has no code of its own"},
    {.name = "order",
     .summary = "the order of nodes that needs least memory",
     .needs = F::epilogues_fused,
     .gives = F::ordered,
     .run = [](PassContext& c) { return order(c.graph, {.alignment = c.options.target.buffer_alignment}); }},
    {.name = "recompute",
     .summary = "where the step shall take less memory: activations are computed again in the backward pass",
     .walks = kDifferentiated,
     .needs = F::ordered,
     .before = F::planned,
     .run = run_recompute},
    {.name = "plan_memory",
     .summary = "every value gets its place",
     .needs = F::ordered,
     .gives = F::planned,
     .run = run_plan_memory,
     .required = "a program is made from the plan"},
};

consteval bool order_works(Walk walk) { return first_misplaced(kPipeline, walk) == std::size(kPipeline); }
static_assert(order_works(Walk::inference), "a pass of inference does not find what it needs, or comes too late");
static_assert(order_works(Walk::training), "a pass of a training step does not find what it needs, or comes too late");
static_assert(order_works(Walk::gradients), "a pass of gradients does not find what it needs, or comes too late");

/// Rows of the first stage stand before those of the second, and a pass that may be left out is so in all its rows.
consteval bool is_consistent() {
  for (std::size_t i = 0; i < std::size(kPipeline); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      if (kPipeline[j].stage > kPipeline[i].stage) return false;
      if (kPipeline[j].name == kPipeline[i].name && kPipeline[j].required != kPipeline[i].required) return false;
    }
  return true;
}
static_assert(is_consistent());

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

const Pass* find_pass(std::string_view name) {
  auto it = std::find_if(std::begin(kPipeline), std::end(kPipeline), [&](const Pass& p) { return p.name == name; });
  return it == std::end(kPipeline) ? nullptr : &*it;
}

void require_pass(std::string_view name, std::string_view where) {
  if (find_pass(name)) return;
  std::vector<std::string> names;
  for (const Pass& pass : kPipeline)
    if (std::find(names.begin(), names.end(), pass.name) == names.end()) names.emplace_back(pass.name);
  throw UserError(concat(where, " ", name, ": no such pass, there are ", listing(names), did_you_mean(std::string(name), names)),
                  ExitCode::usage);
}

void require_optional_pass(std::string_view name, std::string_view where) {
  require_pass(name, where);
  const std::string_view reason = find_pass(name)->required;
  if (!reason.empty()) throw UserError(concat(where, " ", name, ": that pass cannot be left out: ", reason), ExitCode::usage);
}

}  // namespace gcomp::passes
