#include "codegen/cuda/attention/attention.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "codegen/attention_shape.h"
#include "codegen/cuda/attention_fma_kit.h"
#include "codegen/cuda/attention_mma_kit.h"
#include "codegen/cuda/attention_short_gradient.h"
#include "codegen/cuda/attention_stream.h"
#include "codegen/cuda/attention_tf32_kit.h"
#include "codegen/cuda/product_mma.h"
#include "codegen/cuda/product_tf32.h"
#include "codegen/cuda/products/instructions.h"
#include "codegen/kernel.h"
#include "codegen/kernel_writer.h"
#include "codegen/program_builder.h"
#include "ir/matrices.h"
#include "ir/ops/table.h"
#include "ir/packed_bits.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kWidest = 256, kWidest64 = 128;      // of a head: what its tiles leave of 48 KiB of shared memory
constexpr std::int64_t kWide = 128;                         // above it the sums of one matrix take half of a thread's registers
constexpr std::int64_t kShortWidth = 64, kShortKeys = 256;  // of a gradient whose blocks own whole heads
constexpr std::int64_t kShortQueries = 16;                  // that it computes at a time
constexpr std::int64_t kCountablePositions = 1ll << 30;     // positions and tiles: their sums fit 31 bits

/// Tiles of the FMA kit for heads of up to `width`: what fits 48 KiB with rows padded by a vector of 16 bytes.
struct FmaTile {
  std::int64_t width, own, stream, rows;
};
constexpr int kFmaLanes = 8;
constexpr FmaTile kForward32[] = {{16, 64, 32, 4}, {32, 64, 64, 4}, {64, 64, 32, 4}, {128, 32, 16, 2}, {256, 16, 8, 1}};
constexpr FmaTile kBackward32[] = {{16, 32, 32, 2}, {32, 64, 32, 4}, {64, 32, 32, 2}, {128, 16, 16, 1}, {256, 8, 8, 1}};
constexpr FmaTile kForward64[] = {{16, 32, 32, 2}, {32, 32, 32, 2}, {64, 32, 16, 2}, {128, 16, 8, 1}};
constexpr FmaTile kBackward64[] = {{16, 32, 32, 2}, {32, 32, 32, 2}, {64, 16, 16, 1}, {128, 8, 8, 1}};

/// How a kernel's blocks work: the C++ type of their kit, and what the grid needs of it.
struct Kit {
  std::string type;
  std::int64_t own = 0, stream = 0;
  int threads = 0;
  int blocks = 1;        ///< that shall find registers on one multiprocessor
  double mma_flops = 0;  ///< of one instruction of the tensor cores, a warp's; 0 for FMA
  bool is_tf32 = false;
  bool holds_left = false;        ///< the kit's kHoldsLeft
  std::int64_t shared_bytes = 0;  ///< of dynamic shared memory, in which a short gradient works
};
constexpr double kRightBytes = 256;  ///< of an instruction's operand: 16 x 8 of 16 bits, 8 x 8 of 32

/// Launches of a node: their kit, and the one that rounds f32.
struct Kits {
  Kit exact;
  std::optional<Kit> tf32 = {};
};

std::string value_type(DType dtype) { return dtype == DType::f64 ? "double" : "float"; }

/// Rows that a block of the tensor cores' kit in 16 bits owns and streams.
struct MmaTile {
  std::int64_t own, stream;
};
MmaTile mma_tile(std::int64_t width, bool backward) {
  if (width > kWide) return backward ? MmaTile{16, 16} : MmaTile{48, 16};
  if (width > 64) return {64, backward ? 16 : 32};
  return {64, backward ? 32 : 64};
}

