#include "codegen/cuda/attention/attention.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "codegen/cuda/attention_fma_kit.h"
#include "codegen/cuda/attention_mma_kit.h"
#include "codegen/cuda/attention_stream.h"
#include "codegen/cuda/product_mma.h"
#include "codegen/cuda/products/instructions.h"
#include "codegen/kernel.h"
#include "codegen/kernel_writer.h"
#include "ir/matrices.h"
#include "ir/ops/table.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kWidest = 128;                    // of a head: what its tiles leave of 48 KiB of shared memory
constexpr std::int64_t kCountablePositions = 1ll << 30;  // positions and tiles: their sums fit 31 bits
constexpr std::size_t kAttentionBatches = 4;

/// Where the operands lie in the two nodes (ir/ops/attention.h).
struct Operands {
  const Value *q, *k, *v, *mask = nullptr, *dy = nullptr, *top = nullptr, *sum = nullptr, *delta = nullptr;
};
Operands operands_of(const Node& node) {
  const auto at = [&](std::size_t i) { return i < node.operands.size() ? node.operands[i] : nullptr; };
  if (node.op == &ops::kAttention) return {at(0), at(1), at(2), at(3)};
  return {at(0), at(1), at(2), at(7), at(3), at(4), at(5), at(6)};
}

/// One dimension of the batch with the strides along it: of the mask, then of each matrix, operands first.
struct BatchDimension {
  std::int64_t extent = 1;
  std::vector<std::int64_t> strides;
};

struct Sizes {
  Matrices matrices;
  Shape scores;  ///< [batch..., queries, keys]
  std::int64_t batches = 1, queries = 0, keys = 0, width = 0, value_width = 0;
  std::vector<BatchDimension> batch;  ///< neighbours collapsed where the strides allow it
  std::int64_t mask_query = 0, mask_key = 0;
};

Sizes sizes_of(const Node& node, const Value* mask) {
  Sizes s{.matrices = matrices_of(node), .scores = {}, .batch = {}};
  Shape& scores = s.scores;
  scores = s.matrices.operands[0].shape;
  scores.back() = s.matrices.operands[1].shape[scores.size() - 2];
  const std::size_t rank = scores.size();
  s.queries = scores[rank - 2];
  s.keys = scores[rank - 1];
  s.width = s.matrices.operands[0].shape.back();
  s.value_width = s.matrices.operands[2].shape.back();
  std::vector<std::vector<std::int64_t>> all(1, std::vector<std::int64_t>(rank));
  if (mask) {
    all[0] = row_major_strides(mask->type.shape);
    for (std::size_t d = 0; d < rank; ++d) all[0][d] *= mask->type.shape[d] > 1;
  }
  for (const auto* list : {&s.matrices.operands, &s.matrices.results})
    for (const Matrix& m : *list) all.push_back(m.view_or_dense().strides);
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    if (scores[d] == 1) continue;
    s.batches *= scores[d];
    BatchDimension next{scores[d], {}};
    for (const auto& strides : all) next.strides.push_back(strides[d]);
    const bool collapses =
        !s.batch.empty() && std::equal(next.strides.begin(), next.strides.end(), s.batch.back().strides.begin(),
                                       [&](std::int64_t inner, std::int64_t outer) { return outer == inner * scores[d]; });
    if (collapses) {
      next.extent *= s.batch.back().extent;
      s.batch.pop_back();
    }
    s.batch.push_back(std::move(next));
  }
  s.mask_query = all[0][rank - 2];
  s.mask_key = all[0][rank - 1];
  return s;
}

/// Tiles of the FMA kit for heads of up to `width`: what fits 48 KiB with rows padded by a vector of 16 bytes.
struct FmaTile {
  std::int64_t width, own, stream, rows;
};
constexpr int kFmaLanes = 8;
constexpr FmaTile kForward32[] = {{16, 64, 32, 4}, {32, 64, 64, 4}, {64, 64, 32, 4}, {128, 32, 16, 2}};
constexpr FmaTile kBackward32[] = {{16, 32, 32, 2}, {32, 64, 32, 4}, {64, 32, 32, 2}, {128, 16, 16, 1}};
constexpr FmaTile kForward64[] = {{16, 32, 32, 2}, {32, 32, 32, 2}, {64, 32, 16, 2}, {128, 16, 8, 1}};
constexpr FmaTile kBackward64[] = {{16, 32, 32, 2}, {32, 32, 32, 2}, {64, 16, 16, 1}, {128, 8, 8, 1}};

