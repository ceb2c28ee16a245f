// Operators that read an image where values say: AffineGrid, GridSample, RoiAlign, DeformConv.
#include "frontend/formulas/sampling.h"

#include <algorithm>
#include <cmath>

#include "frontend/onnx/rows.h"
#include "frontend/onnx/windows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;
using formulas::PointTap;
using formulas::PointTaps;

/// Points whose coordinates are listed at import.
constexpr std::int64_t kMostPoints = std::int64_t{1} << 24;

void check_points(const NodeContext& n, const Shape& points) {
  double count = 1;
  for (const std::int64_t size : points) count *= static_cast<double>(size);
  if (count > static_cast<double>(kMostPoints)) n.unsupported("it has ", count, " points, more than ", kMostPoints);
}

/// Coordinates of the elements of an axis in [-1, 1]: of their middles, or of the first and the last at the ends.
std::vector<double> unit_coordinates(std::int64_t size, bool align_corners) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < size; ++i) {
    const double step = align_corners ? (size > 1 ? 2.0 / static_cast<double>(size - 1) : 0) : 2.0 / static_cast<double>(size);
    all.push_back(-1 + (align_corners ? 0 : step / 2) + step * static_cast<double>(i));
  }
  return all;
}

/// theta [n, d, d + 1] times the coordinates of all points and 1, which are constants.
Items affine_grid_row(NodeContext& n) {
  Builder& b = n.b();
  Var theta = n.var(0);
  const Integers size = n.integers(1, "the size");
  const auto axes = static_cast<std::int64_t>(size.size()) - 2;
  n.require((axes == 2 || axes == 3) && theta.shape() == Shape{size[0], axes, axes + 1}, "theta is ", to_string(theta.type()),
            " for a size of ", size.size(), " numbers, the first ", size.empty() ? 0 : size[0]);
  const Shape points(size.begin() + 2, size.end());
  check_points(n, points);
  const std::int64_t count = element_count(points);
  std::vector<std::vector<double>> along;
  for (const std::int64_t extent : points) {
    n.require(extent > 0, "a size is ", extent);
    along.push_back(unit_coordinates(extent, n.flag("align_corners")));
  }
  std::vector<double> values;
  Shape index(points.size());
  do {
    for (std::size_t i = points.size(); i-- > 0;) values.push_back(along[i][static_cast<std::size_t>(index[i])]);
    values.push_back(1);
  } while (next_index(index, points));
  Var coordinates = b.constant(Tensor::of(theta.dtype(), {count, axes + 1}, values));
  Var grid = b.matmul(b.broadcast(coordinates, {size[0], count, axes + 1}, {1, 2}), theta, false, true);
  Shape shape{size[0]};
  shape.insert(shape.end(), points.begin(), points.end());
  shape.push_back(axes);
  return b.reshape(grid, shape);
}

enum class Padding : std::uint8_t { zeros, border, reflection };

/// Four taps and their weights (R. Keys, "Cubic convolution interpolation", 1981, a = -0.75).
PointTaps cubic_taps(Var position, std::int64_t size, Padding padding, double low, double high) {
  constexpr double a = -0.75;
  const Var below = ops::kFloor(position), share = position - below;
  PointTaps taps;
  for (int i = -1; i <= 2; ++i) {
    const Var d = i <= 0 ? share - static_cast<double>(i) : static_cast<double>(i) - share;
    const Var weight = i == 0 || i == 1 ? ((a + 2) * d - (a + 3)) * d * d + 1.0 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    Var at = below + static_cast<double>(i);
    if (padding == Padding::reflection) at = formulas::reflected(at, low, high);
    taps.push_back(formulas::tap_at(at, size, padding != Padding::zeros, weight));
  }
  return taps;
}

