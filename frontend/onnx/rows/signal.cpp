// Operators of signal processing: windows, DFT and STFT as products with constant matrices, the weights of mel bands.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/base/integers.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;

/// Elements of a window, and of the matrix of a transform.
constexpr std::int64_t kMaxWindow = std::int64_t{1} << 24, kMaxTransform = std::int64_t{1} << 25;

struct Cosines {
  double constant, once, twice;  ///< plus `once` times the cosine over the window, plus `twice` that of two periods
};

/// A window of so many elements, computed at import.
template <const Cosines& cosines>
Items window_row(NodeContext& n) {
  const auto size = static_cast<std::int64_t>(n.number(0, "the size"));
  n.require(size >= 0 && size <= kMaxWindow, "the size is ", size, ", wanted at most ", kMaxWindow);
  const std::int64_t period = n.flag("periodic", true) ? size : size - 1;
  std::vector<double> values;
  for (std::int64_t i = 0; i < size; ++i) {
    const double angle = period > 0 ? 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(period) : 0;
    values.push_back(period > 0 ? cosines.constant + cosines.once * std::cos(angle) + cosines.twice * std::cos(2 * angle) : 1);
  }
  return n.converted(Tensor::of(n.dtype_of(n.integer("output_datatype", 1)), {size}, values));
}

constexpr Cosines kHann{0.5, -0.5, 0}, kHamming{25.0 / 46, -21.0 / 46, 0}, kBlackman{0.42, -0.5, 0.08};

/// What a transform makes of the first `in` elements of a signal of period `length`: elements 0 to `out` - 1.
struct Transform {
  std::int64_t in = 0, out = 0, length = 0;
  bool inverse = false;
};

/// Real or imaginary parts of the numbers that a transform multiplies with, each row times its scale.
Tensor matrix_of(const NodeContext& n, const Transform& t, DType dtype, bool imaginary, const std::vector<double>& scales) {
  if (t.out > kMaxTransform / t.in)
    n.unsupported("a transform of ", t.in, " elements to ", t.out, " takes a matrix of more than ", kMaxTransform, " numbers");
  std::vector<double> period;
  for (std::int64_t i = 0; i < t.length; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(t.length);
    period.push_back(!imaginary ? std::cos(angle) : t.inverse ? std::sin(angle) : -std::sin(angle));
  }
  std::vector<double> values;
  for (std::int64_t i = 0; i < t.in; ++i)
    for (std::int64_t k = 0; k < t.out; ++k)
      values.push_back(period[static_cast<std::size_t>(i * k % t.length)] * scales[static_cast<std::size_t>(i)]);
  return Tensor::of(dtype, {t.in, t.out}, values);
}

/// The transform of the rows of `real` (and `imaginary`, which may be empty), both [rows, in]: its two parts.
std::pair<Var, Var> transformed(NodeContext& n, Var real, Var imaginary, const Transform& t, const std::vector<double>& scales) {
  Builder& b = n.b();
  const Var cosines = b.constant(matrix_of(n, t, real.dtype(), false, scales)),
            sines = b.constant(matrix_of(n, t, real.dtype(), true, scales));
  Var a = b.matmul(real, cosines), c = b.matmul(real, sines);
  if (imaginary) {
    a = a - b.matmul(imaginary, sines);
    c = c + b.matmul(imaginary, cosines);
  }
  return {a, c};
}

/// The two parts side by side in a last axis.
Var joined(Builder& b, Var real, Var imaginary) {
  Shape one = real.shape();
  one.push_back(1);
  return b.concat({b.reshape(real, one), b.reshape(imaginary, one)}, real.rank());
}

/// Part `i` of the last axis, which is dropped.
Var part(Builder& b, Var x, std::int64_t i) {
  return b.reshape(b.slice_axis(x, x.rank() - 1, i, 1), Shape(x.shape().begin(), x.shape().end() - 1));
}

Items dft_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0);
  const std::int64_t parts = x.rank() < 2 ? 0 : x.dim(-1);
  n.require(parts == 1 || parts == 2, "the signal is ", to_string(x.type()), ", wanted [..., 1 or 2]");
  const std::int64_t given = n.opset() < 20 ? n.integer("axis", 1)
                             : n.has(2)     ? static_cast<std::int64_t>(n.number(2, "the axis"))
                                            : -2;
  const std::int64_t axis = n.axis(given, x.rank());
  n.require(axis < x.rank() - 1, "the axis is ", given, ", that of real and imaginary parts");
  const bool inverse = n.flag("inverse"), onesided = n.flag("onesided");
  const std::int64_t size = x.dim(axis), whole = onesided && inverse ? 2 * (size - 1) : size;
  const std::int64_t length = n.has(1) ? static_cast<std::int64_t>(n.number(1, "the length")) : whole;
  n.require(length > 0 && size > 0, "the length is ", length, ", the signal ", to_string(x.type()));
  n.require(!onesided || inverse || parts == 1, "a one-sided transform of a complex signal");
  const std::int64_t half = length / 2 + 1;
  const Transform t{std::min(size, onesided && inverse ? half : length), onesided && !inverse ? half : length, length, inverse};
  // Behind the first half follow the conjugates of all but the first and, of an even length, the last.
  std::vector<double> scales(static_cast<std::size_t>(t.in), inverse ? 1 / static_cast<double>(length) : 1);
  if (onesided && inverse)
    for (std::int64_t i = 1; i < t.in; ++i)
      if (2 * i != length) scales[static_cast<std::size_t>(i)] *= 2;
  Integers order;
  for (std::int64_t i = 0; i + 1 < x.rank(); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  Shape shape;
  for (const std::int64_t i : order) shape.push_back(x.dim(i));
  const auto rows_of = [&](std::int64_t i) {
    Var rows = b.transpose(part(b, x, i), order);
    rows = b.reshape(rows, {rows.type().elements() / size, size});
    return b.slice_axis(rows, 1, 0, t.in);
  };
  const auto [real, imaginary] = transformed(n, rows_of(0), parts == 2 ? rows_of(1) : Var(), t, scales);
  shape.back() = t.out;
  Integers back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  const auto placed = [&](Var rows) { return b.transpose(b.reshape(rows, shape), back); };
  if (!onesided || !inverse) return joined(b, placed(real), placed(imaginary));
  Var result = placed(real);
  Shape one = result.shape();
  one.push_back(1);
  return b.reshape(result, one);
}

