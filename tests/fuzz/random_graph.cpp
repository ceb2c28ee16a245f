#include "tests/fuzz/random_graph.h"

#include <algorithm>
#include <random>

#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/training/differentiate.h"

namespace gcomp::tests {
namespace {

using ir::Var;
using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kMostElements = 600;

class Generator {
 public:
  Generator(std::uint64_t seed, DType dtype, LossOf loss, RandomGraph& result)
      : random_(seed), dtype_(dtype), is_chain_(loss == LossOf::a_part_of_the_last), result_(result), builder_(result.graph) {}

  void generate() {
    const int inputs = between(1, 3), steps = between(6, 18);
    for (int i = 0; i < inputs; ++i) values_.push_back(new_input(random_shape()));
    for (int i = 0; i < steps; ++i) {
      const Var made = calm(one_step());
      if (made.type().elements() <= kMostElements) values_.push_back(made);
    }
    finish();
  }

 private:
  // ---- chance ----

  // Not std::uniform_int_distribution, whose results differ between libraries.
  int between(int low, int high) { return low + static_cast<int>(random_() % static_cast<std::uint64_t>(high - low + 1)); }
  double real(double low, double high) { return low + (high - low) * static_cast<double>(random_() >> 11) * 0x1p-53; }
  bool toss() { return between(0, 1) == 1; }
  template <class T>
  const T& one_of(const std::vector<T>& candidates) {
    return candidates[static_cast<std::size_t>(between(0, static_cast<int>(candidates.size()) - 1))];
  }

  Shape random_shape() {
    Shape shape;
    const int rank = between(1, 4);
    std::int64_t elements = 1;
    for (int i = 0; i < rank; ++i) {
      shape.push_back(one_of(Integers{1, 2, 3, 4, 5, 8, 17}));
      elements *= shape.back();
      if (elements * 2 > kMostElements) break;
    }
    return shape;
  }

  Integers random_permutation(std::int64_t rank) {
    Integers order;
    for (std::int64_t i = 0; i < rank; ++i) order.insert(order.begin() + between(0, static_cast<int>(i)), i);
    return order;
  }

  // ---- values ----

  Var new_input(Shape shape) {
    const std::string name = "x" + std::to_string(result_.values.size());
    const TensorType type{dtype_, std::move(shape)};
    Tensor tensor(type);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, real(-1.5, 1.5));
    result_.values.emplace(name, std::move(tensor));
    return builder_.input(type, name);
  }

  Var pick() { return is_chain_ && between(0, 5) > 0 ? values_.back() : one_of(values_); }

  Var pick_of_rank(std::int64_t low, std::int64_t high) {
    if (is_chain_ && values_.back().rank() >= low && values_.back().rank() <= high) return values_.back();
    std::vector<Var> found;
    for (const Var v : values_)
      if (v.rank() >= low && v.rank() <= high) found.push_back(v);
    if (!found.empty()) return one_of(found);
    Shape shape;
    for (std::int64_t i = 0; i < low; ++i) shape.push_back(between(2, 5));
    return new_input(std::move(shape));
  }

  /// A value of the type of x: x under a pointwise function, another of its type, or a smaller one repeated.
  Var partner_of(Var x) {
    std::vector<Var> same;
    for (const Var v : values_)
      if (v.type() == x.type()) same.push_back(v);
    if (!same.empty() && toss()) return one_of(same);
    Shape shape = x.shape();
    const int kept = between(0, static_cast<int>(shape.size()));
    shape.erase(shape.begin(), shape.end() - kept);
    for (std::int64_t& size : shape)
      if (between(0, 3) == 0) size = 1;
    return builder_.broadcast(new_input(shape), x.shape());
  }

  /// Keeps values of a depth of any number of ops within a few units.
  Var calm(Var x) {
    if (between(0, 2) > 0) return x;
    return toss() ? ir::ops::kTanh(x) : x * 0.5;
  }

  // ---- steps ----

