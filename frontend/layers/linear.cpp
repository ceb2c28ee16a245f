// Linear layers and embeddings.
#include "frontend/layers/impl.h"

namespace gcomp {
namespace {

using frontend::fan_in_bound;
using frontend::layer;

}  // namespace

Var Layers::linear(const std::string& name, Var x, std::int64_t features, LinearOptions options) {
  impl_.builder.set_origin(name);
  check_user(x.rank() >= 1 && is_float(x.dtype()) && x.dim(-1) > 0, layer(name), "the input is ", to_string(x.type()),
             ", wanted floats [..., in]");
  check_user(features > 0, layer(name), features, " features, wanted at least 1");
  const std::int64_t in = x.dim(-1);
  const double bound = fan_in_bound(in);
  Var weight = uniform_parameter(name + ".weight", {features, in}, bound);
  Shape shape = x.shape();
  Var y = impl_.builder.matmul(impl_.builder.reshape(x, {x.type().elements() / in, in}), weight, false, true);
  if (options.bias) y = y + impl_.builder.broadcast(uniform_parameter(name + ".bias", {features}, bound), y.shape());
  shape.back() = features;
  return impl_.builder.reshape(y, std::move(shape));
}

Var Layers::embedding(const std::string& name, Var ids, std::int64_t rows, std::int64_t width, EmbeddingOptions options) {
  impl_.builder.set_origin(name);
  check_user(is_integer(ids.dtype()), layer(name), "the ids are ", to_string(ids.type()), ", wanted integers");
  check_user(rows > 0 && width > 0, layer(name), "a table of ", rows, " rows of ", width, ", wanted at least 1 of 1");
  std::int64_t padding = options.padding_idx.value_or(-1);
  if (options.padding_idx) {
    check_user(padding >= -rows && padding < rows, layer(name), "padding_idx is ", padding, ", wanted one of ", rows, " rows");
    if (padding < 0) padding += rows;
  }
  const auto initial = [=, drawn = frontend::normal_values(impl_.seed, name + ".weight", 1)](std::int64_t first, auto values) {
    drawn(first, values);
    const std::int64_t end = std::min<std::int64_t>((padding + 1) * width - first, std::ssize(values));
    for (std::int64_t i = std::max<std::int64_t>(padding * width - first, 0); i < end; ++i) values[static_cast<std::size_t>(i)] = 0;
  };
  return impl_.builder.gather(impl_.parameter(name + ".weight", {rows, width}, initial), ids, 0, padding);
}

}  // namespace gcomp
