// Multi-head attention with PyTorch's parameters, batch first.
#include "frontend/formulas/attention.h"

#include <limits>

#include "frontend/formulas/random.h"
#include "frontend/layers/impl.h"
#include "ir/ops/table.h"

namespace gcomp {
namespace {

namespace table = ir::ops;
namespace formulas = frontend::formulas;
using frontend::layer;

/// A layer of attention in the making: [batch, s, width] by [batch, t, ...].
struct Attention {
  Layers& nn;
  ir::Builder& b;
  const std::string& name;
  Var query, key, value;
  std::int64_t heads;
  const AttentionOptions& options;

  std::int64_t width() const { return query.dim(2); }
  Shape scores() const { return {query.dim(0), heads, query.dim(1), key.dim(1)}; }
};

void check_attention(const Attention& a) {
  for (const auto& [what, x] : {std::pair{"query", a.query}, {"key", a.key}, {"value", a.value}})
    check_user(x.rank() == 3 && x.dtype() == a.query.dtype() && is_float(x.dtype()) && x.dim(2) > 0 && x.dim(0) == a.query.dim(0),
               layer(a.name), "the ", what, " is ", to_string(x.type()), ", wanted floats [batch, tokens, width], the query being ",
               to_string(a.query.type()));
  check_user(a.key.dim(1) == a.value.dim(1), layer(a.name), "the key is ", to_string(a.key.type()), ", the value ",
             to_string(a.value.type()), ", wanted equally many tokens");
  check_user(a.heads > 0 && a.width() % a.heads == 0, layer(a.name), a.heads, " heads, which do not divide a width of ", a.width());
}

/// The weight's rows from `first` on of x times it transposed, plus the same of the bias, which may be null.
Var project(Var x, Var weight, Var bias) {
  ir::Builder& b = *x.builder;
  Var y = b.matmul(b.reshape(x, {x.dim(0) * x.dim(1), x.dim(2)}), weight, false, true);
  if (bias) y = y + b.broadcast(bias, y.shape());
  return b.reshape(y, {x.dim(0), x.dim(1), weight.dim(0)});
}

Var xavier(const Attention& a, const std::string& which, std::int64_t rows, std::int64_t columns) {
  const std::string full = a.name + "." + which;
  const double bound = std::sqrt(6 / static_cast<double>(rows + columns));
  return a.nn.uniform_parameter(full, {rows, columns}, bound);
}

struct Projected {
  Var q, k, v;
};
Projected projections(const Attention& a) {
  const std::int64_t width = a.width();
  const bool packed = a.key.dim(2) == width && a.value.dim(2) == width;
  Var weights[3], all;
  if (packed) {
    all = xavier(a, "in_proj_weight", 3 * width, width);
  } else {
    weights[0] = xavier(a, "q_proj_weight", width, width);
    weights[1] = xavier(a, "k_proj_weight", width, a.key.dim(2));
    weights[2] = xavier(a, "v_proj_weight", width, a.value.dim(2));
  }
  Var bias = a.options.bias ? a.nn.parameter(a.name + ".in_proj_bias", {3 * width}, {0}) : Var();
  if (packed && a.query.value == a.key.value && a.key.value == a.value.value) {
    Var y = project(a.query, all, bias);
    const auto third = [&](std::int64_t i) { return a.b.slice_axis(y, 2, i * width, width); };
    return {third(0), third(1), third(2)};
  }
  const auto part = [&](Var x, std::int64_t i) {
    return project(x, packed ? a.b.slice_axis(all, 0, i * width, width) : weights[i],
                   bias ? a.b.slice_axis(bias, 0, i * width, width) : Var());
  };
  return {part(a.query, 0), part(a.key, 1), part(a.value, 2)};
}

/// Adds what a mask of PyTorch's says, already of the scores' shape, to `mask`: true hides, floats are added.
void add_mask(formulas::Mask& mask, Var given, DType dtype) {
  if (given.dtype() == DType::boolean) {
    mask.allowed = formulas::both(mask.allowed, table::kNot(given));
  } else {
    given = given.builder->cast(given, dtype);
    mask.bias = mask.bias ? mask.bias + given : given;
  }
}

formulas::Mask mask_of(const Attention& a) {
  const Shape scores = a.scores();
  const DType dtype = a.query.dtype();
  formulas::Mask mask;
  if (a.options.causal) mask.allowed = a.b.iota({DType::i64, scores}, 3) <= a.b.iota({DType::i64, scores}, 2);
  const auto check = [&](const char* what, Var given, bool fits, const char* wanted) {
    check_user(fits && (given.dtype() == DType::boolean || is_float(given.dtype())), layer(a.name), "the ", what, " is ",
               to_string(given.type()), ", wanted bool or floats ", wanted, ", the scores being [", to_string(scores), "]");
  };
  if (Var given = a.options.key_padding_mask) {
    check("key_padding_mask", given, given.shape() == Shape{scores[0], scores[3]}, "[batch, keys]");
    add_mask(mask, a.b.broadcast(given, scores, {0, 3}), dtype);
  }
  if (Var given = a.options.attn_mask) {
    const bool by_head = given.shape() == Shape{scores[0] * scores[1], scores[2], scores[3]};
    check("attn_mask", given, by_head || given.shape() == Shape{scores[2], scores[3]},
          "[queries, keys] or [batch * heads, queries, keys]");
    add_mask(mask, by_head ? a.b.reshape(given, scores) : a.b.broadcast(given, scores), dtype);
  }
  return mask;
}

}  // namespace

Var Layers::multihead_attention(const std::string& name, Var query, Var key, Var value, std::int64_t heads,
                                AttentionOptions options) {
  impl_.builder.set_origin(name);
  const Attention a{*this, impl_.builder, name, query, key, value, heads, options};
  check_attention(a);
  const Projected p = projections(a);
  const auto split = [&](Var x) { return formulas::split_heads(x, heads); };
  const double scale = 1 / std::sqrt(static_cast<double>(a.width() / heads));
  Var scores = impl_.builder.matmul(split(p.q), split(p.k), false, true) * scale;
  // The causal frontier leaves every query the first key.
  const bool may_close = options.key_padding_mask || options.attn_mask;
  Var weights = dropout(formulas::attend(scores, mask_of(a), may_close), options.dropout);
  Var y = formulas::join_heads(impl_.builder.matmul(weights, split(p.v)));
  const std::int64_t width = a.width();
  const std::string out = name + ".out_proj";
  Var weight = uniform_parameter(out + ".weight", {width, width}, frontend::fan_in_bound(width));
  return project(y, weight, options.bias ? parameter(out + ".bias", {width}, {0}) : Var());
}

}  // namespace gcomp
