// The pass table: rows stand where they find what they need, each form is checked on the graph, and whoever breaks a graph is
// named.

#include <gtest/gtest.h>

#include <functional>

#include "ir/ops/table.h"
#include "ir/text/parse.h"
#include "passes/pipeline.h"

namespace gcomp::passes {
namespace {

using namespace ir;

bool works(std::span<const Pass> table) {
  return std::all_of(std::begin(kWalks), std::end(kWalks), [&](Walk walk) { return first_misplaced(table, walk) == table.size(); });
}

bool meet(const Pass& a, const Pass& b) {
  return std::any_of(std::begin(kWalks), std::end(kWalks), [&](Walk walk) { return a.walks.has(walk) && b.walks.has(walk); });
}

/// Whether two rows may change places though a graph goes through both: match_products makes products of convolutions,
/// widen_contractions changes the operands of both; and the second fold_constants is for graphs that come without the first stage.
bool are_independent(const Pass& a, const Pass& b) {
  return (a.name == "match_products" && b.name == "widen_contractions") ||
         (a.name == "fold_constants" && a.stage != Stage::preparing);
}

TEST(PassTable, RowsThatDependOnEachOtherCannotChangePlaces) {
  const std::span<const Pass> rows = pipeline();
  EXPECT_TRUE(works(rows));
  int refused = 0;
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    std::vector<Pass> swapped(rows.begin(), rows.end());
    std::swap(swapped[i], swapped[i + 1]);
    if (!meet(rows[i], rows[i + 1])) continue;
    if (rows[i].gives.empty() || rows[i + 1].gives.empty()) continue;  // nobody waits for a rewrite that makes nothing new true
    EXPECT_EQ(works(swapped), are_independent(rows[i], rows[i + 1])) << rows[i].name << " and " << rows[i + 1].name;
    refused += !works(swapped);
  }
  EXPECT_GE(refused, 19);
}

/// A graph with what passes leave beside it, to be broken.
struct Case {
  Graph graph;
  PipelineOptions options;
  TrainingRequest request;
  PassContext context{.graph = graph, .options = options, .training = &request, .made = {}};

  explicit Case(const std::string& text) : graph(parse(text)) {
    options.target.widens = [](const Node&) { return true; };
    request.optimizer.emplace();
  }
  Value* value(std::string_view name) {
    for (const State& state : graph.states())
      if (state.value->name == name) return state.value;
    for (const auto& node : graph.nodes())
      for (Value* result : node->results)
        if (result->name == name) return result;
    throw InternalError(concat("no %", name));
  }
};

constexpr const char* kTrained = R"(graph @g(%x: f32[8,3]) -> (%loss) {
  state %w: f32[3,2] parameter
  %y = matmul %x, %w
  %loss = reduce_sum %y {axes=[0,1]}
  %next = add %w, %w
  update %w, %next
})";
constexpr const char* kForward = R"(graph @g(%x: f32[8,3]) -> (%y) {
  %y = softmax %x {axis=1}
})";

struct Broken {
  Form form;
  const char* text;
  std::function<void(Case&)> change;
  std::string message;
};

