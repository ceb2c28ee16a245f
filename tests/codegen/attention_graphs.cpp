#include "tests/codegen/attention_graphs.h"

#include <limits>

#include "codegen/target.h"
#include "ir/builder.h"
#include "ir/expand.h"
#include "ir/ops/table.h"
#include "ir/packed_bits.h"
#include "passes/fusion/fuse.h"
#include "passes/simplify.h"
#include "passes/training/differentiate.h"
#include "passes/views/view_operands.h"

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
      {.label = "width_200",
       .batch = {1},
       .queries = 40,
       .keys = 35,
       .width = 200,
       .value_width = 136,
       .attributes = {{"scale", 0.07}}},
      {.label = "width_256",
       .batch = {2},
       .queries = 50,
       .keys = 50,
       .width = 256,
       .value_width = 256,
       .attributes = {{"scale", 0.06}, {"causal", true}},
       .layout = AttentionLayout::packed},
      {.label = "packed",
       .batch = {2, 3},
       .queries = 37,
       .keys = 37,
       .width = 16,
       .value_width = 16,
       .attributes = {{"scale", 0.25}, {"causal", true}},
       .layout = AttentionLayout::packed},
      {.label = "packed_odd",
       .batch = {2, 2},
       .queries = 21,
       .keys = 21,
       .width = 7,
       .value_width = 10,
       .attributes = {{"scale", 0.4}},
       .layout = AttentionLayout::packed},
      {.label = "separate",
       .batch = {2, 3},
       .queries = 70,
       .keys = 35,
       .width = 8,
       .value_width = 12,
       .mask = {2, 1, 1, 35},
       .layout = AttentionLayout::separate},
      {.label = "sequence_first",
       .batch = {3, 2},
       .queries = 19,
       .keys = 19,
       .width = 24,
       .value_width = 24,
       .attributes = {{"scale", 0.2}},
       .layout = AttentionLayout::sequence_first},
      {.label = "cross",
       .batch = {2, 2},
       .queries = 9,
       .keys = 66,
       .width = 32,
       .value_width = 5,
       .mask = {1, 2, 9, 66},
       .boolean = true,
       .layout = AttentionLayout::cross},
      {.label = "shared",
       .batch = {2, 4},
       .queries = 33,
       .keys = 40,
       .width = 12,
       .value_width = 12,
       .attributes = {{"causal", true}},
       .layout = AttentionLayout::shared},
      {.label = "dropout",
       .batch = {2, 3},
       .queries = 37,
       .keys = 70,
       .width = 19,
       .value_width = 6,
       .attributes = {{"scale", 0.23}, {"dropout", 0.3}}},
      {.label = "dropout_masked",
       .batch = {2, 2},
       .queries = 66,
       .keys = 66,
       .width = 40,
       .value_width = 40,
       .mask = {2, 1, 1, 66},
       .boolean = true,
       .attributes = {{"causal", true}, {"closed_rows_are_zero", true}, {"dropout", 0.1}},
       .layout = AttentionLayout::packed},
  };
}

std::vector<AttentionCase> short_attention_cases() {
  const auto of = [](std::string label, std::int64_t queries, std::int64_t keys, std::int64_t width, std::int64_t value_width) {
    return AttentionCase{.label = std::move(label),
                         .batch = {1, 2},
                         .queries = queries,
                         .keys = keys,
                         .width = width,
                         .value_width = value_width,
                         .attributes = {{"scale", 0.2}}};
  };
  std::vector<AttentionCase> all = {of("short_1", 1, 1, 64, 64),
                                    of("short_17", 17, 17, 64, 64),
                                    of("short_197", 197, 197, 64, 64),
                                    of("short_200", 200, 200, 30, 50),
                                    of("short_256", 256, 256, 64, 64),
                                    of("short_causal", 197, 197, 64, 48),
                                    of("short_causal_17", 17, 17, 64, 64),
                                    of("short_few_queries", 5, 130, 16, 64),
                                    of("short_many_queries", 150, 33, 41, 23),
                                    of("short_queries_of_tiles", 64, 96, 48, 48),
                                    of("short_causal_wide", 40, 161, 33, 16),
                                    of("short_causal_high", 161, 40, 16, 64)};
  for (AttentionCase& c : all) c.attributes.set("causal", c.label.find("causal") != std::string::npos);
  AttentionCase packed = of("short_packed", 70, 70, 64, 64), first = of("short_sequence_first", 197, 197, 64, 64);
  packed.layout = AttentionLayout::packed;
  first.layout = AttentionLayout::sequence_first;
  all.insert(all.end(), {std::move(packed), std::move(first)});
  return all;
}

