// How a token is chosen from logits.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "gcomp/generate.h"
#include "ir/base/error.h"
#include "ir/base/philox.h"

namespace gcomp {
namespace {

constexpr double kRemoved = -std::numeric_limits<double>::infinity();

void require_likeliest(std::span<const double> logits) {
  double largest = kRemoved;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]))
      throw UserError(concat("the logit of token ", i, " is NaN: no token can be chosen"), ExitCode::numeric);
    largest = std::max(largest, logits[i]);
  }
  if (!std::isfinite(largest))
    throw UserError(concat("the largest logit is ", largest, ": no token can be chosen"), ExitCode::numeric);
}

/// exp(logit - the largest), over their sum.
std::vector<double> softmax(std::span<const double> logits) {
  const double largest = *std::ranges::max_element(logits);
  std::vector<double> probabilities;
  for (const double logit : logits) probabilities.push_back(std::exp(logit - largest));
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& probability : probabilities) probability /= sum;
  return probabilities;
}

void keep_largest(std::vector<double>& logits, std::int64_t count) {
  if (count <= 0 || count >= static_cast<std::int64_t>(logits.size())) return;
  std::vector<double> sorted = logits;
  std::nth_element(sorted.begin(), sorted.begin() + (count - 1), sorted.end(), std::greater<>());
  const double least = sorted[static_cast<std::size_t>(count - 1)];
  for (double& logit : logits)
    if (logit < least) logit = kRemoved;
}

/// Removes the least likely as long as all that are removed together have at most 1 - mass. Of equals the last go first, so
/// that the likeliest of all is greedy_token().
void keep_likeliest(std::vector<double>& logits, double mass) {
  if (mass >= 1) return;
  const std::vector<double> probabilities = softmax(logits);
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return logits[a] != logits[b] ? logits[a] < logits[b] : a > b; });
  double removed = 0;
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    removed += probabilities[order[i]];
    if (removed > 1 - mass) return;
    logits[order[i]] = kRemoved;
  }
}

/// Uniform in [0, 1), 53 bits.
double uniform(std::uint64_t seed, std::uint64_t draw) {
  const auto words =
      philox4x32_10({static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32), 0, 0}, philox_key(seed));
  const std::uint64_t bits = (static_cast<std::uint64_t>(words[1]) << 32 | words[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

[[noreturn]] void refuse_sampling(const std::string& message) { throw UserError(message, ExitCode::usage); }

}  // namespace

void check(const Sampling& sampling) {
  if (!(sampling.temperature > 0 && std::isfinite(sampling.temperature)))
    refuse_sampling(
        concat("temperature ", sampling.temperature, ": wanted a number above 0; without any, the likeliest token is taken"));
  if (sampling.top_k < 0) refuse_sampling(concat("top_k ", sampling.top_k, ": wanted 1 or more, or 0 for all tokens"));
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    refuse_sampling(concat("top_p ", sampling.top_p, ": wanted a probability above 0 and at most 1"));
}

std::vector<double> sampled_probabilities(std::span<const double> logits, const Sampling& sampling) {
  check(sampling);
  require_likeliest(logits);
  std::vector<double> warped(logits.begin(), logits.end());
  const double largest = *std::ranges::max_element(warped);  // taken off first, so that no temperature overflows
  for (double& logit : warped) logit = (logit - largest) / sampling.temperature;
  keep_largest(warped, sampling.top_k);
  keep_likeliest(warped, sampling.top_p);
  return softmax(warped);
}

std::int64_t sample_token(std::span<const double> logits, const Sampling& sampling, std::uint64_t draw) {
  const std::vector<double> probabilities = sampled_probabilities(logits, sampling);
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0), at = uniform(sampling.seed, draw) * sum;
  double below = 0;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0) continue;
    last = static_cast<std::int64_t>(i);
    if (at < (below += probabilities[i])) break;
  }
  return last;
}

std::int64_t greedy_token(std::span<const double> logits) {
  require_likeliest(logits);
  return std::ranges::max_element(logits) - logits.begin();
}

}  // namespace gcomp
