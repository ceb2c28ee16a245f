#include "tests/codegen/attention_graphs.h"

#include <limits>

#include "codegen/whole.h"
#include "ir/builder.h"
#include "ir/expand.h"
#include "ir/ops/table.h"
#include "passes/differentiate.h"
#include "passes/fuse.h"
#include "passes/simplify.h"

namespace gcomp::tests {

using namespace gcomp::ir;

std::vector<AttentionCase> attention_cases() {
  const double lowest = -std::numeric_limits<float>::max();
  return {
      {.label = "plain", .batch = {2, 3}, .queries = 5, .keys = 7, .width = 4, .value_width = 4, .attributes = {{"scale", 0.5}}},
      {.label = "odd", .batch = {2}, .queries = 37, .keys = 70, .width = 19, .value_width = 6, .attributes = {{"scale", 0.23}}},
      {.label = "causal",
       .batch = {1, 2},
       .queries = 75,
       .keys = 75,
       .width = 16,
       .value_width = 16,
       .attributes = {{"causal", true}}},
      {.label = "causal_inside",
       .batch = {1},
       .queries = 150,
       .keys = 150,
       .width = 16,
       .value_width = 16,
       .mask = {1, 1, 150},
       .attributes = {{"causal", true}, {"scale", 0.25}}},
      {.label = "causal_more_keys",
       .batch = {2},
       .queries = 33,
       .keys = 81,
       .width = 8,
       .value_width = 24,
       .attributes = {{"causal", true}}},
      {.label = "causal_more_queries",
       .batch = {2},
       .queries = 81,
       .keys = 33,
       .width = 24,
       .value_width = 8,
       .attributes = {{"causal", true}}},
      {.label = "bias_of_keys", .batch = {2, 2}, .queries = 20, .keys = 35, .width = 12, .value_width = 12, .mask = {2, 1, 1, 35}},
      {.label = "bias_of_heads",
       .batch = {2, 3, 2},
       .queries = 9,
       .keys = 10,
       .width = 8,
       .value_width = 8,
       .mask = {1, 3, 1, 9, 10},
       .wide = true},
      {.label = "bool_mask",
       .batch = {2, 2},
       .queries = 18,
       .keys = 21,
       .width = 8,
       .value_width = 8,
       .mask = {1, 2, 18, 21},
       .boolean = true,
       .attributes = {{"hidden", lowest}}},
      {.label = "closed_rows_uniform",
       .batch = {2},
       .queries = 6,
       .keys = 3,
       .width = 8,
       .value_width = 8,
       .mask = {2, 6, 3},
       .boolean = true,
       .attributes = {{"hidden", lowest}}},
      {.label = "closed_rows_zero",
       .batch = {2},
       .queries = 12,
       .keys = 3,
       .width = 8,
       .value_width = 8,
       .mask = {2, 12, 3},
       .boolean = true,
       .attributes = {{"closed_rows_are_zero", true}, {"causal", true}}},
      {.label = "one", .batch = {1}, .queries = 1, .keys = 1, .width = 1, .value_width = 1},
      {.label = "width_64",
       .batch = {2},
       .queries = 70,
       .keys = 67,
       .width = 64,
       .value_width = 64,
       .attributes = {{"scale", 0.125}}},
      {.label = "width_128",
       .batch = {1},
       .queries = 40,
       .keys = 35,
       .width = 128,
       .value_width = 80,
       .attributes = {{"scale", 0.09}, {"causal", true}}},
  };
}

Graph attention_graph(DType dtype, const std::vector<AttentionCase>& cases) {
  Graph graph("attention");
  Builder b(graph);
  std::vector<Value*> wanted, outputs;
  std::vector<std::string> names;
  Var loss = b.full({compute_type(dtype), {}}, 0);
  for (const AttentionCase& c : cases) {
    const auto input = [&](std::int64_t rows, std::int64_t columns, std::string_view name) {
      Shape shape = c.batch;
      shape.insert(shape.end(), {rows, columns});
      return b.input({dtype, shape}, concat(c.label, ".", name));
    };
    std::vector<Var> operands{input(c.queries, c.width, "q"), input(c.keys, c.width, "k"), input(c.keys, c.value_width, "v")};
    for (const Var& operand : operands) wanted.push_back(operand.value);
    if (!c.mask.empty())
      operands.push_back(b.input({c.boolean ? DType::boolean : c.wide ? compute_type(dtype) : dtype, c.mask}, c.label + ".mask"));
    const std::vector<Var> results = b.apply_many(ops::kAttention, operands, c.attributes);
    for (const Var& result : results) outputs.push_back(result.value);
    for (const char* name : {".y", ".top", ".sum"}) names.push_back(c.label + name);
    Var weighted = b.cast(results[0] * input(c.queries, c.value_width, "dy"), compute_type(dtype));
    std::vector<std::int64_t> axes;
    for (std::int64_t a = 0; a < weighted.rank(); ++a) axes.push_back(a);
    loss = loss + b.sum(weighted, axes);
  }
  for (const AttentionCase& c : cases)
    for (const char* name : {".dq", ".dk", ".dv"}) names.push_back(c.label + name);
  const std::vector<Value*> gradients = passes::differentiate(graph, loss.value, wanted);
  outputs.insert(outputs.end(), gradients.begin(), gradients.end());
  for (std::size_t i = 0; i < outputs.size(); ++i) graph.rename(outputs[i], names[i]);
  graph.outputs() = outputs;
  graph.remove_dead();
  return graph;
}

void lower_whole(Graph& graph) {
  const runtime::Target target{runtime::TargetKind::cuda, "sm_90"};
  expand(graph, [&](const Node& node) { return !codegen::takes_whole(node, target); });
  passes::simplify(graph);
  passes::fuse(graph);
}

std::vector<LabelledGraph> attention_graphs() {
  std::vector<LabelledGraph> all;
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    LabelledGraph made{concat("attention.", name_of(dtype)), attention_graph(dtype, attention_cases()), -1, 1, 1};
    lower_whole(made.graph);
    all.push_back(std::move(made));
  }
  return all;
}

}  // namespace gcomp::tests
