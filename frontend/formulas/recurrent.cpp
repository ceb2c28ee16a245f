#include "frontend/formulas/recurrent.h"

#include "ir/ops/table.h"

namespace gcomp::frontend::formulas {
namespace {

Var bounded_by(const Activate& bound, Var x) { return bound ? bound(x) : x; }

/// The last axis repeated over the others.
Var over_rows(Var v, const Shape& shape) { return v.builder->broadcast(v, shape); }

}  // namespace

Var gate_of(Var gates, std::int64_t i, std::int64_t hidden) {
  return gates.builder->slice_axis(gates, gates.rank() - 1, i * hidden, hidden);
}

CellState lstm_step(const LstmCell& cell, Var gates, Var c) {
  const auto gate = [&](std::int64_t i) { return gate_of(gates, i, cell.hidden); };
  // The peepholes lie as i, o, f.
  const auto peep = [&](Var g, Var seen, std::int64_t i) {
    return cell.peephole ? g + over_rows(gate_of(cell.peephole, i, cell.hidden), seen.shape()) * seen : g;
  };
  Var i = cell.gate(bounded_by(cell.bounded, peep(gate(cell.input), c, 0)));
  Var f = cell.coupled ? 1.0 - i : cell.gate(bounded_by(cell.bounded, peep(gate(cell.forget), c, 2)));
  Var next = f * c + i * cell.content(bounded_by(cell.bounded, gate(cell.candidate)));
  Var o = cell.gate(bounded_by(cell.bounded, peep(gate(cell.output), next, 1)));
  return {o * cell.result(next), next};
}

void GruCell::set_weights(Var all_weight, Var all_bias) {
  weight = all_weight;
  bias = all_bias;
  if (linear_before_reset) return;
  const auto part = [&](Var v, std::int64_t first, std::int64_t count) {
    return v ? v.builder->slice_axis(v, 0, first * hidden, count * hidden) : v;
  };
  weight = part(all_weight, 0, 2);
  bias = part(all_bias, 0, 2);
  candidate_weight = part(all_weight, 2, 1);
  candidate_bias = part(all_bias, 2, 1);
}

CellState gru_step(const GruCell& cell, Var x, Var h) {
  ir::Builder& b = *x.builder;
  const auto gate = [&](Var gates, std::int64_t i) { return gate_of(gates, i, cell.hidden); };
  Var gates = add_bias(b.matmul(h, cell.weight, false, true), cell.bias);
  const auto opened = [&](std::int64_t i) { return cell.gate(bounded_by(cell.bounded, gate(x, i) + gate(gates, i))); };
  Var z = opened(cell.update), reset = opened(cell.reset);
  Var candidate = cell.linear_before_reset ? reset * gate(gates, 2)
                                           : add_bias(b.matmul(reset * h, cell.candidate_weight, false, true), cell.candidate_bias);
  Var n = cell.content(bounded_by(cell.bounded, gate(x, 2) + candidate));
  return {(1.0 - z) * n + z * h, {}};
}

Var input_part(Var x, Var weight) {
  ir::Builder& b = *x.builder;
  Var rows = b.reshape(x, {x.dim(0) * x.dim(1), x.dim(2)});
  return b.reshape(b.matmul(rows, weight, false, true), {x.dim(0), x.dim(1), weight.dim(0)});
}

Var add_bias(Var x, Var bias) { return bias ? x + over_rows(bias, x.shape()) : x; }

Unrolled unroll(const Direction& d, const std::function<CellState(Var, const CellState&)>& step) {
  ir::Builder& b = *d.from_input.builder;
  const std::int64_t steps = d.from_input.dim(0);
  Unrolled run{std::vector<Var>(static_cast<std::size_t>(steps)), d.initial};
  for (std::int64_t i = 0; i < steps; ++i) {
    const std::int64_t t = d.reverse ? steps - 1 - i : i;
    // New where the step lies within the sequence, else old.
    const auto keep = [&](Var next, Var old) {
      return d.lengths ? b.select(b.like(d.lengths, static_cast<double>(t)) < d.lengths, next, old) : next;
    };
    const CellState next =
        step(b.reshape(b.slice_axis(d.from_input, 0, t, 1), {d.from_input.dim(1), d.from_input.dim(2)}), run.last);
    run.outputs[static_cast<std::size_t>(t)] = keep(next.h, b.like(next.h, 0));
    run.last.h = keep(next.h, run.last.h);
    if (next.c) run.last.c = keep(next.c, run.last.c);
  }
  return run;
}

}  // namespace gcomp::frontend::formulas
