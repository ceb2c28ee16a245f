// Convolutions and transposed ones, over one to three spatial axes.
#include "frontend/formulas/norms.h"
#include "frontend/formulas/windows.h"
#include "frontend/layers/impl.h"

namespace gcomp {
namespace {

using frontend::each_axis;
using frontend::fan_in_bound;
using frontend::layer;
using frontend::formulas::Windows;

constexpr std::string_view kImages[] = {"", "[batch, channels, length]", "[batch, channels, height, width]",
                                        "[batch, channels, depth, height, width]"};

/// What a convolution is asked for: its name, channels and groups.
struct Convolution {
  Layers& nn;
  const std::string& name;
  Var x;
  std::int64_t channels, groups;

  void check(std::size_t rank) const {
    frontend::require_rank(layer(name), x, static_cast<std::int64_t>(rank) + 2, kImages[rank]);
    check_user(channels > 0 && groups > 0 && x.dim(1) > 0 && x.dim(1) % groups == 0 && channels % groups == 0, layer(name), groups,
               " groups, which do not divide ", x.dim(1), " input and ", channels, " output channels");
  }

  /// PyTorch's fan_in is the product of all dimensions but the first, also where the weight is a transposed convolution's.
  Var weight(Shape shape) const { return nn.uniform_parameter(name + ".weight", shape, bound(shape)); }
  Var with_bias(Var y, const Shape& weight) const {
    Var bias = nn.uniform_parameter(name + ".bias", {channels}, bound(weight));
    return y + frontend::formulas::per_channel(bias, y.shape());
  }
  static double bound(const Shape& weight) { return fan_in_bound(element_count(weight) / weight[0]); }
};

template <class Options>
Windows windows_of(const std::string& name, const PerAxis& kernel, const Options& options, std::size_t rank) {
  Windows w{.kernel = each_axis(layer(name), "kernel", kernel, rank, 1),
            .strides = each_axis(layer(name), "stride", options.stride, rank, 1),
            .dilations = each_axis(layer(name), "dilation", options.dilation, rank, 1),
            .low = each_axis(layer(name), "padding", options.padding, rank, 0),
            .high = {}};
  w.high = w.low;
  return w;
}

Shape weight_shape(std::int64_t rows, std::int64_t columns, const Windows& w) {
  Shape shape{rows, columns};
  shape.insert(shape.end(), w.kernel.begin(), w.kernel.end());
  return shape;
}

Var convolution(const Convolution& c, const PerAxis& kernel, const ConvolutionOptions& options, std::size_t rank) {
  c.check(rank);
  const Windows w = windows_of(c.name, kernel, options, rank);
  for (std::size_t i = 0; i < rank; ++i)
    check_user(c.x.dim(static_cast<std::int64_t>(i) + 2) + 2 * w.low[i] >= w.extent(i), layer(c.name), "the input is ",
               to_string(c.x.type()), ", whose spatial axis ", i, " with its padding is shorter than the kernel's reach of ",
               w.extent(i));
  const Shape shape = weight_shape(c.channels, c.x.dim(1) / c.groups, w);
  Var y = frontend::formulas::convolution(c.x, c.weight(shape), w, c.groups);
  return options.bias ? c.with_bias(y, shape) : y;
}

Var transposed(const Convolution& c, const PerAxis& kernel, const TransposedConvolutionOptions& options, std::size_t rank) {
  c.check(rank);
  const Windows w = windows_of(c.name, kernel, options, rank);
  const std::vector<std::int64_t> extra = each_axis(layer(c.name), "output_padding", options.output_padding, rank, 0);
  for (std::size_t i = 0; i < rank; ++i)
    check_user(extra[i] < std::max(w.strides[i], w.dilations[i]), layer(c.name), "output_padding is ", extra[i],
               ", wanted less than the stride ", w.strides[i], " or the dilation ", w.dilations[i]);
  const Shape shape = weight_shape(c.x.dim(1), c.channels / c.groups, w);
  Var y = frontend::formulas::transposed_convolution(c.x, c.weight(shape), w, extra, c.groups, layer(c.name));
  return options.bias ? c.with_bias(y, shape) : y;
}

}  // namespace

Var Layers::conv1d(const std::string& name, Var x, std::int64_t channels, PerAxis kernel, ConvolutionOptions options) {
  impl_.builder.set_origin(name);
  return convolution({*this, name, x, channels, options.groups}, kernel, options, 1);
}
Var Layers::conv2d(const std::string& name, Var x, std::int64_t channels, PerAxis kernel, ConvolutionOptions options) {
  impl_.builder.set_origin(name);
  return convolution({*this, name, x, channels, options.groups}, kernel, options, 2);
}
Var Layers::conv3d(const std::string& name, Var x, std::int64_t channels, PerAxis kernel, ConvolutionOptions options) {
  impl_.builder.set_origin(name);
  return convolution({*this, name, x, channels, options.groups}, kernel, options, 3);
}

Var Layers::conv_transpose1d(const std::string& name, Var x, std::int64_t channels, PerAxis kernel,
                             TransposedConvolutionOptions options) {
  impl_.builder.set_origin(name);
  return transposed({*this, name, x, channels, options.groups}, kernel, options, 1);
}
Var Layers::conv_transpose2d(const std::string& name, Var x, std::int64_t channels, PerAxis kernel,
                             TransposedConvolutionOptions options) {
  impl_.builder.set_origin(name);
  return transposed({*this, name, x, channels, options.groups}, kernel, options, 2);
}
Var Layers::conv_transpose3d(const std::string& name, Var x, std::int64_t channels, PerAxis kernel,
                             TransposedConvolutionOptions options) {
  impl_.builder.set_origin(name);
  return transposed({*this, name, x, channels, options.groups}, kernel, options, 3);
}

}  // namespace gcomp
