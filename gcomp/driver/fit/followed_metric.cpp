#include "gcomp/driver/fit/followed_metric.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "passes/training/metrics/metric.h"

namespace gcomp::driver {
namespace {

constexpr std::string_view kLoss = "loss";

/// "top_k" of "top_k(k=5)".
std::string_view name_alone(std::string_view metric) { return metric.substr(0, metric.find('(')); }

[[noreturn]] void refuse_metric(const std::string& message) { throw UserError(message, ExitCode::usage); }

std::string find_metric(std::string_view name, std::span<const std::string> metrics, std::string_view what) {
  if (std::ranges::count(metrics, name) > 0) return std::string(name);
  std::vector<std::string> called;
  for (const std::string& metric : metrics)
    if (name_alone(metric) == name) called.push_back(metric);
  if (called.size() == 1) return called[0];
  std::vector<std::string> all(metrics.begin(), metrics.end());
  all.emplace_back(kLoss);
  if (called.empty())
    refuse_metric(concat(what, ": the evaluations have no '", name, "', they have ", listing(all), did_you_mean(name, all),
                         "; --metric adds one"));
  refuse_metric(concat(what, ": '", name, "' may be ", listing(called), "; write one of them"));
}

}  // namespace

double FollowedMetric::value(const Evaluation& evaluation) const {
  if (name == kLoss) return evaluation.loss;
  for (const auto& [metric, value] : evaluation.metrics)
    if (metric == name) return value.at(0);
  throw InternalError(concat("an evaluation has no '", name, "'"));
}

FollowedMetric follow_metric(std::string_view name, std::span<const std::string> metrics, std::string_view what) {
  if (name == kLoss) return {};
  const std::string found = find_metric(name, metrics, what);
  const std::optional<bool> higher = passes::higher_is_better(found);
  if (!higher) refuse_metric(concat(what, ": '", found, "' has no better and worse"));
  return {found, *higher};
}

BestValue::BestValue(FollowedMetric metric) : metric_(std::move(metric)) {
  constexpr double kWorst = std::numeric_limits<double>::infinity();
  best_ = metric_.higher_is_better ? -kWorst : kWorst;
}

bool BestValue::observe(const Evaluation& evaluation) {
  const double value = metric_.value(evaluation);
  const bool better = metric_.higher_is_better ? value > best_ : value < best_;
  if (better) best_ = value;
  return better;
}

EarlyStop::EarlyStop(std::string_view text, std::span<const std::string> metrics) {
  const std::string what = concat("--early-stop ", text);
  const std::size_t colon = text.rfind(':');
  const std::string_view number = colon == text.npos ? std::string_view() : text.substr(colon + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), patience_);
  if (colon == text.npos || error != std::errc() || end != number.data() + number.size() || patience_ < 1)
    refuse_metric(concat(what, ": wanted METRIC:N, N being how many evaluations without improvement end the run, such as loss:5"));
  best_ = BestValue(follow_metric(text.substr(0, colon), metrics, what));
}

bool EarlyStop::observe(const Evaluation& evaluation) {
  bad_ = best_.observe(evaluation) ? 0 : bad_ + 1;
  return bad_ >= patience_;
}

void EarlyStop::set_state(double best, std::int64_t bad) {
  best_.set_best(best);
  bad_ = bad;
}

}  // namespace gcomp::driver