Kit kit_for(DType dtype, std::int64_t width, bool backward, int architecture) {
  const std::string element(storage_type_text(dtype));
  if (dtype == DType::f16 || (dtype == DType::bf16 && architecture >= 80)) {
    const std::int64_t padded = (width + 15) / 16 * 16;
    const auto [own, stream] = mma_tile(padded, backward);
    return {.type = concat("gc_mma_kit<", element, ", ", padded, ", ", own, ", ", stream, ">"),
            .own = own,
            .stream = stream,
            .threads = static_cast<int>(2 * own),
            .blocks = backward && padded <= 64 ? 4 : 1,
            .mma_flops = kMmaFlops};
  }
  const std::span<const FmaTile> of_f64 = backward ? std::span<const FmaTile>(kBackward64) : kForward64,
                                 of_f32 = backward ? std::span<const FmaTile>(kBackward32) : kForward32;
  const std::span<const FmaTile> tiles = dtype == DType::f64 ? of_f64 : of_f32;
  const auto found = std::ranges::find_if(tiles, [&](const FmaTile& t) { return t.width >= width; });
  check_internal(found != tiles.end(), "heads of ", width, " elements of ", name_of(dtype), " have no tile");
  const FmaTile& tile = *found;
  return {.type = concat("gc_fma_kit<", element, ", ", value_type(dtype), ", ", tile.width, ", ", tile.own, ", ", tile.stream, ", ",
                         kFmaLanes, ", ", tile.rows, ">"),
          .own = tile.own,
          .stream = tile.stream,
          .threads = static_cast<int>(tile.own / tile.rows) * kFmaLanes};
}

/// Rows that a block owns and streams, the first of which fit shared memory.
struct Tf32Tile {
  std::int64_t own, stream;
};
constexpr Tf32Tile kForwardTf32[] = {{64, 64}, {64, 32}, {64, 16}, {48, 16}};
constexpr Tf32Tile kBackwardTf32[] = {{64, 32}, {64, 16}, {48, 16}, {32, 16}, {32, 8}};

std::optional<Kit> tf32_kit_for(DType dtype, std::int64_t width, bool backward, int architecture) {
  constexpr std::int64_t kShared = 48 << 10, kFloat = sizeof(float);
  constexpr int kFirstWithTf32 = 80;
  if (dtype != DType::f32 || architecture < kFirstWithTf32 || width > kWide) return std::nullopt;
  const std::int64_t padded = (width + 15) / 16 * 16, row = (padded + 4) * kFloat;  // as the kit's kPitch
  const auto fits = [&](const Tf32Tile& t) { return ((backward ? 2 : 1) * t.own + 2 * t.stream) * row <= kShared; };
  const std::span<const Tf32Tile> tiles = backward ? std::span<const Tf32Tile>(kBackwardTf32) : kForwardTf32;
  const auto tile = std::ranges::find_if(tiles, fits);
  check_internal(tile != tiles.end(), "heads of ", width, " elements have no tile");
  return Kit{.type = concat("gc_tf32_kit<", padded, ", ", tile->own, ", ", tile->stream, ">"),
             .own = tile->own,
             .stream = tile->stream,
             .threads = static_cast<int>(2 * tile->own),
             .mma_flops = kMmaFlops / 2,
             .is_tf32 = true,
             .holds_left = padded <= 64};
}

/// A header of kernels that may stand in one source with others.
std::string guarded(std::string_view name, std::string_view text) {
  return concat("#ifndef GC_ATTENTION_", name, "\n#define GC_ATTENTION_", name, "\n", text, "#endif\n");
}

const std::string& attention_text(const Kit& kit) {
  static const std::string stream = concat(kProductMma, guarded("STREAM", kAttentionStream)),
                           mma = guarded("MMA", kAttentionMmaKit), streamed = concat(stream, guarded("FMA", kAttentionFmaKit), mma),
                           with_tf32 = concat(streamed, kProductTf32, kAttentionTf32Kit),
                           with_short = concat(stream, mma, guarded("SHORT", kAttentionShort));
  return kit.shared_bytes > 0 ? with_short : kit.is_tf32 ? with_tf32 : streamed;
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
                attention_number_text(a.real("hidden")), ", ", attention_number_text(1 / (1 - a.real("dropout"))), ", ",
                bytes_of_bits(s.keys), ", ", attention_extents_text(s), ", ", attention_strides_text(s, 0), ", ", s.mask_query,
                ", ", s.mask_key, views, "};\n");
}

double count_of(std::int64_t n) { return static_cast<double>(n); }

/// What a launch asks of its blocks: they own tiles of `rows`, and of a pair of query and key there are so many flops in products
/// that make scores of rows, and in those that make rows of scores.
struct Work {
  std::string_view function, shared;
  std::int64_t rows = 0;
  double dot_flops = 0, mix_flops = 0;
  AttentionInstructions instructions = {};
};

