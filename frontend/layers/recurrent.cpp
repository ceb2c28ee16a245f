// LSTM and GRU with PyTorch's parameters and order of gates, batch first.
#include "frontend/formulas/recurrent.h"

#include "frontend/layers/impl.h"
#include "ir/ops/table.h"

namespace gcomp {
namespace {

namespace table = ir::ops;
namespace formulas = frontend::formulas;
using frontend::layer;

Var apply_sigmoid(Var x) { return table::kSigmoid(x); }
Var apply_tanh(Var x) { return table::kTanh(x); }

/// A recurrent layer of PyTorch in the making.
struct Recurrent {
  Layers& nn;
  ir::Builder& b;
  const std::string& name;
  std::int64_t gates, hidden, batch;
  const RecurrentOptions& options;

  std::int64_t directions() const { return options.bidirectional ? 2 : 1; }
  std::int64_t states() const { return options.num_layers * directions(); }

  Var parameter(const std::string& which, const std::string& suffix, Shape shape) const {
    return nn.uniform_parameter(name + "." + which + suffix, std::move(shape), frontend::fan_in_bound(hidden));
  }
  /// [batch, hidden] of the given initial states, zeros without.
  Var initial(Var given, std::int64_t index, DType dtype) const {
    if (!given) return b.full({dtype, {batch, hidden}}, 0);
    return b.reshape(b.slice_axis(given, 0, index, 1), {batch, hidden});
  }
  void check_states(Var given, const char* what, DType dtype) const {
    const TensorType wanted{dtype, {states(), batch, hidden}};
    check_user(!given || given.type() == wanted, layer(name), "the initial ", what, " is ", given ? to_string(given.type()) : "",
               ", wanted ", to_string(wanted));
  }
};

/// Of one direction of one layer; biases may be null.
struct CellWeights {
  Var input, hidden, input_bias, hidden_bias;
};
CellWeights weights_of(const Recurrent& r, std::int64_t in, const std::string& suffix) {
  const std::int64_t rows = r.gates * r.hidden;
  CellWeights w{r.parameter("weight_ih", suffix, {rows, in}), r.parameter("weight_hh", suffix, {rows, r.hidden}), {}, {}};
  if (!r.options.bias) return w;
  w.input_bias = r.parameter("bias_ih", suffix, {rows});
  w.hidden_bias = r.parameter("bias_hh", suffix, {rows});
  return w;
}

/// One direction of one layer over x, [time, batch, in].
formulas::Unrolled run_lstm(const Recurrent& r, Var x, const CellWeights& w, formulas::Direction direction) {
  const formulas::LstmCell cell{.input = 0,
                                .output = 3,
                                .forget = 1,
                                .candidate = 2,
                                .gate = apply_sigmoid,
                                .content = apply_tanh,
                                .result = apply_tanh,
                                .bounded = {},
                                .hidden = r.hidden};
  Var bias = w.input_bias ? w.input_bias + w.hidden_bias : Var();
  direction.from_input = formulas::add_bias(formulas::input_part(x, w.input), bias);
  return formulas::unroll(direction, [&](Var part, const formulas::CellState& s) {
    return formulas::lstm_step(cell, part + r.b.matmul(s.h, w.hidden, false, true), s.c);
  });
}
formulas::Unrolled run_gru(const Recurrent& r, Var x, const CellWeights& w, formulas::Direction direction) {
  formulas::GruCell cell{.update = 1, .reset = 0, .gate = apply_sigmoid, .content = apply_tanh, .bounded = {}, .hidden = r.hidden};
  cell.set_weights(w.hidden, w.hidden_bias);
  direction.from_input = formulas::add_bias(formulas::input_part(x, w.input), w.input_bias);
  return formulas::unroll(direction, [&](Var part, const formulas::CellState& s) { return formulas::gru_step(cell, part, s.h); });
}

Var stacked(const std::vector<Var>& rows, std::int64_t axis) {
  ir::Builder& b = *rows[0].builder;
  std::vector<Var> parts;
  for (Var row : rows) parts.push_back(b.reshape(row, {1, row.dim(0), row.dim(1)}));
  return parts.size() == 1 ? parts[0] : b.concat(parts, axis);
}

void check_recurrent(const Recurrent& r, Var x) {
  frontend::require_rank(layer(r.name), x, 3, "[batch, time, in]");
  check_user(r.hidden > 0 && r.options.num_layers > 0, layer(r.name), r.options.num_layers, " layers of hidden size ", r.hidden,
             ", wanted at least 1 of 1");
  check_user(x.dim(1) > 0 && x.dim(1) <= formulas::kMostSteps, layer(r.name), "the input is ", to_string(x.type()),
             ": a sequence of ", x.dim(1), " steps, wanted 1 to ", formulas::kMostSteps, ", since it is unrolled");
}

using RunDirection = formulas::Unrolled (*)(const Recurrent&, Var, const CellWeights&, formulas::Direction);

RecurrentResult recurrent(const Recurrent& r, Var x, RunDirection run, bool has_cell) {
  check_recurrent(r, x);
  r.check_states(r.options.hidden, "hidden state", x.dtype());
  r.check_states(r.options.cell, "cell state", x.dtype());
  std::vector<Var> last_h, last_c;
  Var y = r.b.transpose(x, {1, 0, 2});
  for (std::int64_t level = 0; level < r.options.num_layers; ++level) {
    std::vector<Var> outputs;
    for (std::int64_t d = 0; d < r.directions(); ++d) {
      const CellWeights weights = weights_of(r, y.dim(2), concat("_l", level, d == 1 ? "_reverse" : ""));
      const std::int64_t index = level * r.directions() + d;
      const formulas::CellState first{r.initial(r.options.hidden, index, x.dtype()),
                                      has_cell ? r.initial(r.options.cell, index, x.dtype()) : Var()};
      const formulas::Unrolled result = run(r, y, weights, {.from_input = {}, .initial = first, .reverse = d == 1});
      outputs.push_back(stacked(result.outputs, 0));
      last_h.push_back(result.last.h);
      if (has_cell) last_c.push_back(result.last.c);
    }
    y = outputs.size() == 1 ? outputs[0] : r.b.concat(outputs, 2);
    if (level + 1 < r.options.num_layers) y = r.nn.dropout(y, r.options.dropout);
  }
  return {r.b.transpose(y, {1, 0, 2}), stacked(last_h, 0), has_cell ? stacked(last_c, 0) : Var()};
}

}  // namespace

RecurrentResult Layers::lstm(const std::string& name, Var x, std::int64_t hidden, RecurrentOptions options) {
  impl_.builder.set_origin(name);
  return recurrent({*this, impl_.builder, name, 4, hidden, x.rank() == 3 ? x.dim(0) : 0, options}, x, run_lstm, true);
}

RecurrentResult Layers::gru(const std::string& name, Var x, std::int64_t hidden, RecurrentOptions options) {
  impl_.builder.set_origin(name);
  check_user(!options.cell, layer(name), "an initial cell state is given, which a GRU does not have");
  return recurrent({*this, impl_.builder, name, 3, hidden, x.rank() == 3 ? x.dim(0) : 0, options}, x, run_gru, false);
}

}  // namespace gcomp
