// The Attention operator (opset 23 to 25), and RotaryEmbedding.
#include "frontend/formulas/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;
using formulas::both;
using formulas::Mask;

/// [batch, seq, heads * size] to [batch, heads, seq, size]; rank 4 stays.
Var split_heads(NodeContext& n, Var x, std::int64_t heads) {
  if (x.rank() == 4) return x;
  n.require(x.rank() == 3 && heads > 0 && x.dim(2) % heads == 0, "input is ", to_string(x.type()), ", which does not divide into ",
            heads, " heads");
  return formulas::split_heads(x, heads);
}

/// Each key and value head serves a group of neighbouring query heads.
Var repeat_heads(NodeContext& n, Var x, std::int64_t heads) {
  if (x.dim(1) == heads) return x;
  n.require(heads % x.dim(1) == 0, heads, " query heads do not share ", x.dim(1), " key heads");
  Var wide = n.b().broadcast(x, {x.dim(0), x.dim(1), heads / x.dim(1), x.dim(2), x.dim(3)}, {0, 1, 3, 4});
  return n.b().reshape(wide, {x.dim(0), heads, x.dim(2), x.dim(3)});
}

/// Positions j (keys) that position i + offset (query) sees; `offset` is one number or one for each batch.
Var seen_by_position(NodeContext& n, const Shape& scores, Var offset, double fixed) {
  Builder& b = n.b();
  const std::int64_t left = n.integer("left_window_size", -1), right = n.integer("right_window_size", -1);
  Var query = b.iota({DType::i64, scores}, 2) + fixed, key = b.iota({DType::i64, scores}, 3), allowed;
  if (offset) query = query + b.broadcast(offset, scores, {0});
  if (n.flag("is_causal")) allowed = key <= query;
  if (left >= 0) allowed = both(allowed, query - key <= b.full({DType::i64, scores}, static_cast<double>(left)));
  if (right >= 0) allowed = both(allowed, key - query <= b.full({DType::i64, scores}, static_cast<double>(right)));
  return allowed;
}

Mask mask_of(NodeContext& n, const Shape& scores, std::int64_t past, DType dtype) {
  Builder& b = n.b();
  Mask mask;
  const bool lengths = n.has(6);
  Var offset = lengths ? b.cast(n.var(6), DType::i64) - static_cast<double>(scores[2]) : Var();
  mask.allowed = seen_by_position(n, scores, offset, static_cast<double>(past));
  if (lengths)
    mask.allowed = both(mask.allowed, b.iota({DType::i64, scores}, 3) < b.broadcast(b.cast(n.var(6), DType::i64), scores, {0}));
  if (!n.has(3)) return mask;
  Var given = n.var(3);
  const bool boolean = given.dtype() == DType::boolean;
  if (given.dim(-1) < scores[3]) {
    Integers low(given.shape().size()), high(given.shape().size());
    high.back() = scores[3] - given.dim(-1);
    given = b.pad(given, low, high, boolean ? 0 : -std::numeric_limits<double>::infinity());
  }
  n.require(broadcast_shape(n, {scores, given.shape()}) == scores, "the mask is ", to_string(n.type(3)),
            ", which does not broadcast to scores [", to_string(scores), "]");
  if (boolean) mask.allowed = both(mask.allowed, broadcast_to(given, scores));
  else mask.bias = broadcast_to(b.cast(given, dtype), scores);
  return mask;
}

/// Whether a mask may hide all keys of a row: the causal frontier of a square matrix leaves every row its own key.
bool may_close_rows(NodeContext& n, const Shape& scores) {
  return n.has(3) || n.has(6) || !n.flag("is_causal") || scores[2] > scores[3];
}

