#include "codegen/cuda/attention/attention.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "codegen/attention_shape.h"
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

/// How many elements of a matrix can be moved at once: buffers start at a multiple of what the widest move needs.
std::int64_t matrix_vector_width(const Matrix& m, DType dtype) {
  const StridedView view = m.view_or_dense();
  std::int64_t width = std::gcd(16 / static_cast<std::int64_t>(size_of(dtype)), std::gcd(m.shape.back(), view.offset));
  for (std::size_t d = 0; d + 1 < m.shape.size(); ++d)
    if (m.shape[d] > 1) width = std::gcd(width, view.strides[d]);
  return width;
}

/// A gc_attention_view; `number` counts the matrices, operands first.
std::string view_text(const AttentionShape& s, const Matrix& m, std::size_t number, DType dtype) {
  const StridedView view = m.view_or_dense();
  const std::size_t rank = m.shape.size();
  const std::int64_t row = view.strides[rank - 2], end = (m.shape[rank - 2] - 1) * row + m.shape[rank - 1];
  return concat("{", view.offset, ", ", attention_strides_text(s, number + 1), ", ", row, ", ", matrix_vector_width(m, dtype), ", ",
                end < kCountablePositions ? "true" : "false", "}");
}

std::string sizes_text(const AttentionShape& s, const Attributes& a, DType dtype) {
  const auto flag = [&](std::string_view name) { return a.flag(name) ? "true" : "false"; };
  std::string views;
  std::size_t number = 0;
  for (const auto* list : {&s.matrices.operands, &s.matrices.results})
    for (const Matrix& m : *list) views += concat(",\n      ", view_text(s, m, number++, dtype));
  return concat("  const gc_attention_sizes sizes = {", s.queries, ", ", s.keys, ", ", s.width, ", ", s.value_width, ", ",
                flag("causal"), ", ", flag("closed_rows_are_zero"), ", ", attention_number_text(a.real("scale")), ", ",
                attention_number_text(a.real("hidden")), ", ", attention_extents_text(s), ", ", attention_strides_text(s, 0), ", ",
                s.mask_query, ", ", s.mask_key, views, "};\n");
}

double count_of(std::int64_t n) { return static_cast<double>(n); }

/// A launch of `function` whose blocks own tiles of `rows`. Its parameters are inputs, mask and results; a null mask is left out.
struct Launching {
  AttentionShape sizes;
  Attributes attributes;
  AttentionOperands operands;

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
    made.cost.flops = flops_a_pair * attention_pairs(sizes, attributes.flag("causal"));
    made.cost.dtype = dtype;
    made.cost.work = {Family::attention, traffic(dtype, kit, rows, product_flops, instructions)};
    return made;
  }

  /// A block computes whole tiles, on the diagonal too, and reads what it streams from the second cache.
  Traffic traffic(DType dtype, const Kit& kit, std::int64_t rows, double product_flops, double instructions) const {
    const double own = count_of(kit.own), blocks = count_of(sizes.batches * quotient_up(rows, kit.own));
    const double pairs = std::max(attention_pairs(sizes, attributes.flag("causal")) + blocks * own * own / 2, blocks * own);
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
  if (!is_streamable(node)) return false;
  const AttentionOperands o = attention_operands(node);
  const DType dtype = o.q->type.dtype;
  if (o.mask && o.mask->type.dtype != DType::boolean && o.mask->type.dtype != dtype && o.mask->type.dtype != compute_type(dtype))
    return false;
  const AttentionShape s = attention_shape(node, o.mask);
  return is_float(dtype) && std::max(s.width, s.value_width) <= kWidest && s.queries < kCountablePositions &&
         s.keys < kCountablePositions && s.batches < kCountablePositions &&
         s.batches * quotient_up(std::max(s.queries, s.keys), 8) < kCountablePositions;
}

std::optional<runtime::AttentionCall> attention_call(const Node& node, const BufferOf& buffer_of) {
  const AttentionOperands o = attention_operands(node);
  const DType dtype = o.q->type.dtype;
  const AttentionShape s = attention_shape(node, o.mask);
  if ((dtype != DType::f16 && dtype != DType::bf16) || o.mask || s.batch.size() > runtime::kAttentionBatches) return std::nullopt;
  const Attributes attributes = with_defaults(*node.op, node.attributes);
  const bool forward = node.op == &ops::kAttention;
  runtime::AttentionCall call{.kind = forward ? runtime::AttentionKind::forward : runtime::AttentionKind::gradient,
                              .dtype = dtype,
                              .batch = {},
                              .queries = s.queries,
                              .keys = s.keys,
                              .width = s.width,
                              .value_width = s.value_width,
                              .scale = attributes.real("scale"),
                              .causal = attributes.flag("causal"),
                              .q = {},
                              .k = {},
                              .v = {},
                              .y = {},
                              .dy = {},
                              .dq = {},
                              .dk = {},
                              .dv = {},
                              .generated = {},
                              .origin = origin_of(node)};
  for (const BatchDimension& dimension : s.batch) call.batch.push_back(dimension.extent);
  std::size_t number = 0;
  const auto view = [&](const Matrix& m, const Value* value) {
    const StridedView from = m.view_or_dense();
    runtime::MatrixView made{.buffer = buffer_of(value),
                             .offset = from.offset,
                             .batch_strides = {},
                             .row_stride = from.strides[from.strides.size() - 2],
                             .column_stride = 1};
    ++number;
    for (const BatchDimension& dimension : s.batch) made.batch_strides.push_back(dimension.strides[number]);
    return made;
  };
  const auto& read = s.matrices.operands;
  call.q = view(read[0], o.q);
  call.k = view(read[1], o.k);
  call.v = view(read[2], o.v);
  if (!forward) call.dy = view(read[3], o.dy);
  const std::array<runtime::MatrixView*, 3> written = {forward ? &call.y : &call.dq, &call.dk, &call.dv};
  for (std::size_t i = 0; i < s.matrices.results.size(); ++i)
    *written[i] = view(s.matrices.results[i], node.results[s.matrices.results[i].value]);
  if (!forward) call.y = view(*s.forward_result, o.y);
  call.top = buffer_of(forward ? node.results[1] : o.top);
  call.sum = buffer_of(forward ? node.results[2] : o.sum);
  return call;
}

std::vector<AttentionLaunch> attention_launches(const Node& node, int architecture) {
  const AttentionOperands o = attention_operands(node);
  const Launching l{attention_shape(node, o.mask), with_defaults(*node.op, node.attributes), o};
  const AttentionShape& s = l.sizes;
  const auto width = static_cast<double>(s.width), value_width = static_cast<double>(s.value_width);
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
