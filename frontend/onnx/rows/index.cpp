// Operators that address elements one by one: GatherElements, GatherND, ScatterElements, ScatterND, OneHot, TopK, running sums.
// Each becomes a gather or a scatter over the flattened data.
#include <algorithm>
#include <limits>
#include <numeric>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;

/// Work above which the pairwise forms below (every target against every source) are refused.
constexpr double kPairLimit = 4294967296.0;

/// Indices as i64 in [0, size): negative ones count from the end; what is out of range becomes `fault`, which no gather accepts.
Var wrapped(Builder& b, Var indices, std::int64_t size, std::int64_t fault) {
  Var i = b.cast(indices, DType::i64), zero = b.like(i, 0);
  Var positive = b.select(i < zero, i + static_cast<double>(size), i);
  Var inside = ops::kAnd(zero <= positive, positive < b.like(i, static_cast<double>(size)));
  return b.select(inside, positive, b.like(i, static_cast<double>(fault)));
}

Var flat(Builder& b, Var x) { return b.reshape(x, {x.type().elements()}); }

/// Position in the flattened data of each element that GatherElements or ScatterElements addresses.
Var element_positions(NodeContext& n, const Shape& data, Var indices, std::int64_t axis) {
  Builder& b = n.b();
  const Shape strides = row_major_strides(data);
  n.require(indices.shape().size() == data.size(), "indices are ", to_string(indices.type()), ", the data has rank ", data.size());
  // One fault makes the whole sum too large, whatever the other axes add.
  const std::int64_t total = element_count(data), stride = strides[static_cast<std::size_t>(axis)];
  Var position =
      wrapped(b, indices, data[static_cast<std::size_t>(axis)], stride ? total / stride + 1 : total) * static_cast<double>(stride);
  for (std::size_t d = 0; d < data.size(); ++d) {
    if (static_cast<std::int64_t>(d) == axis) continue;
    n.require(indices.shape()[d] <= data[d], "indices are ", to_string(indices.type()), ", the data [", to_string(data), "]");
    position = position + b.iota({DType::i64, indices.shape()}, static_cast<std::int64_t>(d)) * static_cast<double>(strides[d]);
  }
  return position;
}

Items gather_elements_row(NodeContext& n) {
  Var data = n.var(0);
  const std::int64_t axis = n.axis(n.integer("axis", 0), data.rank());
  return n.b().gather(flat(n.b(), data), element_positions(n, data.shape(), n.var(1), axis), 0);
}

/// Start, in the flattened data, of each slice that the last axis of `indices` addresses; `inner` elements long each.
struct Slices {
  Var starts;
  std::int64_t inner = 1;
  Shape shape;
};
Slices slices_of(NodeContext& n, const Shape& data, Var indices, std::int64_t batch_dims) {
  Builder& b = n.b();
  n.require(indices.rank() > 0 && batch_dims >= 0 && batch_dims < indices.rank(), "indices are ", to_string(indices.type()),
            ", batch_dims is ", batch_dims);
  const std::int64_t depth = indices.dim(-1), addressed = batch_dims + depth, total = element_count(data);
  n.require(addressed <= static_cast<std::int64_t>(data.size()), "indices of ", depth, " axes for data [", to_string(data), "]");
  const Shape strides = row_major_strides(data);
  Slices s;
  s.shape = Shape(indices.shape().begin(), indices.shape().end() - 1);
  for (auto i = static_cast<std::size_t>(addressed); i < data.size(); ++i) s.inner *= data[i];
  s.starts = b.full({DType::i64, s.shape}, 0);
  for (std::int64_t k = 0; k < depth; ++k) {
    const auto axis = static_cast<std::size_t>(batch_dims + k);
    Var one = b.reshape(b.slice_axis(indices, indices.rank() - 1, k, 1), s.shape);
    s.starts = s.starts +
               wrapped(b, one, data[axis], strides[axis] ? total / strides[axis] + 1 : total) * static_cast<double>(strides[axis]);
  }
  for (std::int64_t d = 0; d < batch_dims; ++d)
    s.starts = s.starts + b.iota({DType::i64, s.shape}, d) * static_cast<double>(strides[static_cast<std::size_t>(d)]);
  return s;
}

/// Positions of all elements of the slices: one more axis.
Var slice_positions(Builder& b, const Slices& s) {
  Shape shape = s.shape;
  shape.push_back(s.inner);
  return b.broadcast(b.reshape(s.starts,
                               [&] {
                                 Shape one = s.shape;
                                 one.push_back(1);
                                 return one;
                               }()),
                     shape) +
         b.iota({DType::i64, shape}, static_cast<std::int64_t>(shape.size()) - 1);
}