const std::vector<Broken>& broken_graphs() {
  static const std::vector<Broken> all{
      {Form::forward,
       "graph @g(%x: f32[2], %rate: f64[] learning_rate) -> (%l loss) {\n  %l = reduce_sum %x {axes=[0]}\n}",
       {},
       "input %rate is a learning rate"},
      {Form::forward,
       "graph @g(%x: f32[2]) -> () {\n  state %s: f32[2] scratch\n  update %s, %x\n}",
       {},
       "%s is updated, a state of one step"},
      {Form::loss_attached, kForward, {}, "no value is its loss"},
      {Form::loss_attached, kForward, [](Case& c) { c.context.made.loss = c.value("y"); }, "%y is f32[8,3]"},
      {Form::loss_scaled, kForward, [](Case& c) { c.context.made.scaled.scaled = c.value("y"); }, "%y is f32[8,3]"},
      {Form::differentiated, kTrained, [](Case& c) { c.context.made.parameters = {c.value("w")}; }, "0 gradients of 1 parameters"},
      {Form::gradients_total, kTrained,
       [](Case& c) {
         c.context.made.parameters = {c.value("w")};
         c.context.made.gradients = {c.value("y")};
       },
       "the gradient %y of %w is f32[8,2], wanted f32[3,2]"},
      {Form::gradients_final, kTrained,
       [](Case& c) {
         c.context.made.parameters = {c.value("w")};
         c.context.made.gradients = {c.value("y")};
       },
       "the gradient %y of %w is f32[8,2], wanted f32[3,2]"},
      {Form::gradients_clipped, kTrained,
       [](Case& c) {
         c.context.made.parameters = {c.value("w")};
         c.context.made.gradients = {nullptr};
       },
       "%w has no gradient"},
      {Form::parameters_averaged, kTrained,
       [](Case& c) {
         c.context.made.parameters = {c.value("w")};
         c.request.step.average = 0.9;
       },
       "nothing averages %w"},
      {Form::updates_guarded, kTrained,
       [](Case& c) {
         c.context.made.parameters = {c.value("w")};
         c.request.step.skip_non_finite = true;
       },
       "the update of %w is no select"},
      {Form::updates_attached, kTrained,
       [](Case& c) {
         c.context.made.parameters = {c.value("w")};
         c.graph.remove_updates();
       },
       "nothing updates %w"},
      {Form::updates_guarded, kTrained,
       [](Case& c) {
         c.context.made.parameters = {c.value("w")};
         c.context.made.scaled.scale = c.value("loss");
       },
       "the update of %w is no select"},
      {Form::complete, kTrained, {}, "output 0, %loss, has the role array"},
      {Form::primitive, kForward, {}, "node %y is a composite, 'softmax', which is not legal for the target"},
      {Form::unfused,
       "graph @g(%x: f32[2]) -> (%y) {\n  %y = kernel %x : f32[2] {\n    axes i:2\n    t0[i]: f32 = exp(%x[i])\n    %y[i] = t0\n  "
       "}\n}",
       {},
       "node %y is a kernel"},
      {Form::simplified, "graph @g(%x: f32[2]) -> (%y) {\n  %y = exp %x\n  %z = neg %y\n}", {}, "node %z is read by nothing"},
      {Form::layouts_chosen,
       "graph @g(%x: f32[1,2,4,4], %w: f32[3,2,1,1]) -> (%y) {\n  %y = convolution %x, %w {strides=[1,1], low=[0,0], high=[0,0], "
       "dilations=[1,1]}\n}",
       {},
       "node %y is a convolution, channels first"},
      {Form::products_matched,
       "graph @g(%x: f32[1,4,4,2], %w: f32[3,2,1,1]) -> (%y) {\n  %y = convolution %x, %w {channels_last=true, strides=[1,1], "
       "low=[0,0], high=[0,0], dilations=[1,1]}\n}",
       [](Case& c) { c.options.target.pixel_products = true; }, "node %y is a convolution of windows side by side"},
      {Form::products_legal,
       "graph @g(%x: bf16[2,3], %w: bf16[3,2]) -> (%y) {\n  %y = matmul %x, %w\n}",
       {},
       "node %y is a matmul in bf16"},
      {Form::fused, "graph @g(%x: f32[2]) -> (%y) {\n  %y = exp %x\n}", {}, "node %y is a exp, which no kernel computes"},
      {Form::planned, kTrained, {}, "there is no plan"},
  };
  return all;
}

TEST(Forms, ABrokenGraphIsNamedWithItsNode) {
  for (const Broken& broken : broken_graphs()) {
    Case c(broken.text);
    if (broken.change) broken.change(c);
    EXPECT_EQ(find_violation(broken.form, c.context), broken.message) << describe(broken.form);
  }
}

