#include "gcomp/driver/fit/spike_filter.h"

#include <cmath>
#include <numeric>

#include "gcomp/driver/trainer_impl.h"
#include "passes/training/loss_scaling.h"

namespace gcomp::driver {

bool takes_limits(const Trainer& trainer) { return trainer.impl().memory->contains(passes::kLossLimit); }

void set_limits(Trainer& trainer, const StepLimits& limits) {
  trainer.impl().memory->write(passes::kLossLimit, Tensor::scalar(DType::f64, limits.loss));
  trainer.impl().memory->write(passes::kNormLimit, Tensor::scalar(DType::f64, limits.gradient_norm));
}

/// Of n values, n - 1 of which are known with mean m and variance v, the last one, x, lies z deviations above the mean of all where
///   z = (x - mean) / deviation = (n - 1) d / sqrt(n (n - 1) v + (n - 1) d^2) with d = x - m,
/// which rises with d towards sqrt(n - 1). Solved for d.
double ValueWindow::limit(double deviations) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), n = kLength;
  if (std::ssize(values_) < kLength || deviations * deviations >= n - 1) return kInfinity;
  const auto others = values_.begin() + 1;  // the oldest leaves with the next
  const double mean = std::accumulate(others, values_.end(), 0.0) / (n - 1);
  double variance = 0;
  for (auto value = others; value != values_.end(); ++value) variance += (*value - mean) * (*value - mean) / (n - 1);
  if (variance == 0) return values_.back();
  return mean + deviations * std::sqrt(n * variance / (n - 1 - deviations * deviations));
}

void ValueWindow::add(double value) {
  if (!std::isfinite(value)) return;
  if (std::ssize(values_) == kLength) values_.erase(values_.begin());
  values_.push_back(value);
}

void SpikeFilter::add(double loss, double gradient_norm) {
  losses_.add(loss);
  norms_.add(gradient_norm);
}

void SpikeFilter::set_windows(std::vector<double> losses, std::vector<double> norms) {
  losses_.set_values(std::move(losses));
  norms_.set_values(std::move(norms));
}

}  // namespace gcomp::driver