Items gather_nd_row(NodeContext& n) {
  Builder& b = n.b();
  Var data = n.var(0);
  const std::int64_t batch_dims = n.integer("batch_dims", 0);
  const Slices s = slices_of(n, data.shape(), n.var(1), batch_dims);
  Shape shape = s.shape;
  shape.insert(shape.end(), data.shape().begin() + batch_dims + n.shape(1).back(), data.shape().end());
  if (s.inner == 1) return b.reshape(b.gather(flat(b, data), s.starts, 0), shape);
  // All slices of equal length: rows of a matrix.
  const std::int64_t rows = data.type().elements() / std::max<std::int64_t>(1, s.inner);
  return b.reshape(b.gather(b.reshape(data, {rows, s.inner}), s.starts / static_cast<double>(s.inner), 0), shape);
}

/// For each element of the data, where its value comes from: its own place, or that of the last update of it, counted behind the
/// data.
Tensor scatter_sources(const NodeContext& n, const Tensor& positions, std::int64_t size) {
  std::vector<std::int64_t> sources(static_cast<std::size_t>(size));
  std::iota(sources.begin(), sources.end(), std::int64_t{0});
  const std::vector<std::int64_t> targets = positions.to_integers();
  for (std::size_t i = 0; i < targets.size(); ++i) {
    n.require(targets[i] >= 0 && targets[i] < size, "an index is out of range");
    sources[static_cast<std::size_t>(targets[i])] = size + static_cast<std::int64_t>(i);
  }
  return Tensor::of_integers(sources);
}

/// Data with `updates` at `positions` of the flattened data, combined as `reduction` says; of equal positions under `none`
/// the last wins.
Var scatter(NodeContext& n, Var data, Var positions, Var updates, const std::string& reduction) {
  Builder& b = n.b();
  Var from = flat(b, data), at = flat(b, positions), values = flat(b, updates);
  const std::int64_t size = from.dim(0), count = at.dim(0);
  if (count == 0 || size == 0) return data;
  if (reduction == "add")
    return b.reshape(from + b.apply(ops::kScatterAdd, {at, values}, {{"axis", std::int64_t{0}}, {"size", size}}), data.shape());
  if (const auto known = reduction == "none" ? n.folded(at) : nullptr)
    return b.reshape(b.gather(b.concat({from, values}, 0), b.constant(scatter_sources(n, *known, size)), 0), data.shape());
  if (static_cast<double>(size) * static_cast<double>(count) > kPairLimit)
    n.unsupported("a scatter of ", count, " elements into ", size, " with reduction '", reduction, "' is too large");
  const Shape pairs{size, count};
  Var hit = b.iota({DType::i64, pairs}, 0) == b.broadcast(at, pairs, {1});
  if (reduction == "none") {
    // Which update each element takes: the number of the last, counted behind the data itself.
    Var number =
        b.max(b.select(hit, b.iota({DType::i64, pairs}, 1) + static_cast<double>(size), b.full({DType::i64, pairs}, -1)), {1});
    Var source = b.select(number < b.like(number, 0), b.iota({DType::i64, {size}}, 0), number);
    return b.reshape(b.gather(b.concat({from, values}, 0), source, 0), data.shape());
  }
  Var wide = b.broadcast(values, pairs, {1});
  auto reduce = [&](const ir::OpDef& op, ir::Reduction::Of of) {
    return b.reduce(op, b.select(hit, wide, b.like(wide, ir::identity_of(of, wide.dtype()))), {1});
  };
  Var result;
  if (reduction == "mul") result = from * reduce(ops::kReduceProduct, ir::Reduction::Of::product);
  else if (reduction == "max") result = ops::kMaximum(from, reduce(ops::kReduceMax, ir::Reduction::Of::maximum));
  else if (reduction == "min") result = ops::kMinimum(from, reduce(ops::kReduceMin, ir::Reduction::Of::minimum));
  else n.fail("reduction is '", reduction, "', wanted none, add, mul, max or min");
  return b.reshape(result, data.shape());
}

Items scatter_elements_row(NodeContext& n) {
  Var data = n.var(0);
  n.require(n.shape(1) == n.shape(2), "indices are ", to_string(n.type(1)), ", updates ", to_string(n.type(2)));
  const std::int64_t axis = n.axis(n.integer("axis", 0), data.rank());
  return scatter(n, data, element_positions(n, data.shape(), n.var(1), axis), n.var(2), n.text("reduction", "none"));
}

