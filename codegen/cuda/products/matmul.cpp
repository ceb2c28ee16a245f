#include "codegen/cuda/products/products.h"
#include "codegen/cuda/products/tiling.h"
#include "ir/base/error.h"

namespace gcomp::codegen::cuda {

using runtime::MatmulCall;
using runtime::MatrixView;

namespace {

constexpr std::size_t kProductBatches = 4;

bool follows(const MatrixView& view, std::size_t outer, std::int64_t inner_extent, std::int64_t inner_stride) {
  return view.batch_strides[outer] == inner_extent * inner_stride;
}

void erase_batch(MatmulCall& call, std::size_t i) {
  call.batch.erase(call.batch.begin() + static_cast<std::ptrdiff_t>(i));
  for (MatrixView* view : {&call.a, &call.b, &call.c})
    view->batch_strides.erase(view->batch_strides.begin() + static_cast<std::ptrdiff_t>(i));
}

/// The same product with as few batch dimensions as its strides allow: neighbours collapse, and rows of `a` under one `b` are rows.
MatmulCall with_collapsed_batch(MatmulCall call) {
  for (std::size_t i = call.batch.size(); i-- > 0;)
    if (call.batch[i] == 1) erase_batch(call, i);
  for (std::size_t i = call.batch.size(); i-- > 1;) {
    bool collapses = true;
    for (const MatrixView* view : {&call.a, &call.b, &call.c})
      collapses = collapses && follows(*view, i - 1, call.batch[i], view->batch_strides[i]);
    if (!collapses) continue;
    call.batch[i] *= call.batch[i - 1];
    erase_batch(call, i - 1);
  }
  while (!call.batch.empty()) {
    const std::size_t last = call.batch.size() - 1;
    if (call.b.batch_strides[last] != 0 || !follows(call.a, last, call.m, call.a.row_stride) ||
        !follows(call.c, last, call.m, call.c.row_stride))
      break;
    call.m *= call.batch[last];
    erase_batch(call, last);
  }
  return call;
}

gc_matrix_parameters parameters_of(const MatrixView& view) {
  gc_matrix_parameters parameters{};
  parameters.offset = view.offset;
  parameters.row = view.row_stride;
  parameters.column = view.column_stride;
  const std::size_t first = kProductBatches - view.batch_strides.size();
  for (std::size_t d = 0; d < view.batch_strides.size(); ++d) parameters.batch_strides[first + d] = view.batch_strides[d];
  return parameters;
}

/// Vectors of `width` elements along the axis of stride `along`, whose extent is given, start at multiples of a vector and end
/// inside.
bool moves_in_vectors(const MatrixView& view, std::int64_t along, std::int64_t extent, std::int64_t across, std::int64_t width) {
  if (along != 1 || extent % width != 0 || across % width != 0 || view.offset % width != 0) return false;
  return std::all_of(view.batch_strides.begin(), view.batch_strides.end(), [&](std::int64_t s) { return s % width == 0; });
}

/// How an operand is read: k_stride and the other stride with their extents.
struct Reading {
  bool along_k = true, in_vectors = false;
};
Reading reading_of(const MatrixView& view, std::int64_t k_stride, std::int64_t k, std::int64_t stride, std::int64_t extent,
                   std::int64_t width) {
  if (moves_in_vectors(view, k_stride, k, stride, width)) return {true, true};
  if (moves_in_vectors(view, stride, extent, k_stride, width)) return {false, true};
  const auto distance = [](std::int64_t s, std::int64_t e) { return e == 1 ? INT64_MAX : s < 0 ? -s : s; };
  return {distance(k_stride, k) <= distance(stride, extent), false};
}

int result_vectors(const MatmulCall& call, int width) {
  if (moves_in_vectors(call.c, call.c.column_stride, call.n, call.c.row_stride, width)) return gc_vectors_rows;
  if (moves_in_vectors(call.c, call.c.row_stride, call.m, call.c.column_stride, width)) return gc_vectors_columns;
  return gc_vectors_none;
}

/// Tensor cores need a text for each order of the operands, FMA tiles look it up.
std::string matmul_text(const TileKind& tile, const Reading& a, const Reading& b, const EpilogueText* epilogue) {
  const bool fixed = tile.type.find(kDirections) != std::string::npos;
  const auto direction = [&](const Reading& r) { return !fixed ? "gc_either" : r.along_k ? "gc_along_k" : "gc_across"; };
  const std::string directions = concat(direction(a), ", ", direction(b));
  const std::string frame =
      concat("  typedef ", with_directions(tile.type, directions), " Tile;\n  __shared__ Tile::Shared shared;\n");
  if (epilogue)
    return product_text({tile.threads, tile.blocks}, "gc_matmul_parameters",
                        concat(frame, epilogue->lambda, "  gc_matmul_epilogue<Tile, ", directions,
                               ">(shared, first, second, parameters, epilogue);\n"),
                        epilogue->parameters);
  return product_text(
      {tile.threads, tile.blocks}, "gc_matmul_parameters",
      concat(frame, "  gc_matmul<Tile, ", directions, ">(shared, first, second, result, workspace, parameters);\n"));
}

/// Adds the splits into c.
runtime::ProductLaunch matmul_sum(const MatmulCall& call, const Tiling& tiling, KernelTable& kernels,
                                  const EpilogueText* epilogue) {
  std::vector<std::int64_t> extents = call.batch, strides = call.c.batch_strides;
  extents.insert(extents.end(), {call.m, call.n});
  strides.insert(strides.end(), {call.c.row_stride, call.c.column_stride});
  return sum_launch(kernels.add_text(sum_text(call.dtype, epilogue)), tiling.parameters.splits, extents, strides, call.c.offset, 0);
}

}  // namespace

// Where k is split, the epilogue follows the sum of the splits.
runtime::GeneratedProduct generate_product(const MatmulCall& original, int architecture, KernelTable& kernels,
                                           const ProductEpilogue* epilogue) {
  const MatmulCall call = with_collapsed_batch(original);
  const ProductExtents extents{call.m, call.n, call.k, element_count(call.batch)};
  if (call.batch.size() > kProductBatches || !is_countable(extents)) return {};
  const Tiling tiling = choose_tiling(extents, call.dtype, architecture);
  const std::int64_t width = vector_width(call.dtype);
  const Reading a = reading_of(call.a, call.a.column_stride, call.k, call.a.row_stride, call.m, width);
  const Reading b = reading_of(call.b, call.b.row_stride, call.k, call.b.column_stride, call.n, width);
  gc_matmul_parameters parameters{};
  parameters.tiling = tiling.parameters;
  std::fill(std::begin(parameters.batch), std::end(parameters.batch), 1);
  for (std::size_t d = 0; d < call.batch.size(); ++d)
    parameters.batch[kProductBatches - call.batch.size() + d] = static_cast<int>(call.batch[d]);
  parameters.a = parameters_of(call.a);
  parameters.b = parameters_of(call.b);
  parameters.c = parameters_of(call.c);
  parameters.a.in_vectors = a.in_vectors;
  parameters.b.in_vectors = b.in_vectors;
  parameters.a.along_k = a.along_k;
  parameters.b.along_k = b.along_k;
  parameters.c.in_vectors = result_vectors(call, tiling.tile.store_width);
  runtime::GeneratedProduct product;
  product.workspace_bytes = tiling.workspace_bytes(call.dtype);
  const EpilogueText* text = epilogue ? &epilogue->text : nullptr;
  const int kernel = kernels.add_text(matmul_text(tiling.tile, a, b, tiling.parameters.partial ? nullptr : text));
  product.launches.push_back({kernel, {tiling.blocks(), tiling.tile.threads, 0}, to_integers(parameters)});
  if (tiling.parameters.partial) product.launches.push_back(matmul_sum(call, tiling, kernels, text));
  if (epilogue) product.launches.back().buffers = epilogue->buffers;
  return product;
}

}  // namespace gcomp::codegen::cuda