/// What points at `u` in [-1, 1] read along an axis.
PointTaps grid_taps(NodeContext& n, Var u, std::int64_t size, const std::string& mode, Padding padding) {
  const bool corners = n.flag("align_corners");
  const auto extent = static_cast<double>(size);
  const double low = corners ? 0 : -0.5, high = corners ? extent - 1 : extent - 0.5;
  Var position = corners ? (u + 1.0) * ((extent - 1) / 2) : ((u + 1.0) * extent - 1.0) / 2.0;
  if (mode == "nearest") position = ops::kRound(position);
  if (padding == Padding::reflection) position = formulas::reflected(position, low, high);
  const bool clamped = padding != Padding::zeros;
  if (mode == "nearest") return {formulas::tap_at(position, size, clamped)};
  if (mode == "cubic") return cubic_taps(position, size, padding, low, high);
  return formulas::linear_taps(position, size, clamped);
}

Items grid_sample_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0), grid = n.var(1);
  const std::int64_t axes = x.rank() - 2;
  n.require(axes >= 1 && grid.rank() == x.rank() && grid.dim(0) == x.dim(0) && grid.dim(-1) == axes, "the input is ",
            to_string(x.type()), ", the grid ", to_string(grid.type()));
  std::string mode = n.text("mode", n.opset() < 20 ? "bilinear" : "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  n.require(mode == "linear" || mode == "nearest" || mode == "cubic", "mode is '", mode, "', wanted linear, nearest or cubic");
  const std::string padding = n.text("padding_mode", "zeros");
  n.require(padding == "zeros" || padding == "border" || padding == "reflection", "padding_mode is '", padding,
            "', wanted zeros, border or reflection");
  const Padding outside = padding == "zeros" ? Padding::zeros : padding == "border" ? Padding::border : Padding::reflection;
  const std::int64_t points = grid.type().elements() / std::max<std::int64_t>(1, axes * grid.dim(0));
  Shape shape{x.dim(0), x.dim(1)};
  shape.insert(shape.end(), grid.shape().begin() + 1, grid.shape().end() - 1);
  for (std::int64_t i = 0; i < axes; ++i)
    n.require(x.dim(i + 2) > 0 || element_count(shape) == 0, "the input is ", to_string(x.type()));
  if (element_count(shape) == 0) return b.full({x.dtype(), shape}, 0);
  std::vector<PointTaps> taps;
  for (std::int64_t i = 0; i < axes; ++i) {
    // The last axis comes first in the grid.
    Var u = b.reshape(b.slice_axis(grid, grid.rank() - 1, axes - 1 - i, 1), {x.dim(0), points});
    taps.push_back(grid_taps(n, u, x.dim(i + 2), mode, outside));
  }
  Var read = formulas::sampled(x, b.iota({DType::i64, {x.dim(0)}}, 0), taps);
  return b.reshape(b.transpose(read, {0, 2, 1}), shape);
}

/// Samples of each bin along an axis, [regions, bins * samples]: within the image and a pixel around it, whose values go on.
PointTaps roi_taps(NodeContext& n, Var begin, Var end, std::int64_t size, std::int64_t bins, std::int64_t samples,
                   bool half_pixel) {
  Builder& b = n.b();
  const double scale = n.real("spatial_scale", 1), shift = half_pixel ? 0.5 : 0;
  const Var start = begin * scale - shift;
  Var length = end * scale - shift - start;
  if (!half_pixel) length = ops::kMaximum(length, b.like(length, 1));
  const std::int64_t count = bins * samples;
  std::vector<double> shares;
  for (std::int64_t i = 0; i < count; ++i) shares.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(count));
  const Shape shape{begin.dim(0), count};
  const Var share = b.constant(Tensor::of(begin.dtype(), {count}, shares));
  const Var position = b.broadcast(start, shape, {0}) + b.broadcast(length, shape, {0}) * b.broadcast(share, shape, {1});
  const Var last = b.like(position, static_cast<double>(size - 1)), zero = b.like(position, 0);
  PointTaps taps = formulas::linear_taps(ops::kMinimum(ops::kMaximum(position, zero), last), size, true);
  const Var inside = ops::kAnd(position >= b.like(position, -1), position <= b.like(position, static_cast<double>(size)));
  for (PointTap& tap : taps) tap.weight = b.select(inside, tap.weight, zero);
  return taps;
}