Items scatter_nd_row(NodeContext& n) {
  Var data = n.var(0);
  const Slices s = slices_of(n, data.shape(), n.var(1), 0);
  n.require(n.type(2).elements() == element_count(s.shape) * s.inner, "updates are ", to_string(n.type(2)), ", indices ",
            to_string(n.type(1)), ", data ", to_string(data.type()));
  return scatter(n, data, slice_positions(n.b(), s), n.var(2), n.text("reduction", "none"));
}

/// One value at the index, another elsewhere; an index out of range leaves a row without the first.
Items one_hot_row(NodeContext& n) {
  Builder& b = n.b();
  Var indices = n.var(0), values = n.var(2);
  const auto depth = static_cast<std::int64_t>(n.number(1, "the depth"));
  n.require(depth >= 0 && values.shape() == Shape{2}, "depth is ", depth, ", values are ", to_string(values.type()));
  const std::int64_t axis = n.axis(n.integer("axis", -1), indices.rank() + 1);
  Shape shape = indices.shape();
  shape.insert(shape.begin() + axis, depth);
  Var i = b.cast(indices, DType::i64);
  Var position = b.unreduce(b.select(i < b.like(i, 0), i + static_cast<double>(depth), i), shape, {axis});
  auto value = [&](std::int64_t which) { return broadcast_to(b.reshape(b.slice_axis(values, 0, which, 1), {}), shape); };
  return b.select(b.iota({DType::i64, shape}, axis) == position, value(1), value(0));
}

template <const ir::OpDef& op>
Items running_row(NodeContext& n) {
  Var x = n.var(0);
  const std::int64_t axis = n.axis(static_cast<std::int64_t>(n.number(1, "the axis")), x.rank());
  return n.b().apply(op, {x}, {{"axis", axis}, {"exclusive", n.flag("exclusive")}, {"reverse", n.flag("reverse")}});
}

/// By rank: the number of elements that come before each. Ties go to the lower index; a NaN counts as the largest.
Items top_k_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0);
  const std::int64_t axis = n.axis(n.integer("axis", -1), x.rank()), size = x.dim(axis), last = x.rank() - 1;
  const std::int64_t k = n.has(1) ? n.integers(1, "k").at(0) : n.integer("k", -1);
  n.require(k >= 0 && k <= size, "k is ", k, " of ", size, " elements");
  if (static_cast<double>(x.type().elements()) * static_cast<double>(size) > kPairLimit)
    n.unsupported("the largest of ", size, " elements in ", to_string(x.type()), " is too large");
  Integers order(x.shape().size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<std::size_t>(axis)], order.back());
  Var rows = b.transpose(x, order);
  Shape pairs = rows.shape(), picked = rows.shape();
  pairs.push_back(size);
  picked.back() = k;
  Integers own(rows.shape().size()), other(rows.shape().size());
  std::iota(own.begin(), own.end(), 0);
  other = own;
  other.back() = last + 1;
  Var mine = b.broadcast(rows, pairs, own), theirs = b.broadcast(rows, pairs, other);
  const bool largest = n.flag("largest", true);
  Var before = largest ? mine < theirs : theirs < mine;
  Var i = b.iota({DType::i64, pairs}, last), j = b.iota({DType::i64, pairs}, last + 1);
  Var tied = ops::kAnd(mine == theirs, j < i);
  if (is_float(x.dtype())) {
    Var mine_nan = ops::kIsNan(mine), theirs_nan = ops::kIsNan(theirs);
    before = ops::kOr(before, largest ? ops::kAnd(theirs_nan, ops::kNot(mine_nan)) : ops::kAnd(mine_nan, ops::kNot(theirs_nan)));
    tied = ops::kOr(tied, ops::kAnd(ops::kAnd(mine_nan, theirs_nan), j < i));
  }
  Var rank = b.sum(b.cast(ops::kOr(before, tied), DType::i64), {last + 1});
  // Element r of the result is the one whose rank is r.
  Shape slots = picked;
  slots.push_back(size);
  Var hit = b.iota({DType::i64, slots}, last) == b.broadcast(rank, slots, other);
  Var index = b.sum(b.select(hit, b.iota({DType::i64, slots}, last + 1), b.full({DType::i64, slots}, 0)), {last + 1});
  Var value = b.gather(flat(b, rows), element_positions(n, rows.shape(), index, last), 0);
  return Items::of({b.transpose(value, order), b.transpose(index, order)});
}

