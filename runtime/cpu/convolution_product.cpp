#include "runtime/cpu/convolution_product.h"

#include "runtime/cpu/convolution_shape.h"
#include "runtime/cpu/matmul.h"

namespace gcomp::runtime::cpu {

std::unique_ptr<LibraryCall> make_convolution_product(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  const std::int64_t positions = call.batch * shape_of(call).positions(), inputs = call.input_channels,
                     outputs = call.output_channels;
  const auto rows_of = [](std::int64_t columns) {
    return MatrixView{.batch_strides = {}, .row_stride = columns, .column_stride = 1};
  };
  const auto columns_of = [](std::int64_t rows) { return MatrixView{.batch_strides = {}, .row_stride = 1, .column_stride = rows}; };
  MatmulCall product;
  product.dtype = call.dtype;
  product.origin = call.origin;
  const auto make = [&](const std::byte* a, const std::byte* b, std::byte* c) {
    return make_matmul(product, {a, b, c, operands.backend});
  };
  switch (call.kind) {
    case ConvolutionKind::forward:
      product.m = positions, product.n = outputs, product.k = inputs;
      product.a = rows_of(inputs), product.b = columns_of(inputs), product.c = rows_of(outputs);
      return make(operands.input, operands.weight, operands.output);
    case ConvolutionKind::input_gradient:
      product.m = positions, product.n = inputs, product.k = outputs;
      product.a = rows_of(outputs), product.b = rows_of(inputs), product.c = rows_of(inputs);
      return make(operands.output, operands.weight, operands.input);
    case ConvolutionKind::weight_gradient: break;
  }
  product.m = outputs, product.n = inputs, product.k = positions;
  product.a = columns_of(outputs), product.b = rows_of(inputs), product.c = rows_of(inputs);
  return make(operands.output, operands.input, operands.weight);
}

}  // namespace gcomp::runtime::cpu