TEST(Forms, EachThatCanBeSeenHasABrokenGraph) {
  const Forms from_history{
      Form::constants_folded, Form::attention_matched,    Form::precision_decided, Form::folded,          Form::products_aligned,
      Form::views_resolved,   Form::bias_gradients_fused, Form::reductions_split,  Form::epilogues_fused, Form::ordered};
  Forms seen;
  for (const Broken& broken : broken_graphs()) seen = seen | broken.form;
  for (std::size_t i = 0; i < kForms; ++i) EXPECT_NE(seen.has(Form(i)), from_history.has(Form(i))) << describe(Form(i));
}

std::string failure(const std::function<void()>& work) {
  try {
    work();
  } catch (const InternalError& error) { return error.what(); }
  return "";
}

/// The pipeline with `spoil` after the work of the row of that name.
std::vector<Pass> spoiled(std::string_view name, bool (*spoil)(PassContext&)) {
  std::vector<Pass> rows(pipeline().begin(), pipeline().end());
  for (Pass& row : rows)
    if (row.name == name) row.run = spoil;
  return rows;
}

std::string failure_of_training(std::span<const Pass> rows) {
  Graph graph = parse("graph @g(%x: f32[8,3]) -> (%y) {\n  state %w: f32[3,2] parameter\n  %y = matmul %x, %w\n}");
  const TrainingRequest request{.loss = parse_loss("mse"), .optimizer = OptimizerSpec(), .trained = {"w"}};
  const PipelineOptions options;
  PassContext context{.graph = graph, .options = options, .training = &request, .made = {}};
  return failure([&] { run_passes(rows, context, Walk::training, Stage::preparing); });
}

std::string failure_of_lowering(std::span<const Pass> rows, std::vector<std::string> disabled = {}) {
  Graph graph = parse(kForward);
  PipelineOptions options;
  options.disabled = std::move(disabled);
  PassContext context{.graph = graph, .options = options, .made = {}};
  return failure([&] { run_passes(rows, context, Walk::inference, Stage::lowering); });
}

TEST(Pipeline, AGraphThatATrainingPassBreaksIsBlamedOnIt) {
  EXPECT_EQ(failure_of_training(pipeline()), "");
  EXPECT_EQ(
      failure_of_training(spoiled("differentiate",
                                  [](PassContext& c) {
                                    c.made.parameters = states_named(c.graph, c.training->trained);
                                    c.made.gradients = {c.made.loss};
                                    return true;
                                  })),
      "after pass 'differentiate': wanted a graph that is differentiated: the gradient %loss of %w is f32[], wanted f32[3,2]");
  // A gradient whose type is not what its op gives: the verifier finds it, and the pass is known.
  const std::string found = failure_of_training(spoiled("unscale_gradients", [](PassContext& c) {
    c.graph.nodes().back()->results[0]->type.shape.push_back(7);
    return true;
  }));
  EXPECT_TRUE(found.starts_with("after pass 'unscale_gradients': ")) << found;
  EXPECT_EQ(failure_of_training(spoiled("attach_optimizer", [](PassContext&) { return false; })),
            "after pass 'attach_optimizer': wanted a graph that has its updates attached: nothing updates %w");
}

TEST(Pipeline, ABrokenGraphIsBlamedOnWhoMadeIt) {
  Graph graph = parse("graph @g(%x: f32[8]) -> (%y) {\n  %y = exp %x\n}");
  graph.nodes()[0]->result()->type.shape = {9};
  const std::string found = failure([&] {
    PipelineOptions options;
    options.maker = "the import";
    lower(graph, options);
  });
  EXPECT_TRUE(found.starts_with("before any pass, as the import made it: ")) << found;
}

TEST(Pipeline, AGraphThatIsLoweredAlreadyIsTheCallersMistake) {
  Graph graph = parse("graph @g(%x: f32[8]) -> (%y) {\n  %y = exp %x\n}");
  lower(graph);
  try {
    lower(graph);
    FAIL() << "kernels were lowered again";
  } catch (const UserError& error) { EXPECT_EQ(std::string(error.what()), "the graph is lowered already: node %y is a kernel"); }
}