/// Launches of one node. Their parameters are inputs, mask, kept and results; what a node has not is left out.
struct Launching {
  AttentionShape sizes;
  Attributes attributes;
  AttentionOperands operands;

  AttentionLaunch launch(const Work& work, const Kits& kits, const std::vector<Touched>& inputs,
                         const std::vector<Touched>& results) const {
    constexpr double kRowOps = 4;  // scale, exp, sum and what moves with them
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
    if (operands.kept) add(all_of(operands.kept), "const ");
    else arguments += ", (const gc_no_mask*)0";
    for (const Touched& result : results) add(result, "");
    const auto kernel = [&](const Kit& kit) {
      return AttentionKernel{
          concat(attention_text(kit), "extern \"C\" __global__ void __launch_bounds__(", kit.threads, ", ", kit.blocks, ") ",
                 kNamePlaceholder, "(", parameters, "int*) {\n  typedef ", kit.type, " Kit;\n", shared_text(kit, work),
                 sizes_text(sizes, attributes, dtype()), result_text(kit), "  ", work.function, "(shared, sizes",
                 kit.shared_bytes > 0 ? ", result" : "", arguments, ");\n}\n"),
          {.blocks = blocks_of(kit, work), .threads = kit.threads, .shared_bytes = static_cast<std::int32_t>(kit.shared_bytes)}};
    };
    made.kernel = kernel(kits.exact);
    made.cost.flops = (work.dot_flops + work.mix_flops + kRowOps) * attention_pairs(sizes, attributes.flag("causal"));
    made.cost.dtype = dtype();
    made.cost.work = {Family::attention,
                      kits.exact.shared_bytes > 0 ? short_traffic(kits.exact, work, made.cost.bytes) : traffic(kits.exact, work)};
    if (kits.tf32) {
      made.tf32 = kernel(*kits.tf32);
      made.cost.generated_tf32 = {traffic(*kits.tf32, work)};
    }
    return made;
  }

  DType dtype() const { return operands.q->type.dtype; }
  /// Where a gradient's y lies, for the kernel that reads it.
  std::string result_text(const Kit& kit) const {
    if (kit.shared_bytes == 0) return "";
    const std::size_t number = sizes.matrices.operands.size() + sizes.matrices.results.size();
    return concat("  const gc_attention_view result = ", view_text(sizes, *sizes.forward_result, number, dtype()), ";\n");
  }
  std::int64_t blocks_of(const Kit& kit, const Work& work) const { return sizes.batches * quotient_up(work.rows, kit.own); }
  static std::string shared_text(const Kit& kit, const Work& work) {
    if (kit.shared_bytes == 0) return concat("  __shared__ Kit::", work.shared, " shared;\n");
    return concat("  static_assert(sizeof(Kit::", work.shared, ") == ", kit.shared_bytes, ", \"as the launch has it\");\n",
                  "  extern __shared__ uint4 gc_short[];\n  Kit::", work.shared, "& shared = *(Kit::", work.shared,
                  "*)gc_short;\n");
  }

  /// A block computes whole tiles, on the diagonal too, and reads what it streams from the second cache.
  Traffic traffic(const Kit& kit, const Work& work) const {
    const double own = count_of(kit.own), blocks = count_of(blocks_of(kit, work));
    const double pairs =
        attributes.flag("causal")
            ? std::max(attention_pairs(sizes, true) + blocks * own * own / 2, blocks * own)
            : count_of(sizes.batches * round_up(work.rows, kit.own) * round_up(sizes.queries + sizes.keys - work.rows, kit.stream));
    Traffic made;
    made.l2_bytes = pairs / own * count_of(sizes.width + sizes.value_width) * static_cast<double>(size_of(dtype()));
    const double flops = (work.dot_flops + work.mix_flops) * pairs;
    if (kit.mma_flops > 0) {
      made.mma_flops = flops;
      made.instructions = flops / kit.mma_flops * 32 * work.instructions.stalls *
                          (kit.is_tf32 ? work.instructions.tf32 : work.instructions.of_16_bits);
      // From shared memory, which is the first cache: a right operand each, and the left one of a dot for each tile of the stream.
      const double left = kit.holds_left ? 0 : 2 * kRightBytes * 8 / count_of(kit.stream);
      made.l1_bytes = pairs / kit.mma_flops * (work.dot_flops * (kRightBytes + left) + work.mix_flops * kRightBytes);
    } else {
      made.instructions = flops / 2 * kInstructionsAnFma;
    }
    // One wait for each tile that is streamed.
    made.cache_waits = blocks * kit.threads * std::max(pairs / blocks / own / count_of(kit.stream), 1.0);
    return made;
  }