  Var one_step() {
    static const std::vector<Var (Generator::*)()> kSteps = {
        &Generator::unary,   &Generator::unary,       &Generator::binary, &Generator::binary,    &Generator::choice,
        &Generator::view,    &Generator::view,        &Generator::view,   &Generator::reduction, &Generator::reduction,
        &Generator::matmul,  &Generator::softmax,     &Generator::norm,   &Generator::lookup,    &Generator::running_sum,
        &Generator::pooling, &Generator::convolution, &Generator::join,   &Generator::attention};
    if (is_chain_ && between(0, 5) == 0) return attention_as_one();
    return (this->*one_of(kSteps))();
  }

  Var unary() {
    static const std::vector<const ir::OpDef*> kSmooth = {&ir::ops::kTanh,     &ir::ops::kSigmoid, &ir::ops::kErf, &ir::ops::kSin,
                                                          &ir::ops::kCos,      &ir::ops::kRelu,    &ir::ops::kAbs, &ir::ops::kNeg,
                                                          &ir::ops::kSoftplus, &ir::ops::kAtan};
    static const std::vector<const ir::OpDef*> kOfPositives = {&ir::ops::kSqrt, &ir::ops::kLog, &ir::ops::kRsqrt};
    const Var x = pick();
    switch (between(0, 4)) {
      case 0: return ir::ops::kExp(ir::ops::kTanh(x));
      case 1: return builder_.apply(*one_of(kOfPositives), {x * x + 0.5});
      default: return (*one_of(kSmooth))(x);
    }
  }

  Var binary() {
    const Var x = pick(), y = partner_of(x);
    switch (between(0, 5)) {
      case 0: return x + y;
      case 1: return x - y;
      case 2: return x * y;
      case 3: return x / (y * y + 1.0);
      case 4: return ir::ops::kMaximum(x, y);
      default: return ir::ops::kMinimum(x, y);
    }
  }

  Var choice() {
    const Var x = pick(), y = partner_of(x);
    return builder_.select(toss() ? x < y : x >= builder_.like(x, 0.1), y * 2.0, x);
  }

  Var view() {
    const Var x = pick();
    switch (between(0, 4)) {
      case 0: return builder_.transpose(x, random_permutation(x.rank()));
      case 1: return builder_.reshape(x, regrouped(x.type().elements()));
      case 2: return slice(x);
      case 3: return pad(x);
      default: return repeated(x);
    }
  }

  Shape regrouped(std::int64_t elements) {
    Shape shape;
    while (elements > 1 && shape.size() < 4) {
      Integers divisors;
      for (std::int64_t d = 1; d <= elements; ++d)
        if (elements % d == 0) divisors.push_back(d);
      shape.push_back(one_of(divisors));
      elements /= shape.back();
    }
    shape.push_back(elements);
    return shape;
  }

  Var slice(Var x) {
    Integers starts, sizes, steps;
    for (const std::int64_t size : x.shape()) {
      const std::int64_t step = one_of(Integers{1, 1, 2, -1, 3}), count = between(1, static_cast<int>(size));
      const std::int64_t fitting = std::min(count, (size - 1) / std::abs(step) + 1), reach = (fitting - 1) * std::abs(step);
      const std::int64_t first = between(0, static_cast<int>(size - 1 - reach));
      starts.push_back(step > 0 ? first : first + reach), sizes.push_back(fitting), steps.push_back(step);
    }
    return builder_.slice(x, starts, sizes, steps);
  }

  Var pad(Var x) {
    Integers low, high;
    for (std::int64_t i = 0; i < x.rank(); ++i) low.push_back(between(0, 1)), high.push_back(between(0, 2));
    return builder_.pad(x, low, high, real(-1, 1));
  }

  Var repeated(Var x) {
    Integers axes;
    const auto added = static_cast<std::int64_t>(between(0, static_cast<int>(x.rank())));
    Shape result;
    for (std::int64_t i = 0; i < x.rank(); ++i) {
      if (i == added) result.push_back(between(1, 3));
      axes.push_back(static_cast<std::int64_t>(result.size()));
      result.push_back(x.shape()[static_cast<std::size_t>(i)]);
    }
    if (added == x.rank()) result.push_back(between(1, 3));
    return builder_.broadcast(x, result, axes);
  }

