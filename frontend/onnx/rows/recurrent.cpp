// LSTM, GRU and RNN, unrolled over time (frontend/formulas/recurrent.h). ONNX's gate orders: i, o, f, c and z, r, h.
#include "frontend/formulas/recurrent.h"

#include <algorithm>
#include <cctype>

#include "frontend/formulas/activations.h"
#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;
using formulas::add_bias;
using formulas::CellState;
using formulas::Unrolled;

struct ActivationRow;
struct Activation {
  const ActivationRow* row = nullptr;
  double alpha = 0, beta = 0;

  Var operator()(Var x) const;
};

/// An activation of ONNX's list, by its name in lower case.
struct ActivationRow {
  std::string_view name;
  double alpha, beta;  ///< defaults
  int parameters;      ///< how many of the two it takes
  Var (*apply)(const Activation& f, Var x, Var zero);
};

using F = const Activation&;
constexpr ActivationRow kActivations[] = {
    {"sigmoid", 0, 0, 0, [](F, Var x, Var) { return ops::kSigmoid(x); }},
    {"tanh", 0, 0, 0, [](F, Var x, Var) { return ops::kTanh(x); }},
    {"relu", 0, 0, 0, [](F, Var x, Var) { return ops::kRelu(x); }},
    {"softsign", 0, 0, 0, [](F, Var x, Var) { return formulas::softsign(x); }},
    {"softplus", 0, 0, 0, [](F, Var x, Var) { return ops::kSoftplus(x); }},
    {"affine", 1, 0, 2, [](F f, Var x, Var) { return x * f.alpha + f.beta; }},
    {"leakyrelu", 0.01, 0, 1, [](F f, Var x, Var) { return formulas::leaky_relu(x, f.alpha); }},
    {"thresholdedrelu", 1, 0, 1, [](F f, Var x, Var zero) { return ops::choose(x.builder->like(x, f.alpha) < x, x, zero); }},
    {"scaledtanh", 1, 1, 2, [](F f, Var x, Var) { return ops::kTanh(x * f.beta) * f.alpha; }},
    {"hardsigmoid", 0.2, 0.5, 2, [](F f, Var x, Var) { return formulas::hard_sigmoid(x, f.alpha, f.beta); }},
    {"elu", 1, 0, 1, [](F f, Var x, Var) { return formulas::elu(x, f.alpha); }},
};

Var Activation::operator()(Var x) const { return row->apply(*this, x, x.builder->like(x, 0)); }

/// The activations of all directions, in the file's order, each with its own alpha and beta.
std::vector<Activation> activations_of(NodeContext& n, const std::vector<std::string>& defaults, std::size_t directions) {
  std::vector<std::string> names = n.texts("activations");
  if (names.empty())
    for (std::size_t d = 0; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  n.require(names.size() == defaults.size() * directions, "found ", names.size(), " activations, wanted ",
            defaults.size() * directions);
  const auto alphas = n.reals("activation_alpha"), betas = n.reals("activation_beta");
  std::size_t next_alpha = 0, next_beta = 0;
  std::vector<Activation> result;
  for (std::string name : names) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const auto* row = std::find_if(std::begin(kActivations), std::end(kActivations), [&](const auto& r) { return r.name == name; });
    if (row == std::end(kActivations)) n.unsupported("activation ", name, " is not known");
    Activation f{row, row->alpha, row->beta};
    if (row->parameters > 0 && next_alpha < alphas.size()) f.alpha = alphas[next_alpha++];
    if (row->parameters > 1 && next_beta < betas.size()) f.beta = betas[next_beta++];
    result.push_back(f);
  }
  return result;
}

/// Shapes and operands of one recurrent node, in ONNX's own layout (time first).
struct Recurrent {
  NodeContext& n;
  Var x;  ///< [time, batch, input]
  std::int64_t gates, steps, batch, hidden, directions;
  std::vector<Activation> activations;
  double clip = 0;
  Var lengths;  ///< [batch, hidden]: steps of each sequence; null where all are full

