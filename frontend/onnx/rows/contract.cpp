// MatMul, Gemm, convolutions.
#include <algorithm>

#include "frontend/onnx/rows.h"
#include "frontend/onnx/windows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;

Shape leading(const Shape& shape, std::size_t drop) {
  return Shape(shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(drop));
}

/// [..., m, k] by [k, n] as one matrix product of all rows.
Var rows_by_matrix(Builder& b, Var x, Var w) {
  if (x.rank() == 2) return b.matmul(x, w);
  Shape shape = x.shape();
  shape.back() = w.dim(1);
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return b.reshape(b.matmul(b.reshape(x, {rows, x.dim(-1)}), w), shape);
}

Var matmul(NodeContext& n, Var x, Var w) {
  Builder& b = n.b();
  n.require(x.rank() > 0 && w.rank() > 0 && x.dtype() == w.dtype(), "operands are ", to_string(x.type()), " and ",
            to_string(w.type()));
  const bool vector_x = x.rank() == 1, vector_w = w.rank() == 1;
  if (vector_x) x = b.reshape(x, {1, x.dim(0)});
  if (vector_w) w = b.reshape(w, {w.dim(0), 1});
  n.require(x.dim(-1) == w.dim(-2), "inner dimensions differ: ", to_string(n.type(0)), " by ", to_string(n.type(1)));
  const Shape batch_w = leading(w.shape(), 2);
  Var y;
  if (element_count(batch_w) == 1 && w.rank() <= x.rank()) {
    y = rows_by_matrix(b, x, b.reshape(w, {w.dim(-2), w.dim(-1)}));
  } else {
    const Shape batch = broadcast_shape(n, {leading(x.shape(), 2), batch_w});
    auto full = [&](Var v) {
      Shape shape = batch;
      shape.insert(shape.end(), {v.dim(-2), v.dim(-1)});
      return broadcast_to(v, shape);
    };
    y = b.matmul(full(x), full(w));
  }
  Shape shape = y.shape();
  if (vector_w) shape.pop_back();
  if (vector_x) shape.erase(shape.end() - (vector_w ? 1 : 2));
  return b.reshape(y, shape);
}

Items matmul_row(NodeContext& n) { return matmul(n, n.var(0), n.var(1)); }

Items gemm_row(NodeContext& n) {
  Var x = n.var(0), w = n.var(1);
  n.require(x.rank() == 2 && w.rank() == 2 && x.dtype() == w.dtype(), "operands are ", to_string(x.type()), " and ",
            to_string(w.type()), ", wanted matrices of one type");
  const bool transpose_x = n.flag("transA"), transpose_w = n.flag("transB");
  const double alpha = n.real("alpha", 1), beta = n.real("beta", 1);
  n.require(x.dim(transpose_x ? 0 : 1) == w.dim(transpose_w ? 1 : 0), "inner dimensions differ: ", to_string(x.type()), " by ",
            to_string(w.type()));
  Var y = n.b().matmul(x, w, transpose_x, transpose_w);
  if (alpha != 1) y = y * alpha;
  if (!n.has(2) || beta == 0) return y;
  Var c = n.var(2);
  if (beta != 1) c = c * beta;
  n.require(broadcast_shape(n, {y.shape(), c.shape()}) == y.shape(), "C is ", to_string(c.type()), ", which does not broadcast to ",
            to_string(y.type()));
  return y + broadcast_to(c, y.shape());
}

/// A constant bias of zeros is what exporters write where there is none: it adds nothing.
Var add_channels(Builder& b, Var y, Var bias) {
  return ir::splat_value(bias.value) == 0.0 ? y : y + b.broadcast(bias, y.shape(), {1});
}

Items conv_row(NodeContext& n) {
  Var x = n.var(0), w = n.var(1);
  n.require(x.rank() >= 3 && w.rank() == x.rank(), "input is ", to_string(x.type()), ", weight is ", to_string(w.type()),
            ", wanted equal ranks of 3 or more");
  const Shape sizes = formulas::spatial_sizes(x), kernel = formulas::spatial_sizes(w);
  const Windows windows = windows_of(n, sizes, kernel);
  const std::int64_t groups = n.integer("group", 1);
  n.require(groups > 0 && x.dim(1) == w.dim(1) * groups && w.dim(0) % groups == 0, "input is ", to_string(x.type()), ", weight is ",
            to_string(w.type()), ", which do not fit in ", groups, " groups");
  Var y = formulas::convolution(x, w, windows, groups);
  return n.has(2) ? add_channels(n.b(), y, n.var(2)) : y;
}