  Var reduction() {
    const Var x = pick_of_rank(1, 5);
    Integers axes;
    for (std::int64_t i = 0; i < x.rank(); ++i)
      if (toss()) axes.push_back(i);
    if (axes.empty()) axes.push_back(x.rank() - 1);
    const bool keep = toss();
    switch (between(0, 2)) {
      case 0: return builder_.sum(x, axes, keep) * 0.3;
      case 1: return builder_.max(x, axes, keep);
      default: return builder_.mean(x, axes, keep);
    }
  }

  Var matmul() {
    Var x = pick_of_rank(2, 3);
    Shape weight = x.shape();
    const bool transposed = toss();
    const std::int64_t inner = x.dim(-1), columns = between(1, 9);
    weight[weight.size() - 2] = transposed ? columns : inner;
    weight.back() = transposed ? inner : columns;
    return builder_.matmul(x, new_input(weight), false, transposed) * (1.0 / static_cast<double>(inner));
  }

  Var softmax() {
    const Var x = pick_of_rank(1, 4);
    const std::int64_t axis = between(0, static_cast<int>(x.rank()) - 1);
    return builder_.apply(toss() ? ir::ops::kSoftmax : ir::ops::kLogSoftmax, {x}, {{"axis", axis}});
  }

  Var norm() {
    const Var x = pick_of_rank(2, 4);
    if (x.dim(-1) < 2) return unary();
    if (toss() || x.type().elements() == x.dim(1)) {
      const Shape row{x.dim(-1)};
      return builder_.apply(ir::ops::kLayerNorm, {x, new_input(row), new_input(row)}, {{"axis", x.rank() - 1}, {"epsilon", 0.1}});
    }
    const Shape channels{x.dim(1)};
    return builder_.apply_many(ir::ops::kBatchNorm, {x, new_input(channels), new_input(channels)}, {{"epsilon", 0.1}})[0];
  }

  Var lookup() {
    const Var x = pick_of_rank(1, 3);
    const std::int64_t axis = between(0, static_cast<int>(x.rank()) - 1), count = between(1, 6);
    Tensor indices(DType::i64, {count});
    for (std::int64_t i = 0; i < count; ++i) indices.set(i, between(0, static_cast<int>(x.dim(axis)) - 1));
    return builder_.gather(x, builder_.constant(indices), axis);
  }

  Var running_sum() {
    const Var x = pick_of_rank(1, 4);
    const std::int64_t axis = between(0, static_cast<int>(x.rank()) - 1);
    return builder_.apply(ir::ops::kCumulativeSum, {x}, {{"axis", axis}, {"exclusive", toss()}, {"reverse", toss()}}) * 0.4;
  }

  Var pooling() {
    const Var x = pick_of_rank(3, 4);
    const auto spatial = static_cast<std::size_t>(x.rank() - 2);
    Integers kernel, strides, low, high, dilations;
    for (std::size_t i = 0; i < spatial; ++i) {
      kernel.push_back(std::min<std::int64_t>(between(1, 3), x.shape()[i + 2]));
      strides.push_back(between(1, 2)), dilations.push_back(1);
      low.push_back(kernel.back() > 1 ? between(0, 1) : 0), high.push_back(kernel.back() > 1 ? between(0, 1) : 0);
    }
    return builder_.apply_many(
        ir::ops::kMaxPool, {x},
        {{"kernel", kernel}, {"strides", strides}, {"low", low}, {"high", high}, {"dilations", dilations}})[0];
  }

  Var convolution() {
    const Var x = pick_of_rank(3, 4);
    const auto spatial = static_cast<std::size_t>(x.rank() - 2);
    const std::int64_t groups = x.dim(1) % 2 == 0 && toss() ? 2 : 1;
    Shape weight{groups * between(1, 4), x.dim(1) / groups};
    Integers strides, low, high, dilations;
    for (std::size_t i = 0; i < spatial; ++i) {
      const std::int64_t size = x.shape()[i + 2], kernel = std::min<std::int64_t>(between(1, 3), size);
      weight.push_back(kernel);
      strides.push_back(between(1, 2)), low.push_back(between(0, 1)), high.push_back(between(0, 1));
      dilations.push_back(kernel > 1 && (kernel - 1) * 2 < size ? between(1, 2) : 1);
    }
    return builder_.apply(ir::ops::kConvolution, {x, new_input(weight)},
                          {{"strides", strides}, {"low", low}, {"high", high}, {"dilations", dilations}, {"groups", groups}}) *
           0.4;
  }