Items attention_row(NodeContext& n) {
  Builder& b = n.b();
  Var q = split_heads(n, n.var(0), n.integer("q_num_heads", 0)), k = split_heads(n, n.var(1), n.integer("kv_num_heads", 0)),
      v = split_heads(n, n.var(2), n.integer("kv_num_heads", 0));
  n.require(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, "q, k, v are ", to_string(n.type(0)), ", ", to_string(n.type(1)), ", ",
            to_string(n.type(2)));
  const std::int64_t past = n.has(4) ? n.shape(4)[2] : 0;
  if (n.has(4)) k = b.concat({n.var(4), k}, 2);
  if (n.has(5)) v = b.concat({n.var(5), v}, 2);
  Var present_key = k, present_value = v;
  k = repeat_heads(n, k, q.dim(1));
  v = repeat_heads(n, v, q.dim(1));
  const double scale = n.has_attribute("scale") ? n.real("scale", 1) : 1 / std::sqrt(static_cast<double>(q.dim(3))),
               softcap = n.real("softcap", 0);
  Var scores = b.matmul(q, k, false, true) * scale;
  const std::int64_t mode = n.integer("qk_matmul_output_mode", 0);
  Var shown = scores;
  if (softcap > 0) scores = ops::kTanh(scores * (1 / softcap)) * softcap;
  if (mode == 1) shown = scores;
  const DType precise =
      n.has_attribute("softmax_precision") ? n.dtype_of(n.integer("softmax_precision", 1)) : compute_type(q.dtype());
  Mask mask = mask_of(n, scores.shape(), past, q.dtype());
  if (mode == 2) {
    shown = mask.bias ? scores + mask.bias : scores;
    if (mask.allowed) shown = b.select(mask.allowed, shown, b.like(shown, -std::numeric_limits<double>::infinity()));
  }
  if (mask.bias) mask.bias = b.cast(mask.bias, precise);
  Var probability = b.cast(formulas::attend(b.cast(scores, precise), mask, may_close_rows(n, scores.shape())), q.dtype());
  if (mode == 3) shown = probability;
  Var y = b.matmul(probability, v);
  if (n.rank(0) == 3) y = formulas::join_heads(y);
  return Items::of({y, present_key, present_value, shown});
}

/// Rotates pairs of each head's first elements by an angle of their position.
Items rotary_embedding_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0), cosine = n.var(1), sine = n.var(2);
  const bool flat = x.rank() == 3, interleaved = n.flag("interleaved");
  if (flat) {
    const std::int64_t heads = n.integer("num_heads", 0);
    n.require(heads > 0 && x.dim(2) % heads == 0, "input is ", to_string(x.type()), ", which does not divide into ", heads,
              " heads");
    x = b.reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads});
  } else {
    x = b.transpose(x, {0, 2, 1, 3});
  }
  const std::int64_t given = n.integer("rotary_embedding_dim", 0), size = given ? given : x.dim(3), half = size / 2;
  if (n.has(3)) {
    cosine = b.gather(cosine, n.var(3), 0);
    sine = b.gather(sine, n.var(3), 0);
  }
  n.require(cosine.rank() == 3 && cosine.dim(2) == half, "cosines are ", to_string(cosine.type()), ", wanted ", half,
            " for each position");
  const Shape pairs{x.dim(0), x.dim(1), x.dim(2), half};
  cosine = b.broadcast(cosine, pairs, {0, 1, 3});
  sine = b.broadcast(sine, pairs, {0, 1, 3});
  auto part = [&](std::int64_t which) {
    if (!interleaved) return b.slice_axis(x, 3, which * half, half);
    return b.slice(x, {0, 0, 0, which}, pairs, {1, 1, 1, 2});
  };
  Var first = part(0), second = part(1);
  Var real = cosine * first - sine * second, imaginary = sine * first + cosine * second, rotated;
  if (interleaved) {
    Shape single = pairs;
    single.push_back(1);
    rotated = b.reshape(b.concat({b.reshape(real, single), b.reshape(imaginary, single)}, 4), {x.dim(0), x.dim(1), x.dim(2), size});
  } else {
    rotated = b.concat({real, imaginary}, 3);
  }
  if (size < x.dim(3)) rotated = b.concat({rotated, b.slice_axis(x, 3, size, x.dim(3) - size)}, 3);
  return flat ? b.reshape(rotated, n.shape(0)) : b.transpose(rotated, {0, 2, 1, 3});
}

constexpr Row kAttentionRows[] = {{"Attention", 23, attention_row}, {"RotaryEmbedding", 23, rotary_embedding_row}};

}  // namespace

std::span<const Row> attention_rows() { return kAttentionRows; }

}  // namespace gcomp::frontend
