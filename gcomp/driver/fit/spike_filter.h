// Batches whose loss or gradients stand out are passed over, as llm.c does it: a value counts as one where it lies more than Z
// standard deviations above the mean of the last 128, itself among them.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "gcomp/trainer.h"

namespace gcomp::driver {

/// The last values of one quantity.
class ValueWindow {
 public:
  static constexpr std::int64_t kLength = 128;

  /// The least value that the next one would have to exceed to count as an outlier; infinite while the window is not full and where
  /// no value of it could.
  double limit(double deviations) const;
  /// What is not finite is left out.
  void add(double value);

  const std::vector<double>& values() const { return values_; }  ///< the oldest first
  void set_values(std::vector<double> values) { values_ = std::move(values); }

 private:
  std::vector<double> values_;
};

/// What a step may come to; more, and it changes nothing.
struct StepLimits {
  double loss = std::numeric_limits<double>::infinity(), gradient_norm = std::numeric_limits<double>::infinity();
};
/// Whether the training step was compiled to ask them.
bool takes_limits(const Trainer& trainer);
/// Of the steps that start from here on.
void set_limits(Trainer& trainer, const StepLimits& limits);

class SpikeFilter {
 public:
  explicit SpikeFilter(double deviations) : deviations_(deviations) {}

  StepLimits limits() const { return {losses_.limit(deviations_), norms_.limit(deviations_)}; }
  void add(double loss, double gradient_norm);

  const ValueWindow& losses() const { return losses_; }
  const ValueWindow& norms() const { return norms_; }
  void set_windows(std::vector<double> losses, std::vector<double> norms);

 private:
  double deviations_;
  ValueWindow losses_, norms_;
};

}  // namespace gcomp::driver