Items reverse_sequence_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0);
  const std::int64_t time = n.axis(n.integer("time_axis", 0), x.rank()), batch = n.axis(n.integer("batch_axis", 1), x.rank());
  Var length = b.broadcast(b.cast(n.var(1), DType::i64), x.shape(), {batch}), t = b.iota({DType::i64, x.shape()}, time);
  Var source = b.select(t < length, length - t - 1.0, t);
  return b.gather(flat(b, x), element_positions(n, x.shape(), source, time), 0);
}

[[noreturn]] Items size_depends_on_data(NodeContext& n) { n.unsupported("the size of its result depends on data"); }

/// Of a constant only: how many elements are not zero decides the result's shape.
Items non_zero_row(NodeContext& n) {
  const Tensor& x = n.known(0, "what decides the size of its result");
  Integers found;
  for (std::int64_t i = 0; i < x.elements(); ++i)
    if (x.at(i) != 0) found.push_back(i);
  const Shape strides = row_major_strides(x.shape());
  Integers positions;
  for (std::size_t d = 0; d < strides.size(); ++d)
    for (std::int64_t i : found) positions.push_back(i / strides[d] % x.shape()[d]);
  return Tensor::of_integers(positions).reshaped(
      {static_cast<std::int64_t>(strides.size()), static_cast<std::int64_t>(found.size())});
}

Items compress_row(NodeContext& n) {
  const Tensor& keep = n.known(1, "what decides the size of its result");
  Var x = n.var(0);
  const bool flattened = !n.has_attribute("axis");
  if (flattened) x = flat(n.b(), x);
  Integers kept;
  for (std::int64_t i = 0; i < keep.elements(); ++i)
    if (keep.at(i) != 0) kept.push_back(i);
  return n.b().gather(x, n.b().constant(Tensor::of_integers(kept)), flattened ? 0 : n.axis(n.integer("axis", 0), x.rank()));
}

/// A cache with new elements from a position of each row on: what lies there reads the update.
Items tensor_scatter_row(NodeContext& n) {
  Builder& b = n.b();
  Var past = n.var(0), update = n.var(1);
  const std::int64_t axis = n.axis(n.integer("axis", -2), past.rank());
  const std::string mode = n.text("mode", "linear");
  n.require(mode == "linear" || mode == "circular", "mode is '", mode, "', wanted linear or circular");
  Shape fits = past.shape();
  fits[static_cast<std::size_t>(axis)] = update.rank() == past.rank() ? update.dim(axis) : 0;
  const std::int64_t size = past.dim(axis), count = fits[static_cast<std::size_t>(axis)];
  n.require(axis > 0 && update.shape() == fits && count <= size, "the cache is ", to_string(past.type()), ", the update ",
            to_string(update.type()));
  if (count == 0) return past;
  Var offset = b.iota({DType::i64, past.shape()}, axis);
  if (n.has(2)) offset = offset - b.broadcast(b.cast(n.var(2), DType::i64), past.shape(), {0});
  if (mode == "circular") offset = ops::kFlooredRemainder(offset, b.like(offset, static_cast<double>(size)));
  const Var written = ops::kAnd(b.like(offset, 0) <= offset, offset < b.like(offset, static_cast<double>(count)));
  const Var from = b.select(written, offset, b.like(offset, 0));
  return b.select(written, b.gather(flat(b, update), element_positions(n, fits, from, axis), 0), past);
}

constexpr Row kIndexRows[] = {
    {"GatherElements", 11, gather_elements_row},
    {"GatherND", 11, gather_nd_row},
    {"ScatterElements", 11, scatter_elements_row},
    {"Scatter", 9, scatter_elements_row},
    {"ScatterND", 11, scatter_nd_row},
    {"TensorScatter", 24, tensor_scatter_row},
    {"OneHot", 9, one_hot_row},
    {"CumSum", 11, running_row<ops::kCumulativeSum>},
    {"CumProd", 26, running_row<ops::kCumulativeProduct>},
    {"TopK", 1, top_k_row},
    {"ReverseSequence", 10, reverse_sequence_row},
    {"NonZero", 9, non_zero_row},
    {"Compress", 9, compress_row},
    {"Unique", 11, size_depends_on_data},
    {"NonMaxSuppression", 10, size_depends_on_data},
};

}  // namespace

std::span<const Row> index_rows() { return kIndexRows; }

}  // namespace gcomp::frontend