/// Which shows only once a pass has taken copies away: it is no fault of that pass, nor of gcomp.
TEST(Pipeline, StatesInACircleAreTheCallersMistake) {
  Graph graph = parse(R"(graph @swap(%x: f32[4]) -> (%y) {
  state %a: f32[4] parameter
  state %b: f32[4] parameter
  %one = full {dtype=f32, shape=[4], value=1}
  %p = mul %a, %one
  %q = mul %b, %one
  %y = add %x, %p
  update %a, %q @first
  update %b, %p @second
})");
  try {
    lower(graph, {});
    ADD_FAILURE() << "lowered";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "in pass 'simplify', graph @swap: node 'first': the updates of %a and %b exchange what states hold: "
                 "one's next value may be another, but not in a circle");
  }
}

TEST(Pipeline, APassStopsWithTheFormThatItLacks) {
  std::vector<Pass> rows(pipeline().begin(), pipeline().end());
  std::erase_if(rows, [](const Pass& pass) { return pass.name == "split_reductions"; });
  EXPECT_EQ(failure_of_lowering(rows),
            "pass 'fuse' needs a graph that has its long reductions split: no pass before has seen to that");
  EXPECT_EQ(failure_of_lowering(spoiled("expand", [](PassContext&) { return false; })),
            "after pass 'expand': wanted a graph that is primitive: node %y is a composite, 'softmax', which is not legal for "
            "the target");
  EXPECT_EQ(failure_of_lowering(spoiled("plan_memory",
                                        [](PassContext& c) {
                                          c.made.plan.emplace();
                                          return true;
                                        })),
            "after pass 'plan_memory': wanted a graph that has a memory plan: memory plan of @g: %x has no place");
}

TEST(Pipeline, WhatTheResultDoesNotNeedCanBeLeftOutAndNothingElse) {
  for (const Pass& pass : pipeline()) {
    if (pass.required.empty()) {
      EXPECT_EQ(failure_of_lowering(pipeline(), {std::string(pass.name)}), "") << pass.name;
      continue;
    }
    try {
      failure_of_lowering(pipeline(), {std::string(pass.name)});
      FAIL() << pass.name << " was left out";
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), concat("pass ", pass.name, ": that pass cannot be left out: ", pass.required));
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  }
}

// A pass by itself may stand in any order in which it does right, and is refused with the form elsewhere.
TEST(RunAlone, RefusesAGraphInAnotherForm) {
  const auto refused = [](std::string_view text, std::initializer_list<std::string_view> names) -> std::string {
    Case c{std::string(text)};
    Forms held;
    try {
      for (std::string_view name : names) run_alone(*find_pass(name), c.context, held);
    } catch (const UserError& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(refused(kForward, {"fuse"}),
            "it needs a graph that is primitive: node %y is a composite, 'softmax', which is not legal for the target");
  EXPECT_EQ(refused(kForward, {"expand", "fuse_epilogues"}).substr(0, 34), "it needs a graph that is fused: no");
  EXPECT_EQ(refused(kForward, {"expand", "fuse", "split_reductions"}).substr(0, 43), "it needs a graph that has no kernels yet: n");
  EXPECT_EQ(refused(kForward, {"expand", "split_reductions", "fuse_bias_gradients"}),
            "it comes too late for a graph that has its long reductions split");
  EXPECT_EQ(refused(kTrained, {"attach_optimizer"}), "it needs a graph that is differentiated: 0 gradients of 0 parameters");
  EXPECT_EQ(refused(kForward, {"expand", "match_attention"}), "it comes too late for a graph that is primitive");
  EXPECT_EQ(refused(kForward, {"expand", "simplify", "fuse", "order", "plan_memory"}), "");
}

}  // namespace
}  // namespace gcomp::passes