  /// A block computes all of its warps' keys with 16 queries at a time, under the causal mask too: the first keys' warp decides. It
  /// reads everything once, first what it waits for, then each tile while the one before is computed.
  Traffic short_traffic(const Kit& kit, const Work& work, double bytes) const {
    const double pairs = count_of(sizes.batches * kit.own * round_up(sizes.queries, kShortQueries)),
                 tiles = count_of(quotient_up(sizes.queries, kit.stream));
    Traffic made;
    made.l2_bytes = bytes;
    made.mma_flops = (work.dot_flops + work.mix_flops) * pairs;
    const double width = work.mix_flops / 6;
    made.instructions = pairs / (32 * 32) * 32 * short_gradient_instructions(width, count_of(kit.own) / 32);
    // Of 32 keys and 16 queries: six operands for each 16 columns and for dq another three, of 512 bytes; then what dq is made of.
    made.l1_bytes = pairs * (width * 9 / 16 + 2);
    made.waits = count_of(sizes.batches) * kit.threads;
    made.cache_waits = made.waits * tiles;
    return made;
  }
};

/// The kit of a gradient whose blocks own whole heads, where it takes them: its sums fit the registers of eight warps.
std::optional<Kit> short_kit_for(const Launching& l, int architecture) {
  constexpr std::int64_t kTile = 32, kWarpKeys = 32;
  const AttentionShape& s = l.sizes;
  const std::int64_t wider = std::max(s.width, s.value_width), element = static_cast<std::int64_t>(size_of(l.dtype()));
  if (!uses_tensor_cores(l.dtype()) || architecture < 80 || l.operands.mask || l.operands.kept || wider > kShortWidth ||
      s.keys > kShortKeys)
    return std::nullopt;
  const std::int64_t width = round_up(wider, 16), warps = quotient_up(s.keys, kWarpKeys), keys = warps * kWarpKeys;
  const std::int64_t row = (width + 8) * element, scores = (kTile + 8) * element;  // as the kit's kPitch and kScorePitch
  return Kit{.type = concat("gc_short_kit<", storage_type_text(l.dtype()), ", ", width, ", ", warps, ">"),
             .own = keys,
             .stream = kTile,
             .threads = static_cast<int>(32 * warps),
             .mma_flops = kMmaFlops,
             .shared_bytes = keys * row + 6 * kTile * row + keys * std::max(2 * scores, row) + 6 * kTile * 4};
}

/// Whether the short gradient is expected to be faster than cuDNN's where both are at hand (Hopper, runtime/cuda/README.md), by
/// shape alone. For 1,536 heads of 64 elements and 197 positions, which are two tiles of 128 for it, cuDNN's gradient that repeats
/// its bits took 365 us on an H200 (bench/results), 91 for each tile of 128 x 128 and 1.31 times its estimate; ours took 290. So
/// ours is taken for more than 16 elements where it computes at most 7/8 of the library's whole tiles, at which the two would be
/// even. Not under the causal mask, where the library leaves out what this kernel waits for, nor for fewer heads than
/// multiprocessors.
bool outruns_library(const Launching& l, int architecture) {
  constexpr std::int64_t kFewestHeads = 132, kNarrow = 16, kLibraryTile = 128;
  const std::optional<Kit> kit = short_kit_for(l, architecture);
  if (!kit || l.attributes.flag("causal") || l.sizes.batches < kFewestHeads || l.sizes.width <= kNarrow) return false;
  const std::int64_t pairs = kit->own * round_up(l.sizes.queries, kShortQueries),
                     tiles = round_up(l.sizes.keys, kLibraryTile) * round_up(l.sizes.queries, kLibraryTile);
  return 8 * pairs <= 7 * tiles;
}

}  // namespace

