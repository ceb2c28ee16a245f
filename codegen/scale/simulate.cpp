#include "codegen/scale/simulate.h"

#include <algorithm>
#include <numeric>

#include "codegen/scale/timeline.h"
#include "ir/base/error.h"

namespace gcomp::codegen::scale {
namespace {

/// Parameters or gradients that go together, and the steps of a shard at which the first and the last of them is wanted or ready.
struct Bucket {
  double bytes = 0;
  std::size_t first = 0, last = 0;
};

/// In the order of their steps, each as full as it may be; what is larger goes by itself.
std::vector<Bucket> buckets_of(std::vector<Bucket> arrays, double most) {
  std::ranges::stable_sort(arrays, {}, &Bucket::first);
  std::vector<Bucket> buckets;
  for (const Bucket& array : arrays) {
    if (array.bytes == 0) continue;
    if (buckets.empty() || buckets.back().bytes + array.bytes > most) buckets.push_back({0, array.first});
    buckets.back().bytes += array.bytes;
    buckets.back().last = array.first;
  }
  return buckets;
}

std::vector<Bucket> gradient_buckets(const RankStep& step, double most) {
  std::vector<Bucket> arrays;
  for (const ParameterUse& use : step.parameters) arrays.push_back({use.gradient_bytes, use.ready});
  return buckets_of(std::move(arrays), most);
}

std::vector<Bucket> parameter_buckets(const RankStep& step, double most) {
  std::vector<Bucket> arrays;
  for (const ParameterUse& use : step.parameters) arrays.push_back({use.parameter_bytes, use.first_read});
  return buckets_of(std::move(arrays), most);
}

/// Fills both queues and counts what the exchanges are made of.
class Schedule {
 public:
  Schedule(const RankStep& step, std::int64_t ranks, std::int64_t shards, const ExchangeOptions& options)
      : step_(step), ranks_(ranks), shards_(shards), options_(options) {}

  StepTimes run() {
    compute(static_cast<double>(shards_) * step_.count);
    if (ranks_ > 1 && step_.count > 0) exchange_counts();
    if (ranks_ > 1 && options_.zero == 1) gather_parameters();
    for (std::int64_t shard = 0; shard < shards_; ++shard) {
      const bool last = shard + 1 == shards_;
      if (last && ranks_ > 1) last_shard(shard);
      else add_shard(shard);
      if (!last) compute(combine_seconds(step_, shard));
    }
    if (ranks_ == 1 && shards_ > 1) compute(total_seconds(step_, shards_, step_.gradient_bytes()) + step_.launch);
    compute(step_.update * update_share(), exchange_.size());
    const Timeline timeline = run_side_by_side(compute_, exchange_);
    times_.seconds = timeline.seconds;
    times_.waited = timeline.waited;
    times_.slowed = timeline.slowed;
    return times_;
  }

 private:
  double update_share() const {
    if (ranks_ == 1) return 1;
    if (options_.update_share > 0) return options_.update_share;
    return options_.zero == 1 ? 1 / static_cast<double>(ranks_) : 1;
  }

  void compute(double seconds, std::size_t after = 0) {
    times_.compute += seconds;
    compute_.push_back({seconds, after});
  }

  /// So many passes of a kernel over `bytes`, beside which nothing else is computed: both want the same memory.
  void exchange_kernel(double bytes, std::size_t after) {
    const double seconds = bytes / step_.copy_bytes + step_.launch;
    times_.kernels += seconds;
    exchange_.push_back({seconds, after, 1});
  }

  void exchange_wire(const ExchangeTime& time, double sent, std::size_t after) {
    times_.latency += time.latency;
    times_.wire += time.wire;
    times_.sent_bytes += sent;
    exchange_.push_back({time.seconds(), after, options_.contention});
  }

  double sent_of(double bytes) const { return bytes * static_cast<double>(ranks_ - 1) / static_cast<double>(ranks_); }

  void gather(double bytes, std::size_t after) {
    const double wire = bytes * options_.wire_share;
    exchange_wire(gather_time(options_.links, ranks_, wire, options_.route), sent_of(wire), after);
    exchange_kernel(wire + bytes, after);  // out of the bucket
  }