/// A transposed convolution whose output has the sizes that the node gives, or `in` times the stride: the surplus is cropped
/// evenly, the odd element at the end for SAME_UPPER, else at the start.
Var to_sizes(NodeContext& n, Windows w, const Integers& extra, const Integers& wanted, bool upper) {
  const Shape in = formulas::spatial_sizes(n.var(0));
  Shape sizes;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::int64_t full = (in[i] - 1) * w.strides[i] + w.extent(i) + extra[i];
    const std::int64_t size = wanted.empty() ? in[i] * w.strides[i] : wanted[i], total = std::max<std::int64_t>(0, full - size);
    w.low[i] = upper ? total / 2 : total - total / 2;
    w.high[i] = total - w.low[i];
    n.require(size > 0, "the output's spatial axis ", i, " has ", size, " elements");
    sizes.push_back(size);
  }
  return formulas::transposed_convolution(n.var(0), n.var(1), std::move(w), sizes, n.integer("group", 1));
}

Var transposed(NodeContext& n, const Shape& in, const Shape& kernel) {
  const Windows w = windows_of(n, in, kernel);
  const std::string mode = n.text("auto_pad", "NOTSET");
  const Integers extra = n.integers("output_padding", Integers(in.size(), 0));
  Integers wanted = n.integers("output_shape");
  n.require(extra.size() == in.size(), "output_padding has ", extra.size(), " entries for ", in.size(), " spatial axes");
  if (wanted.size() == in.size() + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  n.require(wanted.empty() || wanted.size() == in.size(), "output_shape has ", wanted.size(), " entries for ", in.size(),
            " spatial axes");
  if (!wanted.empty() || mode == "SAME_UPPER" || mode == "SAME_LOWER") return to_sizes(n, w, extra, wanted, mode == "SAME_UPPER");
  return formulas::transposed_convolution(n.var(0), n.var(1), w, extra, n.integer("group", 1),
                                          concat(n.op(), " '", n.name(), "': "));
}

Items conv_transpose_row(NodeContext& n) {
  Var x = n.var(0), w = n.var(1);
  n.require(x.rank() >= 3 && w.rank() == x.rank() && x.dim(1) == w.dim(0), "input is ", to_string(x.type()), ", weight is ",
            to_string(w.type()));
  const Shape in = formulas::spatial_sizes(x), kernel = formulas::spatial_sizes(w);
  Var y = transposed(n, in, kernel);
  return n.has(2) ? add_channels(n.b(), y, n.var(2)) : y;
}

/// Windows back into the image that they are of, sums where they overlap: [n, c * elements of a window, windows] to [n, c, ...].
Items col2im_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0);
  const Shape image = n.integers(1, "the image's shape");
  const Windows w = windows_of(n, image, n.integers(2, "the block's shape"));
  const std::int64_t block = element_count(w.kernel);
  Shape positions;
  for (std::size_t i = 0; i < image.size(); ++i) {
    const std::int64_t room = image[i] + w.low[i] + w.high[i] - w.extent(i);
    n.require(room >= 0, "a window of ", w.extent(i), " does not fit the padded axis ", i, " of ", image[i]);
    positions.push_back(room / w.strides[i] + 1);
  }
  n.require(x.rank() == 3 && x.dim(1) % block == 0 && x.dim(2) == element_count(positions), "the input is ", to_string(x.type()),
            ", wanted [n, channels * ", block, ", ", element_count(positions), "]");
  const Shape outer{x.dim(0), x.dim(1) / block};
  const auto joined = [](Shape shape, const Shape& more) {
    shape.insert(shape.end(), more.begin(), more.end());
    return shape;
  };
  Var windows = b.transpose(b.reshape(x, {outer[0], outer[1], block, x.dim(2)}), {0, 1, 3, 2});
  ir::Attributes attributes = formulas::attributes_of(w);
  attributes.set("sizes", image);
  return b.apply(ops::kWindowSum, {b.reshape(windows, joined(joined(outer, positions), w.kernel))}, attributes);
}

constexpr Row kContractRows[] = {
    {"MatMul", 1, matmul_row},  {"Gemm", 7, gemm_row}, {"Conv", 1, conv_row}, {"ConvTranspose", 1, conv_transpose_row},
    {"Col2Im", 18, col2im_row},
};

}  // namespace

std::span<const Row> contract_rows() { return kContractRows; }

}  // namespace gcomp::frontend