AttentionCase outruns_library() {
  return {.label = "outruns_library",
          .batch = {11, 12},
          .queries = 19,
          .keys = 19,
          .width = 32,
          .value_width = 32,
          .attributes = {{"scale", 0.25}}};
}

namespace {

/// q, k and v of a case, made of inputs that are added to `inputs`.
class AttentionInputs {
 public:
  AttentionInputs(Builder& b, const AttentionCase& c, DType dtype, std::vector<Var>& inputs)
      : b_(b), c_(c), dtype_(dtype), inputs_(inputs) {}

  std::vector<Var> operands() {
    const std::int64_t heads = c_.batch.back(), d = c_.width, e = c_.value_width;
    switch (c_.layout) {
      case AttentionLayout::matrices: return {matrix("q", c_.queries, d), matrix("k", c_.keys, d), matrix("v", c_.keys, e)};
      case AttentionLayout::packed: {
        Var x = rows("x", c_.queries, heads * (2 * d + e));
        return {part(x, 0, d), part(x, heads * d, d), part(x, 2 * heads * d, e)};
      }
      case AttentionLayout::separate:
        return {part(rows("q", c_.queries, heads * d), 0, d), part(rows("k", c_.keys, heads * d), 0, d),
                part(rows("v", c_.keys, heads * e), 0, e)};
      case AttentionLayout::cross: {
        Var x = rows("kv", c_.keys, heads * (d + e));
        return {part(rows("q", c_.queries, heads * d), 0, d), part(x, 0, d), part(x, heads * d, e)};
      }
      case AttentionLayout::shared:
        return {part(rows("q", c_.queries, heads * d), 0, d), for_all_heads(rows("k", c_.keys, d)),
                for_all_heads(rows("v", c_.keys, e))};
      case AttentionLayout::sequence_first: break;
    }
    Var x = input("x", {c_.queries, c_.batch[0], 3 * heads * d});
    x = b_.reshape(b_.transpose(b_.reshape(x, {1, c_.queries, c_.batch[0], 3, heads * d}), {3, 1, 2, 0, 4}),
                   {3, c_.queries, c_.batch[0], heads * d});
    std::vector<Var> parts;
    for (std::int64_t i = 0; i < 3; ++i) {
      Var flat = b_.reshape(b_.slice_axis(x, 0, i, 1), {c_.queries, c_.batch[0] * heads, d});
      parts.push_back(b_.reshape(b_.transpose(flat, {1, 0, 2}), {c_.batch[0], heads, c_.queries, d}));
    }
    return parts;
  }

  /// y as the next layer reads it.
  Var result(Var y) const {
    if (c_.layout == AttentionLayout::matrices) return y;
    const bool first = c_.layout == AttentionLayout::sequence_first;
    Var moved = b_.transpose(y, first ? std::vector<std::int64_t>{2, 0, 1, 3} : std::vector<std::int64_t>{0, 2, 1, 3});
    return b_.reshape(moved, {moved.dim(0), moved.dim(1), moved.dim(2) * moved.dim(3)});
  }