/// How a kernel's blocks work: the C++ type of their kit, and what the grid needs of it.
struct Kit {
  std::string type;
  std::int64_t own = 0, stream = 0;
  int threads = 0;
  int blocks = 1;  ///< that shall find registers on one multiprocessor
};

std::string value_type(DType dtype) { return dtype == DType::f64 ? "double" : "float"; }

Kit kit_for(DType dtype, std::int64_t width, bool backward, int architecture) {
  const std::string element(storage_type_text(dtype));
  if (dtype == DType::f16 || (dtype == DType::bf16 && architecture >= 80)) {
    const std::int64_t padded = (width + 15) / 16 * 16, own = 64, stream = padded > 64 ? (backward ? 16 : 32) : backward ? 32 : 64;
    return {concat("gc_mma_kit<", element, ", ", padded, ", ", own, ", ", stream, ">"), own, stream, static_cast<int>(2 * own),
            backward && padded <= 64 ? 4 : 1};
  }
  const auto& tiles = dtype == DType::f64 ? (backward ? kBackward64 : kForward64) : backward ? kBackward32 : kForward32;
  const FmaTile& tile = *std::find_if(std::begin(tiles), std::end(tiles), [&](const FmaTile& t) { return t.width >= width; });
  return {concat("gc_fma_kit<", element, ", ", value_type(dtype), ", ", tile.width, ", ", tile.own, ", ", tile.stream, ", ",
                 kFmaLanes, ", ", tile.rows, ">"),
          tile.own, tile.stream, static_cast<int>(tile.own / tile.rows) * kFmaLanes};
}

const std::string& attention_text() {
  static const std::string text = concat(kProductMma, "#ifndef GC_ATTENTION\n#define GC_ATTENTION\n", kAttentionStream,
                                         kAttentionFmaKit, kAttentionMmaKit, "#endif\n");
  return text;
}

/// Exact, as a C++ expression.
std::string number_text(double x) {
  if (std::isnan(x)) return "gc_nan64";
  if (std::isinf(x)) return x > 0 ? "gc_infinity64" : "-gc_infinity64";
  char text[40];
  return std::string(text, std::to_chars(text, text + sizeof text, x).ptr);
}

/// Of each batch dimension that the kernels know, one number of those that are there; `absent` for the others.
template <class Number>
std::string batch_text(const Sizes& s, std::int64_t absent, Number number) {
  std::string text;
  for (std::size_t i = 0; i < kAttentionBatches; ++i) {
    const std::size_t missing = kAttentionBatches - s.batch.size();
    text += concat(i ? ", " : "{", i < missing ? absent : number(s.batch[i - missing]));
  }
  return text + "}";
}
std::string strides_text(const Sizes& s, std::size_t of) {
  return batch_text(s, 0, [&](const BatchDimension& d) { return d.strides[of]; });
}

/// How many elements of a matrix can be moved at once: buffers start at a multiple of what the widest move needs.
std::int64_t matrix_vector_width(const Matrix& m, DType dtype) {
  const StridedView view = m.view_or_dense();
  std::int64_t width = std::gcd(16 / static_cast<std::int64_t>(size_of(dtype)), std::gcd(m.shape.back(), view.offset));
  for (std::size_t d = 0; d + 1 < m.shape.size(); ++d)
    if (m.shape[d] > 1) width = std::gcd(width, view.strides[d]);
  return width;
}

/// A gc_attention_view; `number` counts the matrices, operands first.
std::string view_text(const Sizes& s, const Matrix& m, std::size_t number, DType dtype) {
  const StridedView view = m.view_or_dense();
  const std::size_t rank = m.shape.size();
  const std::int64_t row = view.strides[rank - 2], end = (m.shape[rank - 2] - 1) * row + m.shape[rank - 1];
  return concat("{", view.offset, ", ", strides_text(s, number + 1), ", ", row, ", ", matrix_vector_width(m, dtype), ", ",
                end < kCountablePositions ? "true" : "false", "}");
}