  Builder& b() const { return n.b(); }
  /// Operand `i` of one direction, without its leading axis.
  Var of_direction(std::size_t i, std::int64_t d) const {
    Var all = n.var(i);
    n.require(all.rank() > 0 && all.dim(0) == directions, "input ", i, " is ", to_string(all.type()), ", wanted ", directions,
              " directions first");
    return b().reshape(b().slice_axis(all, 0, d, 1), Shape(all.shape().begin() + 1, all.shape().end()));
  }
  /// [batch, hidden] of an initial state, zeros if there is none.
  Var initial(std::size_t i, std::int64_t d) const {
    if (!n.has(i)) return b().full({x.dtype(), {batch, hidden}}, 0);
    const bool batch_first = n.integer("layout", 0) == 1;
    const Shape wanted = batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
    n.require(n.shape(i) == wanted, "the initial state, input ", i, ", is ", to_string(n.type(i)), ", wanted ",
              to_string(TensorType{x.dtype(), wanted}),
              ": states are as wide as the hidden layer, and projections (PyTorch's proj_size) are not part of the operator");
    if (!batch_first) return of_direction(i, d);
    return b().reshape(b().slice_axis(n.var(i), 1, d, 1), {batch, hidden});
  }
  Var clipped(Var v) const { return clip > 0 ? formulas::clamp(v, -clip, clip) : v; }
  formulas::Activate bounded() const {
    return [this](Var v) { return clipped(v); };
  }
  const Activation& f(std::int64_t d, std::size_t i) const {
    return activations[static_cast<std::size_t>(d) * (activations.size() / static_cast<std::size_t>(directions)) + i];
  }
};

Recurrent recurrent_of(NodeContext& n, std::int64_t gates, const std::vector<std::string>& activations) {
  const bool batch_first = n.integer("layout", 0) == 1;
  Var x = n.var(0);
  n.require(x.rank() == 3 && n.rank(1) == 3 && n.rank(2) == 3, "x is ", to_string(x.type()), ", W is ", to_string(n.type(1)),
            ", R is ", to_string(n.type(2)), ", wanted rank 3");
  if (batch_first) x = n.b().transpose(x, {1, 0, 2});
  const std::int64_t hidden = n.integer("hidden_size", n.shape(2)[2]);
  const std::string direction = n.text("direction", "forward");
  n.require(direction == "forward" || direction == "reverse" || direction == "bidirectional", "direction is '", direction, "'");
  const std::int64_t directions = direction == "bidirectional" ? 2 : 1;
  n.require(n.shape(1) == Shape{directions, gates * hidden, x.dim(2)} && n.shape(2) == Shape{directions, gates * hidden, hidden},
            "W is ", to_string(n.type(1)), ", R is ", to_string(n.type(2)), ", which do not fit ", directions,
            " directions of hidden size ", hidden, " over x ", to_string(x.type()));
  Recurrent r{n,
              x,
              gates,
              x.dim(0),
              x.dim(1),
              hidden,
              directions,
              activations_of(n, activations, static_cast<std::size_t>(directions)),
              n.real("clip", 0),
              {}};
  if (r.steps > formulas::kMostSteps)
    n.unsupported("a sequence of ", r.steps, " steps is not unrolled, at most ", formulas::kMostSteps, " are");
  if (n.has(4)) {
    const Tensor* known = n.known(4);
    const bool full = known && [&] {
      for (std::int64_t l : known->to_integers())
        if (l != r.steps) return false;
      return true;
    }();
    if (!full) r.lengths = n.b().broadcast(n.b().cast(n.var(4), DType::i32), {r.batch, hidden}, {0});
  }
  return r;
}

template <class Step>
Unrolled run_direction(const Recurrent& r, std::int64_t d, Var from_input, CellState state, const Step& step) {
  const bool reverse = d == 1 || r.n.text("direction", "forward") == "reverse";
  return formulas::unroll({.from_input = from_input, .initial = state, .reverse = reverse, .lengths = r.lengths}, step);
}

/// Y, Y_h and, for the LSTM, Y_c in ONNX's layout.
Items results_of(const Recurrent& r, const std::vector<Unrolled>& runs) {
  Builder& b = r.b();
  std::vector<Var> by_direction, last_h, last_c;
  for (const Unrolled& run : runs) {
    std::vector<Var> steps;
    for (Var y : run.outputs) steps.push_back(b.reshape(y, {1, r.batch, r.hidden}));
    by_direction.push_back(b.reshape(b.concat(steps, 0), {r.steps, 1, r.batch, r.hidden}));
    last_h.push_back(b.reshape(run.last.h, {1, r.batch, r.hidden}));
    if (run.last.c) last_c.push_back(b.reshape(run.last.c, {1, r.batch, r.hidden}));
  }
  std::vector<Var> results{b.concat(by_direction, 1), b.concat(last_h, 0)};
  if (!last_c.empty()) results.push_back(b.concat(last_c, 0));
  if (r.n.integer("layout", 0) == 1) {
    results[0] = b.transpose(results[0], {2, 0, 1, 3});
    for (std::size_t i = 1; i < results.size(); ++i) results[i] = b.transpose(results[i], {1, 0, 2});
  }
  return Items::of(results);
}