  Var join() {
    const Var x = pick_of_rank(1, 4), y = partner_of(x);
    return builder_.concat({x, y}, between(0, static_cast<int>(x.rank()) - 1));
  }

  Var attention() {
    const Var q = pick_of_rank(3, 3), k = toss() ? q : partner_of(q), v = partner_of(q);
    const Var scores = builder_.matmul(q, k, false, true) * 0.5;
    return builder_.matmul(builder_.apply(ir::ops::kSoftmax, {scores}, {{"axis", std::int64_t{2}}}), v);
  }

  /// As one op, with a mask or not, and other keys than queries.
  Var attention_as_one() {
    const Var q = pick_of_rank(2, 4);
    Shape keys = q.shape(), values;
    keys[keys.size() - 2] = toss() ? q.dim(-2) : between(1, 6);
    values = keys;
    values.back() = between(1, 5);
    Shape mask = q.shape();
    mask.back() = keys[keys.size() - 2];
    for (std::int64_t& extent : mask)
      if (toss()) extent = 1;
    const bool same = keys == q.shape() && toss();
    std::vector<Var> operands = {q, same ? q : new_input(keys), new_input(values)};
    if (toss()) {
      const Var added = new_input(mask);
      operands.push_back(toss() ? added : added > builder_.like(added, -0.9));
    }
    return builder_.apply_many(ir::ops::kAttention, operands, {{"scale", 0.7}, {"causal", toss()}, {"hidden", -30.0}})[0];
  }

  // ---- the end ----

  Var all_summed(Var v) {
    Tensor weights(dtype_, v.shape());
    for (std::int64_t j = 0; j < weights.elements(); ++j) weights.set(j, real(-1, 1));
    Integers axes;
    for (std::int64_t axis = 0; axis < v.rank(); ++axis) axes.push_back(axis);
    return builder_.sum(v * builder_.constant(weights), axes);
  }

  void finish_in_part() {
    const Var last = values_.back();
    Var part = slice(last);
    for (int i = 0; i < 20 && part.type().elements() * 2 > last.type().elements(); ++i) part = slice(last);
    result_.graph.outputs() = {all_summed(part).value};
    if (toss()) result_.graph.outputs().push_back(part.value);
  }

  void finish() {
    if (is_chain_) return finish_in_part();
    Var loss;
    std::vector<ir::Value*> outputs;
    for (std::size_t i = values_.size(); i-- > 0;) {
      const Var v = values_[i];
      const bool last = i + 1 == values_.size();
      if (!last && between(0, 3) > 0) continue;
      const Var part = all_summed(v);
      loss = loss ? loss + part : part;
      if (toss() && v.value->producer) outputs.push_back(v.value);
    }
    result_.graph.outputs() = {loss.value};
    for (ir::Value* value : outputs) result_.graph.outputs().push_back(value);
  }

  std::mt19937_64 random_;
  DType dtype_;
  bool is_chain_;
  RandomGraph& result_;
  ir::Builder builder_;
  std::vector<Var> values_;
};

}  // namespace

RandomGraph random_graph(std::uint64_t seed, DType dtype, LossOf loss) {
  RandomGraph result{ir::Graph("random_" + std::to_string(seed)), {}};
  Generator(seed, dtype, loss, result).generate();
  return result;
}

void append_gradients(ir::Graph& graph) {
  const std::vector<ir::Value*> inputs(graph.inputs().begin(), graph.inputs().end());
  for (ir::Value* gradient : passes::differentiate(graph, graph.outputs()[0], inputs)) graph.outputs().push_back(gradient);
}

}  // namespace gcomp::tests