std::string sizes_text(const Sizes& s, const Attributes& a, DType dtype) {
  const auto flag = [&](std::string_view name) { return a.flag(name) ? "true" : "false"; };
  std::string views;
  std::size_t number = 0;
  for (const auto* list : {&s.matrices.operands, &s.matrices.results})
    for (const Matrix& m : *list) views += concat(",\n      ", view_text(s, m, number++, dtype));
  return concat("  const gc_attention_sizes sizes = {", s.queries, ", ", s.keys, ", ", s.width, ", ", s.value_width, ", ",
                flag("causal"), ", ", flag("closed_rows_are_zero"), ", ", number_text(a.real("scale")), ", ",
                number_text(a.real("hidden")), ", ", batch_text(s, 1, [](const BatchDimension& d) { return d.extent; }), ", ",
                strides_text(s, 0), ", ", s.mask_query, ", ", s.mask_key, views, "};\n");
}

double count_of(std::int64_t n) { return static_cast<double>(n); }

/// Pairs of query and key that are computed.
double pairs_of(const Sizes& s, bool causal) {
  const double all = count_of(s.queries) * count_of(s.keys), seen = std::min(count_of(s.queries), count_of(s.keys));
  return count_of(s.batches) *
         (causal ? std::min(all, seen * (seen + 1) / 2 + (count_of(s.queries) - seen) * count_of(s.keys)) : all);
}

/// A value that a kernel reads or writes, and how much of it.
struct Touched {
  const Value* value;
  double bytes;
};
Touched all_of(const Value* value) { return {value, static_cast<double>(value->type.bytes())}; }
Touched part_of(const Value* value, const Matrix& m) {
  double bytes = static_cast<double>(size_of(value->type.dtype));
  const StridedView view = m.view_or_dense();
  for (std::size_t d = 0; d < m.shape.size(); ++d) bytes *= view.strides[d] == 0 ? 1 : count_of(m.shape[d]);
  return {value, bytes};
}

/// A launch of `function` whose blocks own tiles of `rows`. Its parameters are inputs, mask and results; a null mask is left out.
struct Launching {
  Sizes sizes;
  Attributes attributes;
  Operands operands;

  AttentionLaunch launch(std::string_view function, std::string_view shared, const Kit& kit, std::int64_t rows,
                         const std::vector<Touched>& inputs, const std::vector<Touched>& results, double product_flops,
                         double instructions) const {
    constexpr double kRowOps = 4;  // scale, exp, sum and what moves with them
    const double flops_a_pair = product_flops + kRowOps;
    AttentionLaunch made;
    std::string parameters, arguments;
    int next = 0;
    const auto add = [&](const Touched& touched, std::string_view qualifier) {
      const std::string name = concat("p", next++);
      parameters += concat(qualifier, storage_type_text(touched.value->type.dtype), "* ", name, ", ");
      arguments += ", " + name;
      made.values.push_back(touched.value);
      made.cost.bytes += touched.bytes;
    };
    for (const Touched& input : inputs) add(input, "const ");
    if (operands.mask) add(all_of(operands.mask), "const ");
    else arguments += ", (const gc_no_mask*)0";
    for (const Touched& result : results) add(result, "");
    const DType dtype = operands.q->type.dtype;
    made.text =
        concat(attention_text(), "extern \"C\" __global__ void __launch_bounds__(", kit.threads, ", ", kit.blocks, ") ",
               kNamePlaceholder, "(", parameters, "int*) {\n  typedef ", kit.type, " Kit;\n  __shared__ Kit::", shared,
               " shared;\n", sizes_text(sizes, attributes, dtype), "  ", function, "<Kit>(shared, sizes", arguments, ");\n}\n");
    made.grid = {.blocks = sizes.batches * quotient_up(rows, kit.own), .threads = kit.threads};
    made.cost.flops = flops_a_pair * pairs_of(sizes, attributes.flag("causal"));
    made.cost.dtype = dtype;
    made.cost.work = {Family::attention, traffic(dtype, kit, rows, product_flops, instructions)};
    return made;
  }

