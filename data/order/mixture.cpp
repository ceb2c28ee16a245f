#include "data/order/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/permutation.h"

namespace gcomp::data {
namespace {

constexpr std::int64_t kPattern = 10'000;
constexpr std::uint32_t kMixtureDomain = 0xfffff000;  // and the number of the source
constexpr std::size_t kMostSources = 1000;

class Mixture final : public Dataset {
 public:
  explicit Mixture(std::vector<std::shared_ptr<const Dataset>> sources)
      : sources_(std::move(sources)), arrays_(sources_[0]->arrays()) {
    for (const auto& source : sources_) {
      begins_.push_back(rows_);
      rows_ += source->rows();
      places_.push_back(places_in(*source));
    }
  }

  std::string source() const override {
    std::string all;
    for (const auto& source : sources_) all += concat(all.empty() ? "" : " and ", source->source());
    return all;
  }
  std::int64_t rows() const override { return rows_; }
  std::vector<NamedType> arrays() const override { return arrays_; }
  std::vector<std::int64_t> parts() const override {
    std::vector<std::int64_t> counts;
    for (const auto& source : sources_) counts.push_back(source->rows());
    return counts;
  }
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    const std::size_t part = part_of(row);
    sources_[part]->fetch(places_[part][array], row - begins_[part], bytes);
  }
  void fetch_in(const EpochKey& key, std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    const std::size_t part = part_of(row);
    sources_[part]->fetch_in(key, places_[part][array], row - begins_[part], bytes);
  }
  bool thread_safe() const override {
    return std::ranges::all_of(sources_, [](const auto& source) { return source->thread_safe(); });
  }
  bool is_in_memory() const override {
    return std::ranges::all_of(sources_, [](const auto& source) { return source->is_in_memory(); });
  }

 private:
  std::size_t part_of(std::int64_t row) const {
    return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), row) - begins_.begin()) - 1;
  }

  /// Where a source has each of the arrays.
  std::vector<std::size_t> places_in(const Dataset& other) const {
    const std::vector<NamedType> theirs = other.arrays();
    std::vector<std::size_t> places;
    for (const auto& [name, type] : arrays_) {
      const auto found = std::ranges::find(theirs, name, &NamedType::first);
      check_user(found != theirs.end(), "'", other.source(), "' has no array '", name, "', which '", sources_[0]->source(),
                 "' has; data that are mixed have the same arrays");
      check_user(found->second == type, "'", name, "' is ", to_string(type), " in '", sources_[0]->source(), "' and ",
                 to_string(found->second), " in '", other.source(), "'; data that are mixed have the same arrays");
      places.push_back(static_cast<std::size_t>(found - theirs.begin()));
    }
    check_user(theirs.size() == arrays_.size(), "'", other.source(), "' has ", theirs.size(), " arrays, '", sources_[0]->source(),
               "' has ", arrays_.size(), "; data that are mixed have the same arrays");
    return places;
  }

  std::vector<std::shared_ptr<const Dataset>> sources_;
  std::vector<NamedType> arrays_;
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> begins_;
  std::vector<std::vector<std::size_t>> places_;
};

[[noreturn]] void refuse_mix(const std::string& why) { throw UserError(concat("--mix: ", why), ExitCode::usage); }

/// Draws of each source in the pattern, rounded so that they fill it: those who lose most by rounding down get one more.
std::vector<std::int64_t> pattern_counts(std::span<const double> weights) {
  double sum = 0;
  for (const double weight : weights) {
    if (!(std::isfinite(weight) && weight > 0)) refuse_mix(concat("a weight of ", weight, ", wanted a number above 0"));
    sum += weight;
  }
  if (!std::isfinite(sum)) refuse_mix("the sum of the weights is not finite");
  std::vector<std::int64_t> counts;
  std::vector<std::pair<double, std::size_t>> lost;
  for (const double weight : weights) {
    const double exact = weight / sum * static_cast<double>(kPattern);
    // What a decimal weight loses as a binary number is no share.
    counts.push_back(static_cast<std::int64_t>(std::floor(exact + 1e-6)));
    lost.emplace_back(static_cast<double>(counts.back()) - exact, lost.size());
  }
  std::sort(lost.begin(), lost.end());
  const std::int64_t left = kPattern - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  for (std::int64_t i = 0; i < left; ++i) ++counts[lost[static_cast<std::size_t>(i) % lost.size()].second];
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] == 0) refuse_mix(concat("the weight ", weights[i], " is below a share of 1 in ", kPattern));
  return counts;
}

struct PatternDraw {
  std::uint32_t source = 0;
  std::int32_t before = 0;  ///< draws of that source earlier in the pattern
};

/// Each draw goes to the source that lags most behind its share.
std::vector<PatternDraw> pattern_of(const std::vector<std::int64_t>& counts) {
  std::vector<PatternDraw> pattern;
  std::vector<std::int64_t> lag(counts.size()), taken(counts.size());
  for (std::int64_t i = 0; i < kPattern; ++i) {
    for (std::size_t source = 0; source < counts.size(); ++source) lag[source] += counts[source];
    const auto next = static_cast<std::size_t>(std::ranges::max_element(lag) - lag.begin());
    lag[next] -= kPattern;
    pattern.push_back({static_cast<std::uint32_t>(next), static_cast<std::int32_t>(taken[next]++)});
  }
  check_internal(taken == counts, "mixture: the pattern's draws are not those of its shares");
  return pattern;
}

struct MixedOrder {
  std::vector<std::int64_t> rows, begins, counts;
  std::vector<PatternDraw> pattern;
  std::int64_t total = 0;
  std::uint64_t seed = 0;
  bool shuffled = true;

  std::int64_t row_at(std::int64_t draw) const {
    const PatternDraw& of = pattern[static_cast<std::size_t>(draw % kPattern)];
    const std::int64_t own = draw / kPattern * counts[of.source] + of.before;
    const std::int64_t epoch = own / rows[of.source], position = own % rows[of.source];
    if (!shuffled) return begins[of.source] + position;
    return begins[of.source] + KeyedPermutation(rows[of.source], seed, epoch, kMixtureDomain + of.source)(position);
  }
};

}  // namespace

std::unique_ptr<Dataset> mixture(std::vector<std::shared_ptr<const Dataset>> sources) {
  check_user(!sources.empty(), "a mixture of no data");
  return std::make_unique<Mixture>(std::move(sources));
}

runtime::RowDraw draw_mixed(std::span<const std::int64_t> rows, std::span<const double> weights, std::uint64_t seed,
                            runtime::RowOrder order) {
  if (rows.size() != weights.size() || rows.empty() || rows.size() > kMostSources)
    refuse_mix(
        concat(weights.size(), " weights for ", rows.size(), " sources of data, wanted one for each, of at most ", kMostSources));
  auto made = std::make_shared<MixedOrder>();
  made->rows.assign(rows.begin(), rows.end());
  for (const std::int64_t count : rows) {
    if (count < 1) refuse_mix("one of the sources has no rows");
    made->begins.push_back(made->total);
    made->total += count;
  }
  made->counts = pattern_counts(weights);
  made->pattern = pattern_of(made->counts);
  made->seed = seed;
  made->shuffled = order == runtime::RowOrder::shuffled;
  return [of = std::shared_ptr<const MixedOrder>(std::move(made))](std::int64_t epoch, std::int64_t position) {
    return of->row_at(epoch * of->total + position);
  };
}

}  // namespace gcomp::data