bool takes_attention(const Node& node) {
  if (!is_streamable(node)) return false;
  const AttentionOperands o = attention_operands(node);
  const DType dtype = o.q->type.dtype;
  if (o.mask && o.mask->type.dtype != DType::boolean && o.mask->type.dtype != dtype && o.mask->type.dtype != compute_type(dtype))
    return false;
  const AttentionShape s = attention_shape(node, o.mask);
  return is_float(dtype) && std::max(s.width, s.value_width) <= (dtype == DType::f64 ? kWidest64 : kWidest) &&
         s.queries < kCountablePositions && s.keys < kCountablePositions && s.batches < kCountablePositions &&
         s.batches * quotient_up(std::max(s.queries, s.keys), 8) < kCountablePositions;
}

std::optional<runtime::AttentionCall> attention_call(const Node& node, const BufferOf& buffer_of, int architecture) {
  const AttentionOperands o = attention_operands(node);
  const DType dtype = o.q->type.dtype;
  const AttentionShape s = attention_shape(node, o.mask);
  if ((dtype != DType::f16 && dtype != DType::bf16) || o.mask || o.kept || s.batch.size() > runtime::kAttentionBatches)
    return std::nullopt;
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
                              .origin = origin_of(node),
                              .generated_is_faster = !forward && outruns_library({s, attributes, o}, architecture)};
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
  const DType dtype = o.q->type.dtype;
  const std::int64_t wider = std::max(s.width, s.value_width);
  const bool backward = node.op == &ops::kAttentionGradient;
  const Kits kits{kit_for(dtype, wider, backward, architecture), tf32_kit_for(dtype, wider, backward, architecture)};
  const std::vector<Value*>& r = node.results;
  std::vector<Touched> inputs, results;
  for (const Matrix& m : s.matrices.operands) inputs.push_back(part_of(node.operands[m.value], m));
  for (const Matrix& m : s.matrices.results) results.push_back(part_of(r[m.value], m));
  if (!backward)
    return {l.launch({"gc_attention<Kit>", "Forward", s.queries, 2 * width, 2 * value_width, kAttentionForward}, kits, inputs,
                     {results[0], all_of(r[1]), all_of(r[2])})};
  const std::vector<Touched> statistics = {all_of(o.top), all_of(o.sum)};
  if (const std::optional<Kit> whole = short_kit_for(l, architecture)) {
    inputs.push_back(part_of(o.y, *s.forward_result));
    inputs.insert(inputs.end(), statistics.begin(), statistics.end());
    const double padded = count_of(round_up(wider, 16));
    return {l.launch({"gc_attention_short_gradient<Kit>", "Shared", s.keys, 4 * padded, 6 * padded}, {*whole}, inputs, results)};
  }
  inputs.insert(inputs.end(), statistics.begin(), statistics.end());
  inputs.push_back(all_of(o.delta));
  Kits keys = kits;
  keys.exact.blocks = 1;  // the sums of two matrices take all registers
  const double dots = 2 * (width + value_width);
  std::vector<AttentionLaunch> launches = {
      l.launch({"gc_attention_query_gradient<Kit>", "Backward", s.queries, dots, 2 * width, kAttentionQueryGradient}, kits, inputs,
               {results[0]})};
  const auto add = [&](std::string_view function, double dot_flops, double mix_flops, const std::vector<Touched>& made) {
    launches.push_back(l.launch({function, "Backward", s.keys, dot_flops, mix_flops, kAttentionKeyGradient}, keys, inputs, made));
  };
  if (wider <= kWide || kits.exact.mma_flops == 0) {
    add("gc_attention_key_gradient<Kit, true, true>", dots, dots, {results[1], results[2]});
  } else {
    add("gc_attention_key_gradient<Kit, true, false>", dots, 2 * width, {results[1]});
    add("gc_attention_key_gradient<Kit, false, true>", 2 * width, 2 * value_width, {results[2]});
  }
  return launches;
}

}  // namespace gcomp::codegen::cuda
