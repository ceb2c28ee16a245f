// LSTM, GRU and RNN, unrolled over time. The input's part of the gates is one matrix product over all steps; each step then takes
// one product with the state (two in a GRU whose reset comes before it).
#pragma once

#include <functional>

#include "ir/builder.h"

namespace gcomp::frontend::formulas {

/// Steps that are unrolled at most.
inline constexpr std::int64_t kMostSteps = 16384;

using Activate = std::function<Var(Var)>;

/// The state after a step, [batch, hidden] each; c of an LSTM alone.
struct CellState {
  Var h, c;
};

/// Gate i of gates side by side, [..., gates * hidden] to [..., hidden].
Var gate_of(Var gates, std::int64_t i, std::int64_t hidden);

/// Which place each gate has, and what is applied.
struct LstmCell {
  std::int64_t input = 0, output = 1, forget = 2, candidate = 3;
  Activate gate, content, result;  ///< of the three gates, the candidate, and c
  Activate bounded;                ///< before the activations; null for none
  bool coupled = false;            ///< forget is 1 - input
  Var peephole = {};               ///< [3 * hidden]: what i, o and f see of c; null for none
  std::int64_t hidden = 0;
};
/// From [batch, 4 * hidden]: c' = f c + i g, h' = o result(c').
CellState lstm_step(const LstmCell& cell, Var gates, Var c);

struct GruCell {
  std::int64_t update = 0, reset = 1;  ///< the candidate's place is the last
  Activate gate, content;
  Activate bounded;                 ///< before the activations; null for none
  bool linear_before_reset = true;  ///< whether the reset gate multiplies the candidate's product, as in cuDNN, or h before it
  std::int64_t hidden = 0;
  /// What h is multiplied by at once, and the candidate's part where the reset comes first; [rows, hidden] and [rows].
  Var weight = {}, bias = {}, candidate_weight = {}, candidate_bias = {};

  /// From weight [3 * hidden, hidden] and bias [3 * hidden], which may be null.
  void set_weights(Var all_weight, Var all_bias);
};
/// From the input's part [batch, 3 * hidden]: h' = (1 - z) n + z h.
CellState gru_step(const GruCell& cell, Var from_input, Var h);

/// x [time, batch, input] times weight [gates * hidden, input] transposed, for all steps at once: [time, batch, gates * hidden].
Var input_part(Var x, Var weight);
/// x plus a bias that its last axis has; x where there is none.
Var add_bias(Var x, Var bias);

/// One direction over `steps`: from the input's part and the state to the next state.
struct Unrolled {
  std::vector<Var> outputs;  ///< h of each time
  CellState last;
};
struct Direction {
  Var from_input;  ///< [time, batch, gates * hidden]
  CellState initial;
  bool reverse = false;
  Var lengths = {};  ///< [batch, hidden], i32: steps of each sequence; null where all are full. Outputs beyond are 0
};
Unrolled unroll(const Direction& direction, const std::function<CellState(Var from_input, const CellState& state)>& step);

}  // namespace gcomp::frontend::formulas
