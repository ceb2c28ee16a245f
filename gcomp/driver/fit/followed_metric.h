// A value of the evaluations that decides something: which weights are the best, when to stop, when the rate falls.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gcomp/evaluation.h"

namespace gcomp::driver {

struct FollowedMetric {
  std::string name = "loss";  ///< or a metric as Evaluation::metrics calls it
  bool higher_is_better = false;

  double value(const Evaluation& evaluation) const;
};

/// `name` is "loss", one of the metrics, or the name alone of the only one that is called so: "top_k" for "top_k(k=5)". Throws
/// UserError (exit 2), beginning with `what`, where there is none, or what there is has no order or is no number.
FollowedMetric follow_metric(std::string_view name, std::span<const std::string> metrics, std::string_view what);

/// The best value so far.
class BestValue {
 public:
  BestValue() = default;
  explicit BestValue(FollowedMetric metric);

  const FollowedMetric& metric() const { return metric_; }
  /// Whether the value is better than all before. NaN never is.
  bool observe(const Evaluation& evaluation);
  double best() const { return best_; }  ///< infinite before the first
  void set_best(double best) { best_ = best; }

 private:
  FollowedMetric metric_;
  double best_ = 0;
};

/// Ends a run whose metric no longer improves.
class EarlyStop {
 public:
  /// "METRIC:patience"; patience is how many evaluations without improvement end the run, from 1 on. Throws UserError (exit 2).
  EarlyStop(std::string_view text, std::span<const std::string> metrics);

  /// Whether to stop now.
  bool observe(const Evaluation& evaluation);
  const BestValue& best() const { return best_; }
  std::int64_t patience() const { return patience_; }
  std::int64_t bad() const { return bad_; }  ///< evaluations since the best
  void set_state(double best, std::int64_t bad);

 private:
  std::int64_t patience_ = 0, bad_ = 0;
  BestValue best_;
};

}  // namespace gcomp::driver
