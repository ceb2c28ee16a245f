#include "codegen/cpu/attention/attention.h"

#include <algorithm>

#include "codegen/attention_shape.h"
#include "codegen/cpu/attention_gradient_text.h"
#include "codegen/cpu/attention_text.h"
#include "codegen/cpu/attention_tiles_text.h"
#include "codegen/kernel.h"
#include "codegen/kernel_writer.h"
#include "ir/ops/table.h"
#include "ir/packed_bits.h"

namespace gcomp::codegen::cpu {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kWidest = 128;      // of a head: ten tiles of it stand on a thread's stack
constexpr std::int64_t kTileQueries = 64;  // kTile of stream.h
constexpr std::int64_t kFewestHeads = 4;   // of all batches: a task of the gradient owns one
// Of the sums of dq of a head that stand on the stack beside those tiles; more bytes would be too many for a thread of an
// application.
constexpr std::int64_t kMostSums = 256 << 10;

/// To whole tiles of registers of every instruction set.
std::int64_t padded_width(const AttentionShape& s) { return quotient_up(std::max(s.width, s.value_width), 32) * 32; }

std::string attention_text(DType dtype) {
  std::string text = concat("#ifndef GC_ATTENTION\n#define GC_ATTENTION\n", kCpuAttention, kCpuAttentionGradient, "#endif\n");
  if (dtype == DType::bf16)
    text += concat("#ifndef GC_ATTENTION_TILES\n#define GC_ATTENTION_TILES\n", kCpuAttentionTiles, "#endif\n");
  return text;
}

/// Rows of dq whose sums a gradient keeps, whole tiles of them; 0 where they would be too many (gradient.h). Results in f32 are
/// their own sums.
std::int64_t kept_queries(const AttentionShape& s, DType dtype) {
  const std::int64_t queries = quotient_up(s.queries, kTileQueries) * kTileQueries;
  return dtype == DType::f32 || 4 * queries * padded_width(s) <= kMostSums ? queries : 0;
}

std::string float_text(double x) { return concat("(float)", attention_number_text(x)); }

/// A gc_attention::sizes.
std::string sizes_text(const AttentionShape& s, const Attributes& a) {
  const auto flag = [&](std::string_view name) { return a.flag(name) ? "true" : "false"; };
  std::string text = concat("{", s.queries, ", ", s.keys, ", ", s.width, ", ", s.value_width, ", ", flag("causal"), ", ",
                            flag("closed_rows_are_zero"), ", ", float_text(a.real("scale")), ", ", float_text(a.real("hidden")),
                            ", ", float_text(1 / (1 - a.real("dropout"))), ", ", bytes_of_bits(s.keys), ", ",
                            attention_extents_text(s), ", ", attention_strides_text(s, 0), ", ", s.mask_query);
  std::size_t number = 1;
  for (const auto* list : {&s.matrices.operands, &s.matrices.results})
    for (const Matrix& m : *list) {
      const StridedView view = m.view_or_dense();
      text += concat(", {", view.offset, ", ", attention_strides_text(s, number++), ", ", view.strides[m.shape.size() - 2], "}");
    }
  return text + "}";
}

/// The kernel's pointers as arguments: inputs, mask, kept, results. What a node has not is left out of the pointers.
struct Arguments {
  std::string text;
  AttentionLaunch* launch;

  void add(const Touched& touched, std::string_view qualifier = "const ") {
    const std::string_view type = storage_type_text(touched.value->type.dtype);
    text += concat(", (", qualifier, type, "*)p[", launch->values.size(), "]");
    launch->values.push_back(touched.value);
    launch->cost.bytes += touched.bytes;
  }
};

}  // namespace

bool takes_attention(const Node& node) {
  if (!is_streamable(node)) return false;
  const AttentionOperands o = attention_operands(node);
  const DType dtype = o.q->type.dtype;
  if (dtype != DType::f32 && dtype != DType::bf16) return false;
  if (o.mask && o.mask->type.dtype != DType::boolean && o.mask->type.dtype != DType::f32 && o.mask->type.dtype != dtype)
    return false;
  const AttentionShape s = attention_shape(node, o.mask);
  return std::max(s.width, s.value_width) <= kWidest;
}

bool gains_from_streaming(const Node& node) {
  if (!takes_attention(node)) return false;
  const AttentionShape s = attention_shape(node, nullptr);
  const bool causal = with_defaults(*node.op, node.attributes).flag("causal");
  // Under a causal mask half of the tiles are left out, which pays for as much padding.
  const std::int64_t used = s.width + s.value_width, computed = 2 * padded_width(s);
  return s.batches >= kFewestHeads && (causal ? 2 * used >= computed : 4 * used >= 3 * computed);
}

AttentionLaunch attention_launch(const Node& node) {
  const AttentionOperands o = attention_operands(node);
  const AttentionShape s = attention_shape(node, o.mask);
  const Attributes attributes = with_defaults(*node.op, node.attributes);
  const bool forward = node.op == &ops::kAttention;
  AttentionLaunch launch;
  Arguments arguments{{}, &launch};
  for (const Matrix& m : s.matrices.operands) arguments.add(part_of(node.operands[m.value], m));
  if (!forward)
    for (const Value* rows : {o.top, o.sum, o.delta}) arguments.add(all_of(rows));
  if (o.mask) arguments.add(all_of(o.mask));
  else arguments.text += ", (const gc_attention::no_mask*)0";
  if (o.kept) arguments.add(all_of(o.kept));
  else arguments.text += ", (const gc_attention::no_mask*)0";
  for (const Matrix& m : s.matrices.results) arguments.add(part_of(node.results[m.value], m), "");
  if (forward)
    for (std::size_t i : {1, 2}) arguments.add(all_of(node.results[i]), "");
  const DType dtype = o.q->type.dtype;
  const std::string function =
      forward ? concat("forward<", padded_width(s)) : concat("backward<", padded_width(s), ", ", kept_queries(s, dtype));
  launch.text = concat(attention_text(dtype), "extern \"C\" void ", kNamePlaceholder,
                       "(void* const* p, long, long first, long last, int*) {\n  static const gc_attention::sizes sizes = ",
                       sizes_text(s, attributes), ";\n  gc_attention::", function, ", ", s.mask_key, ">(sizes", arguments.text,
                       ", first, last);\n}\n");
  launch.tasks = forward ? s.batches * quotient_up(s.queries, kTileQueries) : s.batches;
  constexpr double kRowOps = 4;  // scale, exp, sum and what moves with them
  const auto width = static_cast<double>(s.width), value_width = static_cast<double>(s.value_width);
  // Scores, and the gradient of what is multiplied by v, are made again where dq has a turn of its own.
  const double again = !forward && kept_queries(s, dtype) == 0 ? kRowOps + 2 * (width + value_width) : 0;
  launch.cost.flops = (kRowOps + again + (forward ? 2 * (width + value_width) : 6 * width + 4 * value_width)) *
                      attention_pairs(s, attributes.flag("causal"));
  launch.cost.dtype = dtype;
  return launch;
}

}  // namespace gcomp::codegen::cpu
