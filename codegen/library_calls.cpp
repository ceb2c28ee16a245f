#include "codegen/library_calls.h"

#include "ir/matrices.h"
#include "ir/ops/table.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

/// A stack of matrices whose rows and columns may be swapped.
runtime::MatrixView matrix_view(const StridedView& from, bool transposed, int buffer) {
  const std::size_t rank = from.strides.size();
  runtime::MatrixView view{.buffer = buffer,
                           .offset = from.offset,
                           .batch_strides = Shape(from.strides.begin(), from.strides.end() - 2),
                           .row_stride = from.strides[rank - 2],
                           .column_stride = from.strides[rank - 1]};
  if (transposed) std::swap(view.row_stride, view.column_stride);
  return view;
}

std::optional<runtime::ConvolutionKind> convolution_kind(const OpDef* op) {
  if (op == &ops::kConvolution) return runtime::ConvolutionKind::forward;
  if (op == &ops::kConvolutionInputGradient) return runtime::ConvolutionKind::input_gradient;
  if (op == &ops::kConvolutionWeightGradient) return runtime::ConvolutionKind::weight_gradient;
  return std::nullopt;
}

/// [n, c, spatial...] or, channels last, [n, spatial..., c].
struct ImageShape {
  std::int64_t batch = 0, channels = 0;
  Shape spatial;
};
ImageShape image_shape(const Shape& shape, bool channels_last) {
  if (channels_last) return {shape.front(), shape.back(), Shape(shape.begin() + 1, shape.end() - 1)};
  return {shape[0], shape[1], Shape(shape.begin() + 2, shape.end())};
}

runtime::ConvolutionCall convolution_call(const Node& node, runtime::ConvolutionKind kind, const BufferOf& buffer_of) {
  const Attributes attributes = with_defaults(*node.op, node.attributes);
  const bool last = attributes.flag("channels_last");
  const Value *input = nullptr, *weight = nullptr, *output = nullptr;
  switch (kind) {
    case runtime::ConvolutionKind::forward:
      input = node.operands[0];
      weight = node.operands[1];
      output = node.result();
      break;
    case runtime::ConvolutionKind::input_gradient:
      output = node.operands[0];
      weight = node.operands[1];
      input = node.result();
      break;
    case runtime::ConvolutionKind::weight_gradient:
      input = node.operands[0];
      output = node.operands[1];
      weight = node.result();
      break;
  }
  const ImageShape x = image_shape(input->type.shape, last), y = image_shape(output->type.shape, last);
  const Shape& weights = weight->type.shape;
  return {.kind = kind,
          .dtype = node.result()->type.dtype,
          .channels_last = last,
          .batch = x.batch,
          .input_channels = x.channels,
          .output_channels = y.channels,
          .groups = attributes.integer("groups"),
          .input_spatial = x.spatial,
          .output_spatial = y.spatial,
          .kernel = Shape(weights.begin() + 2, weights.end()),
          .strides = attributes.integers("strides"),
          .pads_begin = attributes.integers("low"),
          .pads_end = attributes.integers("high"),
          .dilations = attributes.integers("dilations"),
          .input = buffer_of(input),
          .weight = buffer_of(weight),
          .output = buffer_of(output),
          .origin = node.origin};
}

}  // namespace

runtime::MatmulCall matmul_call(const Node& node, const Value* result, const BufferOf& buffer_of) {
  const Attributes attributes = with_defaults(*node.op, node.attributes);
  const bool transpose_a = attributes.flag("transpose_a"), transpose_b = attributes.flag("transpose_b");
  const Matrices matrices = matrices_of(node);
  const StridedView a = matrices.operands[0].view_or_dense(), b = matrices.operands[1].view_or_dense(),
                    c = matrices.results.empty() ? StridedView::dense(result->type.shape) : matrices.results[0].view_or_dense();
  const Shape& shape = c.shape;
  const std::size_t rank = shape.size();
  return {.dtype = result->type.dtype,
          .batch = Shape(shape.begin(), shape.end() - 2),
          .m = shape[rank - 2],
          .n = shape[rank - 1],
          .k = a.shape[transpose_a ? rank - 2 : rank - 1],
          .a = matrix_view(a, transpose_a, buffer_of(node.operands[0])),
          .b = matrix_view(b, transpose_b, buffer_of(node.operands[1])),
          .c = matrix_view(c, false, buffer_of(result)),
          .origin = node.origin};
}

std::optional<runtime::Step> library_call(const Node& node, const BufferOf& buffer_of) {
  for (const Value* operand : node.operands)
    if (operand->type.elements() == 0) return std::nullopt;
  if (node.op == &ops::kMatmul) return matmul_call(node, node.result(), buffer_of);
  const auto kind = convolution_kind(node.op);
  const std::size_t spatial = node.result()->type.shape.size() - 2;
  if (!kind || spatial < 1 || spatial > 3) return std::nullopt;
  return convolution_call(node, *kind, buffer_of);
}

}  // namespace gcomp::codegen