/// Taps of one axis of a plane of points: [regions, height * width].
PointTaps spread(Builder& b, const PointTaps& taps, std::int64_t height, std::int64_t width, std::int64_t axis) {
  PointTaps all;
  for (const PointTap& tap : taps) {
    const std::int64_t regions = tap.at.dim(0);
    const auto wide = [&](Var x) {
      return b.reshape(b.broadcast(x, {regions, height, width}, {0, axis + 1}), {regions, height * width});
    };
    all.push_back({wide(tap.at), wide(tap.weight)});
  }
  return all;
}

Items roi_align_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0), regions = n.var(1), images = b.cast(n.var(2), DType::i64);
  n.require(x.rank() == 4 && regions.rank() == 2 && regions.dim(1) == 4 && images.shape() == Shape{regions.dim(0)}, "the input is ",
            to_string(x.type()), ", the regions ", to_string(regions.type()), ", their images ", to_string(images.type()));
  const std::int64_t samples = n.integer("sampling_ratio", 0), count = regions.dim(0);
  const std::int64_t height = n.integer("output_height", 1), width = n.integer("output_width", 1);
  n.require(height > 0 && width > 0 && samples >= 0, "a result of ", height, " x ", width, " bins, with sampling_ratio ", samples);
  n.require(x.dim(2) > 0 && x.dim(3) > 0, "the input is ", to_string(x.type()));
  check_points(n, {height, samples, width, samples});
  if (samples == 0) n.unsupported("with sampling_ratio 0 the number of samples depends on data; export with 2, for example");
  const std::string coordinates = n.text("coordinate_transformation_mode", n.opset() < 16 ? "output_half_pixel" : "half_pixel");
  n.require(coordinates == "half_pixel" || coordinates == "output_half_pixel", "coordinate_transformation_mode is '", coordinates,
            "', wanted half_pixel or output_half_pixel");
  const std::string mode = n.text("mode", "avg");
  n.require(mode == "avg" || mode == "max", "mode is '", mode, "', wanted avg or max");
  const auto side = [&](std::int64_t i) { return b.reshape(b.slice_axis(regions, 1, i, 1), {count}); };
  const bool half_pixel = coordinates == "half_pixel";
  const std::vector<PointTaps> taps{
      spread(b, roi_taps(n, side(1), side(3), x.dim(2), height, samples, half_pixel), height * samples, width * samples, 0),
      spread(b, roi_taps(n, side(0), side(2), x.dim(3), width, samples, half_pixel), height * samples, width * samples, 1)};
  // The maximum is over neighbours, each with its weight: so the standard's own computation has it.
  Var read = mode == "max" ? b.max(formulas::neighbours(x, images, taps), {2}) : formulas::sampled(x, images, taps);
  read = b.reshape(read, {count, height, samples, width, samples, x.dim(1)});
  return b.transpose(mode == "max" ? b.max(read, {2, 4}) : b.mean(read, {2, 4}), {0, 3, 1, 2});
}

