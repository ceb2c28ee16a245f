// How far a training run is: a bar that is redrawn on a terminal, some plain lines in a pipe.
#pragma once

#include <chrono>
#include <cstdint>

#include "tools/gcomp/console.h"

namespace gcomp::tools {

struct ProgressState {
  std::int64_t step = 0;  ///< done by this process
  std::int64_t epoch = 1;
  double loss = 0;
};

class Progress {
 public:
  /// `epochs` is 0 where the run is counted in steps. `before` of the steps were done by an earlier process.
  Progress(const Console& console, std::int64_t steps, std::int64_t epochs, std::int64_t batch, std::int64_t every = 0,
           std::int64_t before = 0);

  /// After each step. Draws at most ten times a second on a terminal; in a pipe writes the first step, then a line for each
  /// `every` steps or, where that is 0, each twentieth of the run and after ten seconds of silence.
  void update(const ProgressState& state);
  /// Takes the bar off the terminal, so that a line may be written; the next update() draws it again.
  void clear();
  /// Rows a second so far.
  double rate() const;
  double seconds() const;

 private:
  void draw(const ProgressState& state);

  const Console& console_;
  std::int64_t steps_, epochs_, batch_, every_, before_;
  std::int64_t done_ = 0, lines_ = 0;
  std::chrono::steady_clock::time_point start_, drawn_;
  bool on_screen_ = false;
};

}  // namespace gcomp::tools
