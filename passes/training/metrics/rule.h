// What a metric's rule is written with.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ir/base/tensor.h"
#include "passes/training/losses/rule.h"

namespace gcomp::passes {

/// Which rows of a batch count.
class CountedRows {
 public:
  /// `batch` rows, of which the first `rows` (i64[]) count.
  CountedRows(ir::Builder& b, std::int64_t batch, ir::Var rows) : b_(b), batch_(batch), rows_(rows) {}
  /// x with 0 where a row does not count. Where x does not have a row for each row of the batch, all of it counts, and
  /// covers_all() tells.
  ir::Var only(ir::Var x) const;
  bool covers_all() const { return covers_all_; }

 private:
  ir::Builder& b_;
  std::int64_t batch_;
  ir::Var rows_;
  mutable bool covers_all_ = true;
};

struct MetricCall : LossCall {
  const CountedRows& counted;
  bool takes_scores = false;  ///< binary inputs are decided at 0 where the option `threshold` says nothing, else at one half
  bool of_classes = false;    ///< targets like the input are probabilities of its classes, not decisions of their own
};

struct MetricRule {
  Definition definition;
  std::size_t arguments = 2;
  void (*types)(LossTypes&) = nullptr;
  /// Of one batch, in f64.
  std::vector<ir::Var> (*sums)(const MetricCall&) = nullptr;
  /// Of all of them.
  Tensor (*value)(const Options&, std::span<const Tensor> sums) = nullptr;
  int outputs = 2;                            ///< of `sums`
  bool keeps_rows = false;                    ///< its outputs are rows, not sums
  std::optional<bool> higher_is_better = {};  ///< none of what has no order

  CallRule call() const { return {&definition, arguments, types}; }
};

inline Tensor scalar_of(double value) {
  Tensor made(DType::f64, {});
  made.set(0, value);
  return made;
}

extern const MetricRule kAccuracy, kTopK, kPrecision, kRecall, kF1, kIou, kDiceScore, kConfusion;  // decisions.cpp
extern const MetricRule kPerplexity, kMae, kRmse, kR2;                                             // errors.cpp
extern const MetricRule kAuc;                                                                      // ranking.cpp

}  // namespace gcomp::passes