/// Windows of the signal, each times `window` and transformed: [batch, frames, bins, 2].
Items stft_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0);
  n.require(x.rank() == 2 || (x.rank() == 3 && (x.dim(2) == 1 || x.dim(2) == 2)), "the signal is ", to_string(x.type()),
            ", wanted [batch, length, 1 or 2]");
  const std::int64_t batch = x.dim(0), size = x.dim(1), step = static_cast<std::int64_t>(n.number(1, "the frame step"));
  const std::int64_t length = n.has(3)   ? static_cast<std::int64_t>(n.number(3, "the frame length"))
                              : n.has(2) ? n.type(2).elements()
                                         : size;
  n.require(step > 0 && length > 0 && length <= size, "frames of ", length, ", ", step, " apart, of a signal of ", size);
  const bool complex = x.rank() == 3 && x.dim(2) == 2, onesided = n.flag("onesided", true) && !complex;
  const std::int64_t frames = (size - length) / step + 1;
  const Transform t{length, onesided ? length / 2 + 1 : length, length, false};
  const auto frames_of = [&](std::int64_t i) {
    Var signal = x.rank() == 2 ? x : part(b, x, i);
    Var seen = b.apply(ops::kWindow, {signal},
                       {{"kernel", Integers{length}},
                        {"strides", Integers{step}},
                        {"low", Integers{0}},
                        {"high", Integers{0}},
                        {"dilations", Integers{1}}});
    if (n.has(2)) {
      n.require(n.shape(2) == Shape{length}, "the window is ", to_string(n.type(2)), " for frames of ", length);
      seen = seen * b.broadcast(b.cast(n.var(2), seen.dtype()), seen.shape(), {2});
    }
    return b.reshape(seen, {batch * frames, length});
  };
  const auto [real, imaginary] =
      transformed(n, frames_of(0), complex ? frames_of(1) : Var(), t, std::vector<double>(static_cast<std::size_t>(length), 1));
  return b.reshape(joined(b, real, imaginary), {batch, frames, t.out, 2});
}

/// [spectrogram bins, mel bands], computed at import: triangles between neighbouring frequencies of the mel scale (HTK's).
Items mel_weight_row(NodeContext& n) {
  const auto bands = static_cast<std::int64_t>(n.number(0, "the number of mel bands"));
  const auto length = static_cast<std::int64_t>(n.number(1, "the length of the transform"));
  const double rate = n.number(2, "the sample rate"), lower = n.number(3, "the lower edge"), upper = n.number(4, "the upper edge");
  const std::int64_t bins = length / 2 + 1;
  n.require(bands >= 0 && length > 0 && rate > 0 && lower >= 0 && upper >= lower && upper <= rate / 2 && bands <= kMaxWindow / bins,
            bands, " mel bands from ", lower, " to ", upper, " Hz, of ", bins, " bins and ", rate, " samples a second");
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double step = (mel(upper) - mel(lower)) / static_cast<double>(bands + 2);
  std::vector<std::int64_t> edges;
  for (std::int64_t i = 0; i < bands + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (mel(lower) + step * static_cast<double>(i)) / 2595) - 1);
    edges.push_back(std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(static_cast<double>(length + 1) * hertz / rate)),
                                             0, bins - 1));
  }
  std::vector<double> values(static_cast<std::size_t>(bins * bands));
  for (std::int64_t band = 0; band < bands; ++band) {
    const auto at = static_cast<std::size_t>(band);
    const std::int64_t low = edges[at], middle = edges[at + 1], high = edges[at + 2];
    const auto set = [&](std::int64_t bin, double value) { values[static_cast<std::size_t>(bin * bands + band)] = value; };
    if (low == middle) set(middle, 1);
    else
      for (std::int64_t bin = low; bin <= middle; ++bin)
        set(bin, static_cast<double>(bin - low) / static_cast<double>(middle - low));
    for (std::int64_t bin = middle; bin < high; ++bin)
      set(bin, static_cast<double>(high - bin) / static_cast<double>(high - middle));
  }
  return n.converted(Tensor::of(n.dtype_of(n.integer("output_datatype", 1)), {bins, bands}, values));
}

constexpr Row kSignalRows[] = {
    {"HannWindow", 17, window_row<kHann>},
    {"HammingWindow", 17, window_row<kHamming>},
    {"BlackmanWindow", 17, window_row<kBlackman>},
    {"DFT", 17, dft_row},
    {"STFT", 17, stft_row},
    {"MelWeightMatrix", 17, mel_weight_row},
};

}  // namespace

std::span<const Row> signal_rows() { return kSignalRows; }

}  // namespace gcomp::frontend