  /// A bucket's pieces to those who add them, and the adding.
  void scatter(double bytes, std::size_t after) {
    const double wire = bytes * options_.wire_share;
    exchange_kernel(bytes + wire, after);  // into the bucket
    exchange_wire(scatter_time(options_.links, ranks_, wire, options_.route), sent_of(wire), after);
    exchange_kernel(added_bytes(bytes, wire), after);
  }

  double added_bytes(double bytes, double wire) const {
    const Groups groups = groups_of(options_.links, ranks_);
    if (options_.route == Route::flat || groups.count == 1) return wire + bytes / static_cast<double>(ranks_);
    const auto group = static_cast<double>(groups.smallest), count = static_cast<double>(groups.count);
    return wire + bytes / group + (wire + bytes / count) / group;
  }

  /// What is counted over all ranks is a number, which the shards wait for.
  void exchange_counts() {
    constexpr double kCount = 8;
    exchange_wire(all_gather_time(options_.links, ranks_, kCount), kCount * static_cast<double>(ranks_ - 1), 1);
    counted_ = 1;
  }

  void gather_parameters() {
    for (const Bucket& bucket : parameter_buckets(step_, options_.bucket_bytes)) {
      exchange_kernel(bucket.bytes * (1 + options_.wire_share) / static_cast<double>(ranks_), 0);  // pieces into the bucket
      gather(bucket.bytes, 0);
      wanted_.push_back(bucket.first);
      gathered_.push_back(exchange_.size());
    }
  }

  /// So many exchanges must be done before this step of the first shard.
  std::size_t exchanges_before(std::size_t step) const {
    if (!options_.overlap) return exchange_.size();
    std::size_t count = counted_;
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      if (wanted_[i] <= step) count = gathered_[i];
    return count;
  }

  void add_shard(std::int64_t shard) {
    for (std::size_t i = 0; i < step_.shard.size(); ++i) compute(step_.shard[i], shard == 0 ? exchanges_before(i) : 0);
  }

  /// Where gradients become ready, what the shards before have left is added to them, and they go out.
  void last_shard(std::int64_t shard) {
    std::vector<std::size_t> before(step_.shard.size());
    for (std::size_t i = 0; i < before.size() && shard == 0; ++i) before[i] = exchanges_before(i);
    std::size_t done = 0;
    std::vector<std::pair<double, std::size_t>> ready;  // bytes of a bucket, compute tasks after which it is there
    const auto run_to = [&](std::size_t end) {
      for (; done < end; ++done) compute(step_.shard[done], before[done]);
    };
    for (const Bucket& bucket : gradient_buckets(step_, options_.bucket_bytes)) {
      run_to(bucket.last);
      compute(total_seconds(step_, shards_, bucket.bytes) + step_.launch);
      ready.emplace_back(bucket.bytes, compute_.size());
    }
    run_to(step_.shard.size());
    for (const auto& [bytes, after] : ready) {
      const std::size_t begin = options_.overlap ? after : compute_.size();
      scatter(bytes, begin);
      if (options_.zero == 0) gather(bytes, begin);
    }
  }

  const RankStep& step_;
  const std::int64_t ranks_, shards_;
  const ExchangeOptions& options_;
  std::vector<Task> compute_, exchange_;
  std::vector<std::size_t> wanted_, gathered_;  // of each bucket: the step that wants it, the exchanges after which it is there
  std::size_t counted_ = 0;                     // exchanges, once the counts are there
  StepTimes times_;
};

}  // namespace

StepTimes simulate(const RankStep& step, std::int64_t ranks, std::int64_t shards, const ExchangeOptions& options) {
  check_internal(ranks >= 1 && shards >= 1, "a step of ", shards, " shards on each of ", ranks, " ranks");
  check_internal(options.zero == 0 || options.zero == 1, "ZeRO ", options.zero);
  return Schedule(step, ranks, shards, options).run();
}

}  // namespace gcomp::codegen::scale
