#include "tests/codegen/cuda_graphs.h"

#include <functional>

#include "ir/base/integers.h"
#include "ir/builder.h"
#include "ir/expand.h"
#include "ir/ops/table.h"
#include "passes/fusion/fuse.h"
#include "passes/simplify.h"
#include "passes/training/autocast.h"
#include "passes/training/differentiate.h"
#include "passes/training/training.h"

namespace gcomp::tests {

using namespace gcomp::ir;

void lower_to_kernels(Graph& graph) {
  expand(graph);
  passes::simplify(graph);
  passes::fuse(graph);
}

namespace {

using Build = std::function<std::vector<Var>(Builder&)>;

/// A graph whose outputs are what `build` gives; lowered.
LabelledGraph pattern(std::string label, const Build& build, int largest = 2) {
  LabelledGraph made{label, Graph(label), -1, 1, largest};
  Builder b(made.graph);
  for (const Var& output : build(b)) made.graph.outputs().push_back(output.value);
  lower_to_kernels(made.graph);
  return made;
}

/// The output and the gradients of its squared sum with respect to all float inputs; lowered.
LabelledGraph with_gradients(std::string label, const Build& build, int largest = 2) {
  LabelledGraph made{label, Graph(label), -1, 1, largest};
  Builder b(made.graph);
  const Var y = build(b)[0];
  std::vector<std::int64_t> axes;
  for (std::int64_t a = 0; a < y.rank(); ++a) axes.push_back(a);
  const Var loss = b.sum(y * y, axes);
  std::vector<Value*> wanted;
  for (Value* input : made.graph.inputs())
    if (is_float(input->type.dtype)) wanted.push_back(input);
  made.graph.outputs() = {y.value};
  for (Value* gradient : passes::differentiate(made.graph, loss.value, wanted)) made.graph.outputs().push_back(gradient);
  lower_to_kernels(made.graph);
  return made;
}

Var softmax_of(Builder& b, Var x, std::int64_t axis) { return b.apply(ops::kSoftmax, {x}, {{"axis", axis}}); }
Var softmax(Builder& b, DType dtype, Shape shape, std::int64_t axis) { return softmax_of(b, b.input({dtype, shape}, "x"), axis); }

Var layer_norm(Builder& b, DType dtype, Shape shape) {
  const Shape row{shape.back()};
  const auto axis = static_cast<std::int64_t>(shape.size()) - 1;
  return b.apply(ops::kLayerNorm, {b.input({dtype, shape}, "x"), b.input({dtype, row}, "scale"), b.input({dtype, row}, "bias")},
                 {{"axis", axis}});
}

void add_rows(std::vector<LabelledGraph>& all) {
  all.push_back(pattern("softmax_10", [](Builder& b) { return std::vector{softmax(b, DType::f32, {70, 10}, 1)}; }));
  all.push_back(pattern("softmax_128", [](Builder& b) { return std::vector{softmax(b, DType::f32, {9, 128}, 1)}; }));
  all.push_back(pattern("softmax_many_rows", [](Builder& b) { return std::vector{softmax(b, DType::f32, {1030, 260}, 1)}; }));
  all.push_back(pattern("softmax_odd", [](Builder& b) { return std::vector{softmax(b, DType::f32, {3, 1001}, 1)}; }));
  all.push_back(pattern("softmax_kept_in_block", [](Builder& b) { return std::vector{softmax(b, DType::f32, {2, 6000}, 1)}; }));
  all.push_back(pattern("softmax_in_shared_memory", [](Builder& b) {
    return std::vector{softmax(b, DType::f32, {16, 20000}, 1)};
  }));
  all.push_back(pattern("softmax_read_again", [](Builder& b) { return std::vector{softmax(b, DType::f32, {16, 30000}, 1)}; }));
  all.push_back(pattern("softmax_f16", [](Builder& b) { return std::vector{softmax(b, DType::f16, {5, 512}, 1)}; }));
  all.push_back(pattern("softmax_middle_axis", [](Builder& b) { return std::vector{softmax(b, DType::f32, {2, 20, 33}, 1)}; }));
  // Rows that lie in longer ones and end within a vector: kept in registers of a warp and of a block, and read again.
  for (const std::int64_t width : {131, 1001, 20003})
    all.push_back(pattern(concat("softmax_ends_within_a_vector_", width), [width](Builder& b) {
      Var x = b.input({DType::bf16, {3, round_up(width, 8)}}, "x");
      return std::vector{b.pad(softmax_of(b, b.cast(b.slice_axis(x, 1, 0, width), DType::f32), 1), {0, 0}, {0, 8}, 0)};
    }));
  all.push_back(with_gradients("softmax_gradient", [](Builder& b) { return std::vector{softmax(b, DType::f32, {6, 48}, 1)}; }));
  all.push_back(with_gradients("layer_norm", [](Builder& b) { return std::vector{layer_norm(b, DType::f32, {7, 96})}; }));
  all.push_back(with_gradients("layer_norm_wide", [](Builder& b) { return std::vector{layer_norm(b, DType::f32, {3, 2048})}; }));
  all.push_back(with_gradients("layer_norm_bf16", [](Builder& b) { return std::vector{layer_norm(b, DType::bf16, {2, 4, 64})}; }));
  // Stores with reads of their own in steps of a kept row, of which the last round and the last step are not whole.
  all.push_back(pattern("layer_norm_residual", [](Builder& b) {
    Var y = layer_norm(b, DType::f32, {5, 1100}) + b.input({DType::f32, {5, 1100}}, "residual");
    return std::vector{y, b.cast(y, DType::bf16)};
  }));
  all.push_back(pattern("softmax_residual", [](Builder& b) {
    return std::vector{softmax(b, DType::f32, {16, 17000}, 1) + b.input({DType::f32, {16, 17000}}, "residual")};
  }));
  all.push_back(with_gradients(
      "cross_entropy",
      [](Builder& b) {
        return std::vector{b.apply(ops::kCrossEntropy, {b.input({DType::f32, {11, 33}}, "x"), b.input({DType::i64, {11}}, "label")},
                                   {{"axis", std::int64_t{1}}})};
      },
      3));
  // One position of each row is the label's, in one vector of many or in the last, which is not whole.
  for (const std::int64_t width : {17008, 17003})
    all.push_back(with_gradients(
        concat("cross_entropy_in_shared_memory_", width),
        [width](Builder& b) {
          Var x = b.slice_axis(b.input({DType::bf16, {16, 17008}}, "x"), 1, 0, width);
          return std::vector{b.apply(ops::kCrossEntropy, {b.cast(x, DType::f32), b.input({DType::i64, {16}}, "label")},
                                     {{"axis", std::int64_t{1}}})};
        },
        width));
  all.push_back(pattern("sum_of_all", [](Builder& b) {
    return std::vector{b.sum(b.input({DType::f32, {40, 1000}}, "x"), {0, 1})};
  }));
  all.push_back(pattern("sums_in_two_orders", [](Builder& b) {
    Var x = b.input({DType::f32, {5, 70, 9}}, "x"), y = b.input({DType::f32, {5, 9, 70}}, "y");
    return std::vector{b.sum(b.transpose(x, {0, 2, 1}) * y, {0, 1, 2}), b.sum(x * x, {0, 1, 2})};
  }));
  // Windows short enough to be written out, half of whose elements are NaN.
  all.push_back(pattern("positions_of_nan", [](Builder& b) {
    Var x = ops::kSqrt(b.input({DType::f32, {6, 5, 40}}, "x"));
    return std::vector{b.apply(ops::kArgMax, {x}, {{"axes", std::vector<std::int64_t>{1}}}),
                       b.apply(ops::kArgMin, {x}, {{"axes", std::vector<std::int64_t>{1}}}), ops::kIsNan(b.max(x, {1}))};
  }));
  all.push_back(pattern("positions", [](Builder& b) {
    Var x = b.input({DType::f32, {5, 700}}, "x"), y = b.input({DType::i32, {3, 40, 50}}, "y");
    return std::vector{b.apply(ops::kArgMax, {x}, {{"axes", std::vector<std::int64_t>{1}}}),
                       b.apply(ops::kArgMin, {x}, {{"axes", std::vector<std::int64_t>{0, 1}}}),
                       b.apply(ops::kArgMax, {y}, {{"axes", std::vector<std::int64_t>{1}}})};
  }));
}

void add_columns(std::vector<LabelledGraph>& all) {
  all.push_back(pattern("bias_gradient", [](Builder& b) {
    return std::vector{b.sum(b.input({DType::f32, {300, 70}}, "x"), {0})};
  }));
  all.push_back(pattern("few_columns", [](Builder& b) { return std::vector{b.sum(b.input({DType::f32, {4000, 3}}, "x"), {0})}; }));
  all.push_back(pattern("columns_f16", [](Builder& b) { return std::vector{b.sum(b.input({DType::f16, {100, 64}}, "x"), {0})}; }));
  all.push_back(pattern("column_maximum", [](Builder& b) {
    return std::vector{b.max(b.input({DType::f32, {3, 90, 40}}, "x"), {1})};
  }));
  // Joins of different sums share their shared memory, of which 13 columns of sums would need more than a block has.
  all.push_back(pattern("many_column_sums", [](Builder& b) {
    Var x = b.input({DType::f64, {100, 40}}, "x");
    std::vector<Var> sums;
    for (int i = 1; i <= 13; ++i) sums.push_back(b.sum(x * x * static_cast<double>(i), {0}));
    return sums;
  }));
  all.push_back(pattern("many_short_columns", [](Builder& b) {
    return std::vector{b.sum(b.input({DType::f32, {8, 17, 16400}}, "x"), {1})};
  }));
  // A round of eight rows whose last is not whole, vectors that do not fill a block, and rows that end before threads do.
  all.push_back(pattern("columns_bf16", [](Builder& b) {
    return std::vector{b.sum(b.input({DType::bf16, {2, 1000, 72}}, "x"), {1}), b.max(b.input({DType::bf16, {1100, 8}}, "y"), {0})};
  }));
  all.push_back(pattern("columns_of_bytes", [](Builder& b) {
    return std::vector{b.sum(b.cast(b.input({DType::u8, {77, 64}}, "x"), DType::i64), {0}),
                       b.sum(b.input({DType::f64, {50, 2}}, "y"), {0})};
  }));
  all.push_back(pattern("column_positions", [](Builder& b) {
    return std::vector{b.apply(ops::kArgMax, {b.input({DType::f32, {700, 12}}, "x")}, {{"axes", std::vector<std::int64_t>{0}}})};
  }));
  // Sums of a row's elements weighted by one number each, and of looked up rows: what a layer norm's gradients are.
  all.push_back(pattern(
      "columns_of_looked_up_rows",
      [](Builder& b) {
        Var x = b.gather(b.input({DType::f32, {30, 48}}, "table"), b.input({DType::i64, {200}}, "ids"), 0);
        Var w = b.input({DType::f32, {200}}, "w"), dy = b.cast(b.input({DType::bf16, {200, 48}}, "dy"), DType::f32);
        Var z = dy * x * b.broadcast(b.reshape(w, {200, 1}), {200, 48});
        return std::vector{b.sum(z, {0}), b.sum(dy, {0}), z * 2.0};
      },
      29));
  all.push_back(pattern("softmax_columns_bf16", [](Builder& b) { return std::vector{softmax(b, DType::bf16, {3, 150, 40}, 1)}; }));
  all.push_back(with_gradients("batch_norm", [](Builder& b) {
    return std::vector{b.apply_many(
        ops::kBatchNorm,
        {b.input({DType::f32, {4, 3, 5, 6}}, "x"), b.input({DType::f32, {3}}, "scale"), b.input({DType::f32, {3}}, "bias")},
        {})[0]};
  }));
  all.push_back(with_gradients("batch_norm_flat", [](Builder& b) {
    return std::vector{b.apply_many(
        ops::kBatchNorm,
        {b.input({DType::f32, {60, 40}}, "x"), b.input({DType::f32, {40}}, "scale"), b.input({DType::f32, {40}}, "bias")}, {})[0]};
  }));
}

/// The gradients of a layer norm of `shape` = {strips, rows, columns}: dx along each row, and of scale and shift the sums over each
/// strip of rows, `sums` of them.
LabelledGraph strips(DType stored, DType computed, const Shape& shape, int sums) {
  return pattern(concat("strips_", name_of(stored), "_", shape[1], "_", shape[2], "_", sums), [=](Builder& b) {
    Var dy = b.cast(b.input({stored, shape}, "dy"), computed), x = b.input({computed, shape}, "x");
    Var dh = dy * b.broadcast(b.input({computed, {shape[2]}}, "scale"), shape);
    const auto each = [&](Var row) { return b.broadcast(b.reshape(row, {shape[0], shape[1], 1}), shape); };
    const double share = 1.0 / static_cast<double>(shape[2]);
    Var dx = dh - each(b.sum(dh, {2}) * share) - x * each(b.sum(dh * x, {2}) * share);
    std::vector<Var> made{dx, b.cast(dx, stored), b.sum(dy * x, {1}), b.sum(dy, {1}), b.sum(dx, {1})};
    made.resize(2 + static_cast<std::size_t>(sums));
    return made;
  });
}

void add_strips(std::vector<LabelledGraph>& all) {
  all.push_back(strips(DType::f32, DType::f32, {32, 5, 64}, 2));     // parts of a warp to a row, not all of them at work
  all.push_back(strips(DType::bf16, DType::f32, {32, 19, 768}, 3));  // a warp, rows in turns, dx summed too
  all.push_back(strips(DType::f16, DType::f32, {33, 8, 264}, 2));    // columns that do not fill their steps
  all.push_back(strips(DType::f32, DType::f32, {32, 4, 75}, 1));     // no vectors
  all.push_back(strips(DType::bf16, DType::f32, {32, 4, 2048}, 2));  // a block to a row
  all.push_back(strips(DType::f64, DType::f64, {34, 9, 100}, 2));
}

/// Equal reductions in one launch: along `axis` of arrays of this shape.
LabelledGraph alike(DType dtype, const Shape& shape, std::int64_t axis, int count) {
  return pattern(concat("alike_", name_of(dtype), "_", shape[0], "_", shape[1], "_over_", axis), [=](Builder& b) {
    std::vector<Var> sums;
    for (int i = 0; i < count; ++i) sums.push_back(b.sum(b.input({dtype, shape}, concat("x", i)), {axis}));
    return sums;
  });
}

void add_alike(std::vector<LabelledGraph>& all) {
  all.push_back(alike(DType::f32, {512, 768}, 0, 5));   // columns, in several blocks
  all.push_back(alike(DType::f64, {40, 75}, 0, 3));     // the last block's columns are not all there
  all.push_back(alike(DType::bf16, {40, 1024}, 1, 4));  // rows, a block each
  all.push_back(alike(DType::f32, {5, 40}, 1, 2));      // of less than a warp
}

void add_views(std::vector<LabelledGraph>& all) {
  // Threads of several rows, which share a norm's parameters; the last of them has fewer.
  all.push_back(pattern("shared_parameters", [](Builder& b) {
    const Shape shape{32801, 64};
    const auto channel = [&](const std::string& name) { return b.broadcast(b.input({DType::f32, {64}}, name), shape); };
    return std::vector{ops::kRelu((b.input({DType::f32, shape}, "x") - channel("mean")) * channel("scale") + channel("shift"))};
  }));
  all.push_back(pattern("transpose", [](Builder& b) {
    return std::vector{b.transpose_last(b.input({DType::f32, {70, 65}}, "x")) * 2.0};
  }));
  all.push_back(pattern("transpose_f16", [](Builder& b) {
    return std::vector{b.transpose(b.input({DType::f16, {2, 65, 72}}, "x"), {0, 2, 1}) + 1.0};
  }));
  // Vectors on both sides, with a sum; and rows that end within a vector but lie in longer ones.
  all.push_back(pattern("transpose_bf16", [](Builder& b) {
    Var x = b.transpose(b.input({DType::bf16, {2, 136, 200}}, "x"), {0, 2, 1});
    return std::vector{x + b.input({DType::bf16, {2, 200, 136}}, "y")};
  }));
  all.push_back(pattern("transpose_cut", [](Builder& b) {
    return std::vector{b.transpose_last(b.slice_axis(b.input({DType::bf16, {72, 136}}, "x"), 1, 0, 131)) * 2.0};
  }));
  all.push_back(pattern("transpose_bytes", [](Builder& b) {
    return std::vector{b.transpose_last(b.input({DType::u8, {96, 80}}, "x"))};
  }));
  all.push_back(pattern("transpose_three", [](Builder& b) {
    Var x = b.input({DType::f32, {65, 3, 70}}, "x");
    return std::vector{b.transpose(x, {2, 1, 0}) + b.input({DType::f32, {70, 3, 65}}, "y")};
  }));
  // Six tiles of f64 do not fit into the shared memory of a block.
  all.push_back(pattern("many_transposes", [](Builder& b) {
    Var y = b.input({DType::f64, {72, 65}}, "x");
    for (int i = 0; i < 6; ++i) {
      const std::string name = std::to_string(i);
      y = b.apply(ops::kMaximum, {y, b.transpose_last(b.input({DType::f64, {65, 72}}, "t" + name))}) +
          b.input({DType::f64, {72, 65}}, "s" + name);
    }
    return std::vector{y};
  }));
  all.push_back(pattern("heads", [](Builder& b) {
    return std::vector{b.transpose(b.reshape(b.input({DType::f32, {2, 12, 32}}, "x"), {2, 12, 4, 8}), {0, 2, 1, 3}) * 0.5};
  }));
  // Images for a library's convolutions (passes/products/align_channels): channels filled up, and blocks of pixels as channels.
  all.push_back(pattern("channels_filled", [](Builder& b) {
    Var x = b.cast(b.input({DType::f32, {3, 3, 12, 8}}, "x"), DType::bf16);
    return std::vector{b.pad(b.transpose(x, {0, 2, 3, 1}), {0, 0, 0, 0}, {0, 0, 0, 5}, 0)};
  }));
  all.push_back(pattern("pixel_blocks", [](Builder& b) {
    Var x = b.transpose(b.cast(b.input({DType::f32, {2, 3, 8, 12}}, "x"), DType::bf16), {0, 2, 3, 1});
    Var blocks = b.reshape(b.transpose(b.reshape(x, {2, 4, 2, 6, 2, 3}), {0, 1, 3, 2, 4, 5}), {2, 4, 6, 12});
    return std::vector{b.pad(blocks, {0, 2, 2, 0}, {0, 1, 1, 4}, 0)};
  }));
  all.push_back(pattern("pad_and_concat", [](Builder& b) {
    Var x = b.input({DType::f32, {6, 40}}, "x"), y = b.input({DType::f32, {6, 24}}, "y");
    return std::vector{b.pad(b.concat({x, y}, 1), {1, 0}, {0, 8}, -1)};
  }));
  // All lanes of a vector come from one part, or from none.
  all.push_back(pattern("parts_of_vectors", [](Builder& b) {
    Var x = b.input({DType::bf16, {6, 40}}, "x"), y = b.input({DType::bf16, {6, 24}}, "y"), z = b.input({DType::bf16, {6, 8}}, "z");
    return std::vector{b.pad(b.concat({x, y, z}, 1), {1, 8}, {2, 16}, -1)};
  }));
  // The gradient of a loss over rows that end within a vector, stored in rows that do not: reads behind the row's end are in
  // bounds.
  all.push_back(pattern("padded_loss_gradient", [](Builder& b) {
    Var x = b.cast(b.slice_axis(b.input({DType::bf16, {7, 136}}, "x"), 1, 0, 133), DType::f32);
    const auto each = [&](Var v) { return b.broadcast(b.reshape(v, {7, 1}), {7, 133}); };
    Var p = ops::kExp(x - each(b.input({DType::f32, {7}}, "maximum"))) / each(ops::kExp(b.input({DType::f32, {7}}, "sum")));
    return std::vector{b.cast(b.pad(p * each(b.input({DType::f32, {7}}, "scale")), {0, 0}, {0, 3}, 0), DType::bf16)};
  }));
  // Channels that become last: each fills every third element, or every second of two results, one of them in reverse.
  all.push_back(pattern("channels_last", [](Builder& b) {
    Var x = b.transpose(b.input({DType::f32, {2, 3, 12, 20}}, "x"), {0, 2, 3, 1});
    Var y = b.transpose(b.input({DType::f16, {2, 2, 48}}, "y"), {0, 2, 1});
    return std::vector{b.cast(x, DType::bf16), y + y, b.slice(y, {0, 0, 1}, {2, 48, 2}, {1, 1, -1}), b.slice_axis(x, 3, 1, 2)};
  }));
  all.push_back(pattern("slices", [](Builder& b) {
    Var x = b.input({DType::f32, {8, 64}}, "x");
    return std::vector{b.slice_axis(x, 1, 32, 32) - b.slice_axis(x, 1, 0, 32), b.slice(x, {7, 63}, {4, 32}, {-2, -2})};
  }));
  all.push_back(pattern("gelu_bias", [](Builder& b) {
    Var x = b.input({DType::f32, {13, 64}}, "x") + b.broadcast(b.input({DType::f32, {64}}, "bias"), {13, 64});
    return std::vector{x * 0.5 * (ops::kErf(x * 0.7071067811865476) + 1.0)};
  }));
  all.push_back(pattern("mixed_widths", [](Builder& b) {
    Var x = b.input({DType::bf16, {3, 40}}, "x"), y = b.input({DType::f32, {3, 40}}, "y");
    Var z = b.cast(x, DType::f32) * y;
    return std::vector{z, b.cast(z, DType::bf16), z < y};
  }));
}

void add_positions(std::vector<LabelledGraph>& all) {
  all.push_back(with_gradients(
      "embedding",
      [](Builder& b) {
        return std::vector{b.gather(b.input({DType::f32, {50, 40}}, "table"), b.input({DType::i64, {6, 70}}, "ids"), 0)};
      },
      49));
  all.push_back(with_gradients(
      "embedding_wide",
      [](Builder& b) {
        return std::vector{b.gather(b.input({DType::f32, {5, 1500}}, "table"), b.input({DType::i32, {9}}, "ids"), 0)};
      },
      4));
  all.push_back(with_gradients(
      "gather_columns",
      [](Builder& b) {
        return std::vector{b.gather(b.input({DType::f32, {4, 30}}, "table"), b.input({DType::i64, {17}}, "ids"), 1)};
      },
      29));
  all.push_back(pattern(
      "scatter_f16",
      [](Builder& b) {
        return std::vector{b.apply(ops::kScatterAdd, {b.input({DType::i64, {40}}, "ids"), b.input({DType::f16, {40, 16}}, "x")},
                                   {{"axis", std::int64_t{0}}, {"size", std::int64_t{7}}})};
      },
      6));
  // Rows of vectors in 16 bits, ranges of several destinations, and most of those without any update.
  all.push_back(pattern(
      "scatter_bf16_updates",
      [](Builder& b) {
        Var x = b.cast(b.input({DType::bf16, {300, 72}}, "x"), DType::f32) * 0.5;
        return std::vector{b.apply(ops::kScatterAdd, {b.input({DType::i64, {300}}, "ids"), x},
                                   {{"axis", std::int64_t{0}}, {"size", std::int64_t{1100}}})};
      },
      1099));
  // More updates than are looked through at once, of single elements.
  all.push_back(pattern(
      "scatter_many",
      [](Builder& b) {
        return std::vector{b.apply(ops::kScatterAdd, {b.input({DType::i64, {2500}}, "ids"), b.input({DType::f32, {2500, 3}}, "x")},
                                   {{"axis", std::int64_t{0}}, {"size", std::int64_t{900}}})};
      },
      899));
  // All to the first two destinations: more than a block lists.
  for (const DType dtype : {DType::f32, DType::i64})
    all.push_back(pattern(
        concat("scatter_crowded_", name_of(dtype)),
        [dtype](Builder& b) {
          return std::vector{b.apply(ops::kScatterAdd, {b.input({DType::i32, {10000}}, "ids"), b.input({dtype, {10000, 4}}, "x")},
                                     {{"axis", std::int64_t{0}}, {"size", std::int64_t{600}}})};
        },
        1));
  all.push_back(pattern(
      "scatter_to_few",
      [](Builder& b) {
        Var x = b.cast(b.input({DType::bf16, {3, 500, 40}}, "x"), DType::f32);
        return std::vector{b.apply(ops::kScatterAdd, {b.input({DType::i64, {1500}}, "ids"), b.reshape(x, {1500, 40})},
                                   {{"axis", std::int64_t{0}}, {"size", std::int64_t{3}}})};
      },
      2));
  all.push_back(pattern("running_sums", [](Builder& b) {
    Var x = b.input({DType::f32, {200, 9}}, "x");
    return std::vector{b.apply(ops::kCumulativeSum, {x * 0.5}, {{"axis", std::int64_t{0}}}),
                       b.apply(ops::kCumulativeSum, {x}, {{"axis", std::int64_t{1}}, {"exclusive", true}, {"reverse", true}})};
  }));
  all.push_back(with_gradients("max_pool", [](Builder& b) {
    using Integers = std::vector<std::int64_t>;
    return std::vector{b.apply(ops::kMaxPool, {b.input({DType::f32, {2, 3, 12, 10}}, "x")},
                               {{"kernel", Integers{3, 3}},
                                {"strides", Integers{2, 2}},
                                {"low", Integers{1, 1}},
                                {"high", Integers{1, 1}},
                                {"dilations", Integers{1, 1}}})};
  }));
  all.push_back(pattern(
      "dropout",
      [](Builder& b) {
        Var x = b.input({DType::f32, {6, 50}}, "x"), seed = b.input({DType::i64, {}}, "seed"),
            step = b.input({DType::i64, {}}, "step");
        Var u =
            b.apply(ops::kRandomUniform, {seed, step}, {{"shape", std::vector<std::int64_t>{6, 50}}, {"op_id", std::int64_t{3}}});
        return std::vector{b.select(u < b.like(u, 0.25), b.like(x, 0), x * (1 / 0.75))};
      },
      100));
}

/// A kernel node with a nest of its own making.
LabelledGraph nest_pattern(std::string label, std::vector<TensorType> operands, LoopNest nest, std::vector<TensorType> results,
                           int largest) {
  LabelledGraph made{label, Graph(label), -1, 1, largest};
  std::vector<Value*> inputs;
  for (std::size_t i = 0; i < operands.size(); ++i) inputs.push_back(made.graph.add_input(operands[i], concat("x", i)));
  made.graph.outputs() = made.graph.append_kernel(ops::kKernel, inputs, std::move(nest), std::move(results), "")->results;
  return made;
}

// Scatters that no op of the table makes: the place depends on the column, and several updates share a point of it.
void add_scatters(std::vector<LabelledGraph>& all) {
  const Index row = Index::axis(0, 9), column = Index::axis(1, 12);
  LoopNest nest;
  nest.extents = {9, 12};
  Statement update;
  update.axes = {0, 1};
  update.value = read(DType::f32, 1, {row, column});
  nest.statements = {update};
  nest.outputs = {{0, {Index::loaded(read(DType::i64, 0, {row, column}), 5), column}, true}};
  const TensorType ids{DType::i64, {9, 12}}, values{DType::f32, {9, 12}};
  all.push_back(nest_pattern("scatter_elements", {ids, values}, nest, {{DType::f32, {5, 12}}}, 4));
  // Two results: no free axes that serve both.
  nest.outputs.push_back({0, {Index::loaded(read(DType::i64, 0, {row, column}), 5)}, true});
  all.push_back(nest_pattern("scatter_twice", {ids, values}, nest, {{DType::f32, {5, 12}}, {DType::f32, {5}}}, 4));
  // Two loaded digits.
  LoopNest pairs;
  pairs.extents = {9, 12};
  pairs.statements = {update};
  pairs.outputs = {{0, {Index::loaded(read(DType::i64, 0, {row}), 5), Index::loaded(read(DType::i64, 2, {row}), 3), column}, true}};
  all.push_back(
      nest_pattern("scatter_two_digits", {{DType::i64, {9}}, values, {DType::i64, {9}}}, pairs, {{DType::f32, {5, 3, 12}}}, 2));
  // Overlapping windows: the same element from several axes.
  nest.outputs = {{0, {row + column}, true}};
  all.push_back(nest_pattern("scatter_overlapping", {ids, values}, nest, {{DType::f32, {25}}}, 4));
}

/// In bf16, updates of many parameters read gradients of 2 bytes beside states of 4.
void add_training_step(std::vector<LabelledGraph>& all, DType precision) {
  LabelledGraph made{concat("mlp_step_", name_of(precision)), Graph("mlp_step"), -1, 1, 4};
  Builder b(made.graph);
  Var x = b.input({DType::f32, {16, 20}}, "x");
  const auto layer = [&](Var in, std::int64_t from, std::int64_t to, const std::string& name) {
    Var w = b.wrap(made.graph.add_state({DType::f32, {from, to}}, name + ".weight", StateRole::parameter));
    Var bias = b.wrap(made.graph.add_state({DType::f32, {to}}, name + ".bias", StateRole::parameter));
    return b.matmul(in, w) + b.broadcast(bias, {in.dim(0), to});
  };
  Var logits = layer(ops::kRelu(layer(x, 20, 37, "a")), 37, 5, "b");
  made.graph.outputs() = {logits.value};
  if (precision != DType::f32) passes::autocast(made.graph, {.low = precision});
  passes::make_training_step(made.graph, passes::parse_loss("cross_entropy"), {}, {"a.weight", "a.bias", "b.weight", "b.bias"});
  lower_to_kernels(made.graph);
  all.push_back(std::move(made));
}

}  // namespace

std::vector<LabelledGraph> pattern_graphs() {
  std::vector<LabelledGraph> all;
  add_rows(all);
  add_columns(all);
  add_strips(all);
  add_alike(all);
  add_views(all);
  add_positions(all);
  add_scatters(all);
  for (const DType precision : {DType::f32, DType::bf16}) add_training_step(all, precision);
  return all;
}

}  // namespace gcomp::tests