  /// A block computes whole tiles, on the diagonal too, and reads what it streams from the second cache.
  Traffic traffic(DType dtype, const Kit& kit, std::int64_t rows, double product_flops, double instructions) const {
    const double own = count_of(kit.own), blocks = count_of(sizes.batches * quotient_up(rows, kit.own));
    const double pairs = std::max(pairs_of(sizes, attributes.flag("causal")) + blocks * own * own / 2, blocks * own);
    Traffic made;
    made.l2_bytes = pairs / own * count_of(sizes.width + sizes.value_width) * static_cast<double>(size_of(dtype));
    const double flops = product_flops * pairs;
    if (uses_tensor_cores(dtype)) {
      made.mma_flops = flops;
      made.instructions = flops / kMmaFlops * 32 * instructions;
    } else {
      made.instructions = flops / 2 * kInstructionsAnFma;
    }
    // One wait for each tile that is streamed.
    made.cache_waits = blocks * kit.threads * std::max(pairs / blocks / own / count_of(kit.stream), 1.0);
    return made;
  }
};

}  // namespace

bool takes_attention(const Node& node) {
  if (node.op != &ops::kAttention && node.op != &ops::kAttentionGradient) return false;
  const Operands o = operands_of(node);
  const DType dtype = o.q->type.dtype;
  for (const Value* operand : node.operands)
    if (operand && operand->type.elements() == 0) return false;
  for (const Value* rows : {o.top, o.sum, o.delta})
    if (rows && rows->type.dtype != compute_type(dtype)) return false;
  if (o.mask && o.mask->type.dtype != DType::boolean && o.mask->type.dtype != dtype && o.mask->type.dtype != compute_type(dtype))
    return false;
  const Sizes s = sizes_of(node, o.mask);
  for (const auto* list : {&s.matrices.operands, &s.matrices.results})
    for (const Matrix& m : *list)
      if (m.shape.back() > 1 && m.view_or_dense().strides.back() != 1) return false;
  return is_float(dtype) && std::max(s.width, s.value_width) <= kWidest && s.batch.size() <= kAttentionBatches &&
         s.queries < kCountablePositions && s.keys < kCountablePositions && s.batches < kCountablePositions &&
         s.batches * quotient_up(std::max(s.queries, s.keys), 8) < kCountablePositions;
}

std::vector<AttentionLaunch> attention_launches(const Node& node, int architecture) {
  const Operands o = operands_of(node);
  const Launching l{sizes_of(node, o.mask), with_defaults(*node.op, node.attributes), o};
  const Sizes& s = l.sizes;
  const double width = count_of(s.width), value_width = count_of(s.value_width);
  const Kit kit = kit_for(o.q->type.dtype, std::max(s.width, s.value_width), node.op == &ops::kAttentionGradient, architecture);
  const std::vector<Value*>& r = node.results;
  std::vector<Touched> inputs, results;
  for (const Matrix& m : s.matrices.operands) inputs.push_back(part_of(node.operands[m.value], m));
  for (const Matrix& m : s.matrices.results) results.push_back(part_of(r[m.value], m));
  if (node.op == &ops::kAttention)
    return {l.launch("gc_attention", "Forward", kit, s.queries, inputs, {results[0], all_of(r[1]), all_of(r[2])},
                     2 * (width + value_width), kAttentionForward)};
  for (const Value* rows : {o.top, o.sum, o.delta}) inputs.push_back(all_of(rows));
  Kit keys = kit;
  keys.blocks = 1;  // the sums of two matrices take all registers
  return {l.launch("gc_attention_query_gradient", "Backward", kit, s.queries, inputs, {results[0]}, 2 * (2 * width + value_width),
                   kAttentionQueryGradient),
          l.launch("gc_attention_key_gradient", "Backward", keys, s.keys, inputs, {results[1], results[2]},
                   4 * (width + value_width), kAttentionKeyGradient)};
}

}  // namespace gcomp::codegen::cuda
