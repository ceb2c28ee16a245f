// LSTM, GRU and RNN, unrolled over time. The input's part of the gates is one matrix product over all steps; each step then
// takes one product with the state. ONNX's gate orders: i, o, f, c and z, r, h.
#include <algorithm>
#include <cctype>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;

constexpr std::int64_t kMaxSteps = 16384;

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
    {"softsign", 0, 0, 0, [](F, Var x, Var) { return x / (ops::kAbs(x) + 1.0); }},
    {"softplus", 0, 0, 0, [](F, Var x, Var) { return ops::kSoftplus(x); }},
    {"affine", 1, 0, 2, [](F f, Var x, Var) { return x * f.alpha + f.beta; }},
    {"leakyrelu", 0.01, 0, 1, [](F f, Var x, Var zero) { return ops::choose(zero < x, x, x * f.alpha); }},
    {"thresholdedrelu", 1, 0, 1, [](F f, Var x, Var zero) { return ops::choose(x.builder->like(x, f.alpha) < x, x, zero); }},
    {"scaledtanh", 1, 1, 2, [](F f, Var x, Var) { return ops::kTanh(x * f.alpha) * f.beta; }},
    {"hardsigmoid", 0.2, 0.5, 2,
     [](F f, Var x, Var zero) {
       Var u = x * f.alpha + f.beta, one = x.builder->like(x, 1);
       return ops::choose(u <= zero, zero, ops::choose(one <= u, one, u));
     }},
    {"elu", 1, 0, 1,
     [](F f, Var x, Var zero) {
       Var positive = zero < x;
       return ops::choose(positive, x, ops::kExpm1(ops::choose(positive, zero, x)) * f.alpha);
     }},
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
    if (n.integer("layout", 0) == 0) return of_direction(i, d);
    return b().reshape(b().slice_axis(n.var(i), 1, d, 1), {batch, hidden});
  }
  Var gate(Var all, std::int64_t i) const { return b().slice_axis(all, all.rank() - 1, i * hidden, hidden); }
  Var clipped(Var v) const {
    if (clip <= 0) return v;
    return b().select(v <= b().like(v, -clip), b().like(v, -clip), b().select(b().like(v, clip) <= v, b().like(v, clip), v));
  }
  const Activation& f(std::int64_t d, std::size_t i) const {
    return activations[static_cast<std::size_t>(d) * (activations.size() / static_cast<std::size_t>(directions)) + i];
  }
  /// New where the step lies within the sequence, else old.
  Var keep(Var next, Var old, std::int64_t step) const {
    if (!lengths) return next;
    return b().select(b().like(lengths, static_cast<double>(step)) < lengths, next, old);
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
  if (r.steps > kMaxSteps) n.unsupported("a sequence of ", r.steps, " steps is not unrolled, at most ", kMaxSteps, " are");
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

/// x times the transposed weight, for all steps at once: [time, batch, gates * hidden].
Var input_part(const Recurrent& r, Var weight) {
  Var rows = r.b().reshape(r.x, {r.steps * r.batch, r.x.dim(2)});
  return r.b().reshape(r.b().matmul(rows, weight, false, true), {r.steps, r.batch, weight.dim(0)});
}
Var step_of(const Recurrent& r, Var all, std::int64_t t) {
  return r.b().reshape(r.b().slice_axis(all, 0, t, 1), {r.batch, all.dim(2)});
}

struct State {
  Var h, c;
};
/// One direction: outputs by time and the last state.
struct Run {
  std::vector<Var> outputs;
  State last;
};

template <class Step>
Run run_direction(const Recurrent& r, std::int64_t d, State state, const Step& step) {
  const bool reverse = d == 1 || r.n.text("direction", "forward") == "reverse";
  Run run{std::vector<Var>(static_cast<std::size_t>(r.steps)), state};
  for (std::int64_t i = 0; i < r.steps; ++i) {
    const std::int64_t t = reverse ? r.steps - 1 - i : i;
    const State next = step(t, run.last);
    run.outputs[static_cast<std::size_t>(t)] = r.keep(next.h, r.b().like(next.h, 0), t);
    run.last.h = r.keep(next.h, run.last.h, t);
    if (next.c) run.last.c = r.keep(next.c, run.last.c, t);
  }
  return run;
}

/// Y, Y_h and, for the LSTM, Y_c in ONNX's layout.
Items results_of(const Recurrent& r, const std::vector<Run>& runs) {
  Builder& b = r.b();
  std::vector<Var> by_direction, last_h, last_c;
  for (const Run& run : runs) {
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
Var add_bias(Var x, Var bias) { return bias ? x + broadcast_to(bias, x.shape()) : x; }

Items lstm_row(NodeContext& n) {
  const Recurrent r = recurrent_of(n, 4, {"sigmoid", "tanh", "tanh"});
  Builder& b = n.b();
  const bool coupled = n.flag("input_forget");
  std::vector<Run> runs;
  for (std::int64_t d = 0; d < r.directions; ++d) {
    const Bias bias = bias_of(r, d);
    Var from_input = input_part(r, r.of_direction(1, d)), weight = r.of_direction(2, d);
    if (bias.input) from_input = add_bias(from_input, bias.input + bias.recurrent);
    Var peephole = n.has(7) ? r.of_direction(7, d) : Var();
    auto peep = [&](Var g, Var c, std::int64_t i) { return peephole ? g + broadcast_to(r.gate(peephole, i), c.shape()) * c : g; };
    runs.push_back(run_direction(r, d, {r.initial(5, d), r.initial(6, d)}, [&](std::int64_t t, const State& s) {
      Var g = step_of(r, from_input, t) + b.matmul(s.h, weight, false, true);
      Var i = r.f(d, 0)(r.clipped(peep(r.gate(g, 0), s.c, 0)));
      Var f = coupled ? 1.0 - i : r.f(d, 0)(r.clipped(peep(r.gate(g, 2), s.c, 2)));
      Var c = f * s.c + i * r.f(d, 1)(r.clipped(r.gate(g, 3)));
      Var o = r.f(d, 0)(r.clipped(peep(r.gate(g, 1), c, 1)));
      return State{o * r.f(d, 2)(c), c};
    }));
  }
  return results_of(r, runs);
}

Items gru_row(NodeContext& n) {
  const Recurrent r = recurrent_of(n, 3, {"sigmoid", "tanh"});
  Builder& b = n.b();
  const bool linear_before_reset = n.flag("linear_before_reset");
  std::vector<Run> runs;
  for (std::int64_t d = 0; d < r.directions; ++d) {
    const Bias bias = bias_of(r, d);
    Var from_input = add_bias(input_part(r, r.of_direction(1, d)), bias.input), weight = r.of_direction(2, d);
    Var gates_weight = b.slice_axis(weight, 0, 0, 2 * r.hidden), candidate_weight = b.slice_axis(weight, 0, 2 * r.hidden, r.hidden);
    Var candidate_bias = bias.recurrent ? b.slice_axis(bias.recurrent, 0, 2 * r.hidden, r.hidden) : Var();
    Var gates_bias = bias.recurrent ? b.slice_axis(bias.recurrent, 0, 0, 2 * r.hidden) : Var();
    runs.push_back(run_direction(r, d, {r.initial(5, d), {}}, [&](std::int64_t t, const State& s) {
      Var x = step_of(r, from_input, t), all, candidate;
      if (linear_before_reset) {
        all = add_bias(b.matmul(s.h, weight, false, true), bias.recurrent);
      } else {
        all = add_bias(b.matmul(s.h, gates_weight, false, true), gates_bias);
      }
      Var z = r.f(d, 0)(r.clipped(r.gate(x, 0) + r.gate(all, 0)));
      Var reset = r.f(d, 0)(r.clipped(r.gate(x, 1) + r.gate(all, 1)));
      candidate = linear_before_reset ? reset * r.gate(all, 2)
                                      : add_bias(b.matmul(reset * s.h, candidate_weight, false, true), candidate_bias);
      Var h = r.f(d, 1)(r.clipped(r.gate(x, 2) + candidate));
      return State{(1.0 - z) * h + z * s.h, {}};
    }));
  }
  return results_of(r, runs);
}

Items rnn_row(NodeContext& n) {
  const Recurrent r = recurrent_of(n, 1, {"tanh"});
  Builder& b = n.b();
  std::vector<Run> runs;
  for (std::int64_t d = 0; d < r.directions; ++d) {
    const Bias bias = bias_of(r, d);
    Var from_input = input_part(r, r.of_direction(1, d)), weight = r.of_direction(2, d);
    if (bias.input) from_input = add_bias(from_input, bias.input + bias.recurrent);
    runs.push_back(run_direction(r, d, {r.initial(5, d), {}}, [&](std::int64_t t, const State& s) {
      return State{r.f(d, 0)(r.clipped(step_of(r, from_input, t) + b.matmul(s.h, weight, false, true))), {}};
    }));
  }
  return results_of(r, runs);
}

constexpr Row kRecurrentRows[] = {{"LSTM", 7, lstm_row}, {"GRU", 7, gru_row}, {"RNN", 7, rnn_row}};

}  // namespace

std::span<const Row> recurrent_rows() { return kRecurrentRows; }

}  // namespace gcomp::frontend