/// Both halves of the bias, [gates * hidden] each; null without one.
struct Bias {
  Var input, recurrent;
};
Bias bias_of(const Recurrent& r, std::int64_t d) {
  if (!r.n.has(3)) return {};
  Var both = r.of_direction(3, d);
  const std::int64_t size = r.gates * r.hidden;
  r.n.require(both.shape() == Shape{2 * size}, "B is ", to_string(r.n.type(3)), ", wanted ", 2 * size,
              " entries for each direction");
  return {r.b().slice_axis(both, 0, 0, size), r.b().slice_axis(both, 0, size, size)};
}
Items lstm_row(NodeContext& n) {
  const Recurrent r = recurrent_of(n, 4, {"sigmoid", "tanh", "tanh"});
  const TensorType peepholes{r.x.dtype(), {r.directions, 3 * r.hidden}};
  n.require(!n.has(7) || n.shape(7) == peepholes.shape, "P is ", n.has(7) ? to_string(n.type(7)) : "", ", wanted ",
            to_string(peepholes));
  std::vector<Unrolled> runs;
  for (std::int64_t d = 0; d < r.directions; ++d) {
    const Bias bias = bias_of(r, d);
    Var from_input = formulas::input_part(r.x, r.of_direction(1, d)), weight = r.of_direction(2, d);
    if (bias.input) from_input = add_bias(from_input, bias.input + bias.recurrent);
    const formulas::LstmCell cell{.gate = r.f(d, 0),
                                  .content = r.f(d, 1),
                                  .result = r.f(d, 2),
                                  .bounded = r.bounded(),
                                  .coupled = n.flag("input_forget"),
                                  .peephole = n.has(7) ? r.of_direction(7, d) : Var(),
                                  .hidden = r.hidden};
    runs.push_back(run_direction(r, d, from_input, {r.initial(5, d), r.initial(6, d)}, [&](Var x, const CellState& s) {
      return formulas::lstm_step(cell, x + n.b().matmul(s.h, weight, false, true), s.c);
    }));
  }
  return results_of(r, runs);
}

Items gru_row(NodeContext& n) {
  const Recurrent r = recurrent_of(n, 3, {"sigmoid", "tanh"});
  std::vector<Unrolled> runs;
  for (std::int64_t d = 0; d < r.directions; ++d) {
    const Bias bias = bias_of(r, d);
    formulas::GruCell cell{.gate = r.f(d, 0),
                           .content = r.f(d, 1),
                           .bounded = r.bounded(),
                           .linear_before_reset = n.flag("linear_before_reset"),
                           .hidden = r.hidden};
    cell.set_weights(r.of_direction(2, d), bias.recurrent);
    Var from_input = add_bias(formulas::input_part(r.x, r.of_direction(1, d)), bias.input);
    runs.push_back(run_direction(r, d, from_input, {r.initial(5, d), {}},
                                 [&](Var x, const CellState& s) { return formulas::gru_step(cell, x, s.h); }));
  }
  return results_of(r, runs);
}

Items rnn_row(NodeContext& n) {
  const Recurrent r = recurrent_of(n, 1, {"tanh"});
  std::vector<Unrolled> runs;
  for (std::int64_t d = 0; d < r.directions; ++d) {
    const Bias bias = bias_of(r, d);
    Var from_input = formulas::input_part(r.x, r.of_direction(1, d)), weight = r.of_direction(2, d);
    if (bias.input) from_input = add_bias(from_input, bias.input + bias.recurrent);
    runs.push_back(run_direction(r, d, from_input, {r.initial(5, d), {}}, [&](Var x, const CellState& s) {
      return CellState{r.f(d, 0)(r.clipped(x + n.b().matmul(s.h, weight, false, true))), {}};
    }));
  }
  return results_of(r, runs);
}

constexpr Row kRecurrentRows[] = {{"LSTM", 7, lstm_row}, {"GRU", 7, gru_row}, {"RNN", 7, rnn_row}};

}  // namespace

std::span<const Row> recurrent_rows() { return kRecurrentRows; }

}  // namespace gcomp::frontend