/// The input's columns are read where the offsets say, and multiplied by the weight as a convolution's would be.
Items deform_conv_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0), weight = n.var(1), offset = n.var(2);
  n.require(x.rank() == 4 && weight.rank() == 4 && offset.rank() == 4, "the input is ", to_string(x.type()), ", the weight ",
            to_string(weight.type()), ", offsets are ", to_string(offset.type()), ": two spatial axes are supported");
  const std::int64_t groups = n.integer("group", 1), sets = n.integer("offset_group", 1), batch = x.dim(0), channels = x.dim(1);
  n.require(x.dim(2) > 0 && x.dim(3) > 0, "the input is ", to_string(x.type()));
  n.require(groups > 0 && sets > 0 && channels % groups == 0 && channels % sets == 0 && weight.dim(1) * groups == channels &&
                weight.dim(0) % groups == 0,
            "the input is ", to_string(x.type()), ", the weight ", to_string(weight.type()), ", group ", groups, ", offset_group ",
            sets);
  const Windows windows = windows_of(n, {x.dim(2), x.dim(3)}, {weight.dim(2), weight.dim(3)});
  Shape out;
  for (std::size_t i = 0; i < 2; ++i)
    out.push_back(
        (x.dim(static_cast<std::int64_t>(i) + 2) + windows.low[i] + windows.high[i] - windows.extent(i)) / windows.strides[i] + 1);
  const std::int64_t taps = weight.dim(2) * weight.dim(3), positions = out[0] * out[1];
  n.require(offset.shape() == Shape{batch, sets * taps * 2, out[0], out[1]}, "offsets are ", to_string(offset.type()), ", wanted ",
            to_string(TensorType{offset.dtype(), {batch, sets * taps * 2, out[0], out[1]}}));
  const Shape points{batch * sets, taps * positions};
  const Var offsets = b.reshape(offset, {batch * sets, taps, 2, positions});
  std::vector<PointTaps> read;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    // Where the plain convolution reads: [tap][position].
    std::vector<double> plain;
    for (std::int64_t tap = 0; tap < taps; ++tap)
      for (std::int64_t p = 0; p < positions; ++p) {
        const std::int64_t at = axis == 0 ? p / out[1] : p % out[1], step = axis == 0 ? tap / weight.dim(3) : tap % weight.dim(3);
        plain.push_back(static_cast<double>(at * windows.strides[axis] - windows.low[axis] + step * windows.dilations[axis]));
      }
    const Var moved = b.reshape(b.slice_axis(offsets, 2, static_cast<std::int64_t>(axis), 1), points);
    const Var from = b.constant(Tensor::of(offset.dtype(), {taps * positions}, plain));
    read.push_back(
        formulas::linear_taps(moved + b.broadcast(from, points, {1}), x.dim(static_cast<std::int64_t>(axis) + 2), false));
  }
  const std::int64_t set_channels = channels / sets;
  Var columns = formulas::sampled(b.reshape(x, {batch * sets, set_channels, x.dim(2), x.dim(3)}),
                                  b.iota({DType::i64, {batch * sets}}, 0), read);
  if (n.has(4)) {
    n.require(n.type(4).elements() == batch * sets * taps * positions, "the mask is ", to_string(n.type(4)));
    columns = columns * b.broadcast(b.reshape(n.var(4), points), columns.shape(), {0, 1});
  }
  // [batch, set, tap, position, channel] to [batch, group, channel and tap, position].
  columns = b.transpose(b.reshape(columns, {batch, sets, taps, positions, set_channels}), {0, 1, 4, 2, 3});
  columns = b.reshape(columns, {batch, groups, channels / groups * taps, positions});
  const Shape matrix{groups, weight.dim(0) / groups, channels / groups * taps};
  const Var weights = b.broadcast(b.reshape(weight, matrix), {batch, matrix[0], matrix[1], matrix[2]}, {1, 2, 3});
  Var result = b.reshape(b.matmul(weights, columns), {batch, weight.dim(0), out[0], out[1]});
  if (n.has(3)) {
    n.require(n.shape(3) == Shape{weight.dim(0)}, "the bias is ", to_string(n.type(3)), " for ", weight.dim(0), " results");
    result = result + b.broadcast(n.var(3), result.shape(), {1});
  }
  return result;
}

constexpr Row kSamplingRows[] = {
    {"AffineGrid", 20, affine_grid_row},
    {"GridSample", 16, grid_sample_row},
    {"RoiAlign", 10, roi_align_row},
    {"DeformConv", 19, deform_conv_row},
};

}  // namespace

std::span<const Row> sampling_rows() { return kSamplingRows; }

}  // namespace gcomp::frontend