 private:
  Var input(std::string_view name, Shape shape) {
    inputs_.push_back(b_.input({dtype_, std::move(shape)}, concat(c_.label, ".", name)));
    return inputs_.back();
  }
  Var matrix(std::string_view name, std::int64_t rows, std::int64_t columns) {
    Shape shape = c_.batch;
    shape.insert(shape.end(), {rows, columns});
    return input(name, shape);
  }
  Var rows(std::string_view name, std::int64_t rows, std::int64_t columns) { return input(name, {c_.batch[0], rows, columns}); }
  Var part(Var x, std::int64_t start, std::int64_t columns) {
    const std::int64_t heads = c_.batch.back();
    Var y = b_.slice_axis(x, 2, start, heads * columns);
    return b_.transpose(b_.reshape(y, {x.dim(0), x.dim(1), heads, columns}), {0, 2, 1, 3});
  }
  Var for_all_heads(Var x) { return b_.broadcast(x, {x.dim(0), c_.batch.back(), x.dim(1), x.dim(2)}, {0, 2, 3}); }

  Builder& b_;
  const AttentionCase& c_;
  DType dtype_;
  std::vector<Var>& inputs_;
};

}  // namespace

Graph attention_graph(DType dtype, const std::vector<AttentionCase>& cases) {
  Graph graph("attention");
  Builder b(graph);
  std::vector<Value*> wanted, outputs;
  std::vector<std::string> names;
  Var loss = b.full({compute_type(dtype), {}}, 0);
  for (const AttentionCase& c : cases) {
    std::vector<Var> inputs;
    AttentionInputs made(b, c, dtype, inputs);
    std::vector<Var> operands = made.operands();
    for (const Var& input : inputs) wanted.push_back(input.value);
    if (!c.mask.empty())
      operands.push_back(b.input({c.boolean ? DType::boolean : c.wide ? compute_type(dtype) : dtype, c.mask}, c.label + ".mask"));
    if (c.attributes.find("dropout")) {
      Shape scores = c.batch;
      scores.insert(scores.end(), {c.queries, c.keys});
      if (c.mask.empty()) operands.emplace_back();
      operands.push_back(pack_bits(b, b.input({DType::boolean, scores}, c.label + ".keep")));
    }
    const std::vector<Var> results = b.apply_many(ops::kAttention, operands, c.attributes);
    Var y = made.result(results[0]);
    for (const Var& result : {y, results[1], results[2]}) outputs.push_back(result.value);
    for (const char* name : {".y", ".top", ".sum"}) names.push_back(c.label + name);
    Var weighted = b.cast(y * b.input(y.type(), c.label + ".dy"), compute_type(dtype));
    std::vector<std::int64_t> axes;
    for (std::int64_t a = 0; a < weighted.rank(); ++a) axes.push_back(a);
    loss = loss + b.sum(weighted, axes);
  }
  for (const Value* input : wanted) names.push_back(input->name + ".gradient");
  const std::vector<Value*> gradients = passes::differentiate(graph, loss.value, wanted);
  outputs.insert(outputs.end(), gradients.begin(), gradients.end());
  for (std::size_t i = 0; i < outputs.size(); ++i) graph.rename(outputs[i], names[i]);
  graph.outputs() = outputs;
  graph.remove_dead();
  return graph;
}

void lower_unexpanded(Graph& graph) { lower_unexpanded(graph, codegen::target_info({runtime::TargetKind::cuda, "sm_90"})); }

void lower_unexpanded(Graph& graph, const TargetInfo& info) {
  expand(graph, [&](const Node& node) { return !info.is_legal(node); });
  passes::simplify(graph);
  passes::view_operands(graph, info);
  passes::simplify(graph);
  passes::fuse(graph);
}

std::vector<LabelledGraph> attention_graphs() {
  std::vector<LabelledGraph> all;
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    LabelledGraph made{concat("attention.", name_of(dtype)), attention_graph(dtype, attention_cases()), -1, 1, 1};
    lower_unexpanded(made.graph);
    all.push_back(std::move(made));
  }
  for (DType dtype : {DType::f16, DType::bf16}) {
    LabelledGraph made{concat("short_attention.", name_of(dtype)), attention_graph(dtype, short_attention_cases()), -1, 1, 1};
    lower_unexpanded(made.graph);
    all.push_back(std::move(made));
  }
  return all;
}

}  // namespace gcomp::tests
