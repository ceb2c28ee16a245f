#include "codegen/estimate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/base/error.h"
#include "ir/base/integers.h"

namespace gcomp::codegen {

using runtime::AttentionCall;
using runtime::CollectiveCall;
using runtime::ConvolutionCall;
using runtime::Grid;
using runtime::KernelLaunch;
using runtime::MatmulCall;
using runtime::Step;

namespace {

constexpr double kWarpsACycle = 4;  // that a multiprocessor issues
constexpr double kWarp = 32;
constexpr double kFirstCacheBytes = 128;    // a cycle and multiprocessor
constexpr double kCyclesAnInstruction = 3;  // of one warp: the next is issued 4 cycles later where it needs the last, else at once
constexpr int kAssumedRegisters = 48;       // of a kernel without machine code: a map's has 20 to 40, a reduction's up to 128

double number(std::int64_t n) { return static_cast<double>(n); }

/// Blocks that one multiprocessor holds at once.
std::int64_t resident_blocks(const Grid& grid, const KernelResources& resources, const MultiprocessorLimits& limits) {
  const std::int64_t threads = std::max(grid.threads, 1);
  const std::int64_t registers = (resources.registers ? resources.registers : kAssumedRegisters) * quotient_up(threads, 32) * 32;
  const std::int64_t shared = std::max(resources.shared_bytes, grid.shared_bytes + 1024);  // a KiB is the system's
  return std::max<std::int64_t>(
      std::min({std::int64_t{limits.blocks}, limits.threads / threads, limits.registers / registers, limits.shared_bytes / shared}),
      1);
}

/// The times that a kernel would take if one of the limits were the only one.
class KernelTimes {
 public:
  KernelTimes(const Grid& grid, const KernelResources& resources, const DeviceRates& rates) : rates_(rates) {
    const double blocks = number(std::max<std::int64_t>(grid.blocks, 1));
    const double at_once = number(resident_blocks(grid, resources, rates.limits) * rates.multiprocessors);
    waves_ = blocks / at_once;
    resident_ = std::min(blocks, at_once);
    threads_ = resident_ * grid.threads;
    // The last wave takes as long as a full one, but for kernels of one wave, which take what its fullest multiprocessor does.
    const double shares = std::ceil(blocks / number(rates.multiprocessors)) * number(rates.multiprocessors) / blocks;
    unevenness_ = waves_ <= 1 ? shares : std::ceil(waves_) / waves_;
  }

  double waves() const { return waves_; }

  void add(const Traffic& traffic, double bytes, double tensor_rate) {
    const bool rereads = traffic.pass_bytes * resident_ > rates_.l2_capacity;
    take((bytes + traffic.fragment_bytes + (rereads ? traffic.reread_bytes : 0)) / (rates_.copy_bytes * rates_.kernel_share),
         Limit::copy);
    take(traffic.l1_bytes / (number(rates_.multiprocessors) * kFirstCacheBytes * rates_.clock), Limit::l1);
    take(traffic.l2_bytes / rates_.l2_bytes, Limit::l2);
    take((traffic.waits * rates_.load_seconds + traffic.cache_waits * rates_.l2_seconds) / threads_, Limit::waits);
    const double warps = std::max(threads_ / kWarp / number(rates_.multiprocessors) / kWarpsACycle, 1.0);  // of a scheduler
    const double share = std::min(rates_.issue_share, warps / kCyclesAnInstruction);
    const double slots = number(rates_.multiprocessors) * kWarpsACycle * kWarp * rates_.clock * share;
    take(traffic.instructions / slots * unevenness_, Limit::issue);
    if (traffic.mma_flops > 0) take(traffic.mma_flops / tensor_rate * unevenness_, Limit::tensor_cores);
  }
  void take(double seconds, Limit limit) {
    if (seconds <= seconds_) return;
    seconds_ = seconds;
    limit_ = limit;
  }
  double seconds() const { return seconds_; }
  Limit limit() const { return limit_; }

 private:
  const DeviceRates& rates_;
  double waves_ = 0, resident_ = 0, threads_ = 0, unevenness_ = 1, seconds_ = 0;
  Limit limit_ = Limit::copy;
};

double product_rate(DType dtype, const DeviceRates& rates, bool tf32) {
  return dtype == DType::f32 && tf32 ? rates.tf32 : rates.flops(dtype);
}

KernelResources resources_of(int kernel, const EstimateOptions& options) {
  const auto k = static_cast<std::size_t>(kernel);
  return k < options.resources.size() ? options.resources[k] : KernelResources{};
}

StepEstimate kernel_estimate(const KernelLaunch& launch, const KernelWork& work, double bytes, double flops, DType dtype,
                             const DeviceRates& rates, const EstimateOptions& options) {
  const auto [kernel, grid] = runtime::kernel_of(launch, options.tf32);
  KernelTimes times(grid, resources_of(kernel, options), rates);
  times.add(work.traffic, bytes, product_rate(dtype, rates, options.tf32 && launch.tf32) * rates.mma_share);
  if (work.traffic.mma_flops == 0) times.take(flops / rates.flops(dtype), Limit::fma);
  // Until the first values are there nothing moves, and the kernel before is over.
  const double start = rates.launch_seconds + (times.limit() == Limit::waits ? 0 : rates.load_seconds);
  return {.seconds = times.seconds() + start, .limit = times.limit(), .waves = times.waves()};
}

struct Extents {
  double m = 0, n = 0, k = 0, batches = 1;
  double flops() const { return 2 * m * n * k * batches; }
};
struct Tile {
  double m = 0, n = 0;
};
constexpr std::array<Tile, 9> kTiles = {
    {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256}, {128, 64}, {64, 128}, {64, 64}, {32, 64}}};

/// Bytes that come from the second cache for each flop of a tile, of which a cluster's two share one operand.
double bytes_a_flop(const Tile& tile, double element) {
  return std::min(2 * tile.m + tile.n, tile.m + 2 * tile.n) * element / (4 * tile.m * tile.n);
}

constexpr double kLead = 128;  // of k: a tile's pipeline is filled and drained
constexpr double kLeastSplit = 256;
constexpr double kLongSum = 16384;  // the shortest that was timed; of shorter ones nobody knows whether they are dealt out so

/// All steps of k of all tiles dealt out evenly (Osama et al., "Stream-K", 2023): a multiprocessor begins and ends within a tile,
/// and what it has of these goes to another and comes from one by way of the second cache. Five weight gradients, long sums to few
/// tiles, took about that on an H200 ("products" in bench/results/h200-2026-11-26): 108, 87, 202, 174 and 62 us for 114, 88, 218,
/// 166 and 62; whole tiles and splits come to 142, 105, 255, 192 and 66.
double streamed_seconds(const Extents& e, const Tile& tile, double drawn, const DeviceRates& rates) {
  const double processors = number(rates.multiprocessors);
  const double share = std::ceil(e.m / tile.m) * std::ceil(e.n / tile.n) * e.batches * e.k / processors;
  const double sums = 2 * processors * tile.m * tile.n * 4 / rates.l2_bytes;
  return 2 * tile.m * tile.n * (share + 2 * kLead) / drawn + sums;
}

/// At best over the tiles and the splits of k.
double tiled_seconds(const Extents& e, double element, double rate, const DeviceRates& rates) {
  constexpr int kMostSplits = 16;
  const double processors = number(rates.multiprocessors);
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double drawn = std::min(rate, rates.l2_bytes / bytes_a_flop(tile, element)) / processors;
    if (e.k >= kLongSum && rates.l2_bytes > 0) best = std::min(best > 0 ? best : 1e300, streamed_seconds(e, tile, drawn, rates));
    for (double splits = 1; splits <= kMostSplits && (splits == 1 || e.k / splits >= kLeastSplit); ++splits) {
      const double tiles = std::ceil(e.m / tile.m) * std::ceil(e.n / tile.n) * e.batches * splits;
      const double tile_seconds = 2 * tile.m * tile.n * (e.k / splits + kLead) / drawn;
      const double sums = splits > 1 ? 2 * splits * e.m * e.n * e.batches * 4 / rates.copy_bytes + rates.launch_seconds : 0;
      const double seconds = std::ceil(tiles / processors) * tile_seconds + sums;
      if (best == 0 || seconds < best) best = seconds;
    }
  }
  return best;
}

/// What an epilogue reads beside the product: the operand that it sums once more, or the auxiliary matrix of a gradient.
double epilogue_bytes(const MatmulCall& call) {
  if (!call.epilogue || !call.epilogue->library) return 0;
  const double element = number(static_cast<std::int64_t>(size_of(call.dtype)));
  switch (call.epilogue->library->kind) {
    case runtime::EpilogueKind::bias_gradient_a: return number(call.m) * number(call.k) * element;
    case runtime::EpilogueKind::bias_gradient_b: return number(call.k) * number(call.n) * element;
    case runtime::EpilogueKind::gelu_gradient: return number(call.m) * number(call.n) * element;
    case runtime::EpilogueKind::bias:
    case runtime::EpilogueKind::gelu: return 0;
  }
  return 0;
}

/// A product by the library, and what follows it as a kernel.
StepEstimate product_estimate(const MatmulCall& call, const StepCost& cost, const DeviceRates& rates,
                              const EstimateOptions& options) {
  const double rate = product_rate(call.dtype, rates, options.tf32);
  const bool across = call.dtype == DType::f32 && options.tf32 && call.a.column_stride != 1;
  const double by_bytes = (cost.bytes - cost.after_bytes) / (rates.copy_bytes * rates.kernel_share),
               share = rates.product_share * (across ? rates.tf32_across_share : 1),
               by_tiles = library_product_seconds(call, rate, rates) / share,
               by_epilogue = epilogue_bytes(call) / (rates.copy_bytes * rates.epilogue_share);
  StepEstimate made{.seconds = std::max(by_bytes, by_tiles) + by_epilogue + rates.launch_seconds,
                    .limit = by_bytes > by_tiles              ? Limit::copy
                             : rate > rates.flops(DType::f32) ? Limit::tensor_cores
                                                              : Limit::fma};
  if (!call.epilogue || call.epilogue->library) return made;
  made.seconds += kernel_estimate(call.epilogue->after, cost.after, cost.after_bytes, 0, DType::f32, rates, options).seconds;
  return made;
}

/// A convolution by the library.
StepEstimate library_convolution_estimate(const ConvolutionCall& call, const StepCost& cost, const DeviceRates& rates, bool tf32) {
  const double rate = product_rate(call.dtype, rates, tf32) * rates.convolution_share,
               by_bytes = cost.bytes / (rates.copy_bytes * rates.kernel_share), by_flops = cost.flops / rate;
  return {.seconds = std::max(by_bytes, by_flops) + rates.launch_seconds,
          .limit = by_bytes > by_flops ? Limit::copy : Limit::tensor_cores};
}

/// A convolution by the generated kernels.
StepEstimate convolution_estimate(const ConvolutionCall& call, const StepCost& cost, const DeviceRates& rates,
                                  const EstimateOptions& options) {
  StepEstimate made;
  if (rates.convolution_share > 0 && (call.dtype != DType::f32 || options.tf32) && call.dtype != DType::f64)
    return library_convolution_estimate(call, cost, rates, options.tf32);
  const bool tf32 = options.tf32 && !call.generated_tf32.launches.empty();
  const auto& launches = tf32 ? call.generated_tf32.launches : call.generated.launches;
  const std::vector<Traffic>& traffic = tf32 ? cost.generated_tf32 : cost.generated;
  check_internal(traffic.size() == launches.size(), call.origin, ": counted ", traffic.size(), " of ", launches.size(),
                 " launches");
  double blocks = 0;
  for (const runtime::ProductLaunch& launch : launches) blocks += number(launch.grid.blocks);
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const runtime::ProductLaunch& launch = launches[i];
    KernelTimes times(launch.grid, resources_of(launch.kernel, options), rates);
    times.add(traffic[i], cost.bytes * number(launch.grid.blocks) / std::max(blocks, 1.0),
              product_rate(call.dtype, rates, tf32) * rates.mma_share);
    if (times.seconds() > made.seconds) made.limit = times.limit(), made.waves = times.waves();
    made.seconds += times.seconds() + rates.launch_seconds;
  }
  return made;
}

/// An attention by the library: whole tiles of scores, and for a gradient that repeats its bits the scores in memory, written and
/// read. Its arithmetic and that traffic do not overlap.
StepEstimate library_attention_estimate(const AttentionCall& call, const DeviceRates& rates) {
  constexpr std::int64_t kTile = 128;
  const bool forward = call.kind == runtime::AttentionKind::forward;
  const double queries = number(round_up(call.queries, kTile)), keys = number(round_up(call.keys, kTile));
  double heads = 1;
  for (const std::int64_t extent : call.batch) heads *= number(extent);
  const double tiles =
      call.causal ? heads * (queries * keys + number(kTile) * std::min(queries, keys)) / 2 : heads * queries * keys;
  const double widths = number(call.width + call.value_width), flops = tiles * (forward ? 2 * widths : 5 * widths);
  const double stored = forward ? 0 : tiles * number(static_cast<std::int64_t>(size_of(call.dtype)));
  return {
      .seconds = flops / (rates.flops(call.dtype) * rates.attention_share) + 2 * stored / rates.copy_bytes + rates.launch_seconds,
      .limit = Limit::tensor_cores};
}

/// An attention by the library where it has a share and is not slower, else by the generated kernels, which a library's forward
/// pass costs a memset more.
StepEstimate attention_estimate(const AttentionCall& call, const StepCost& cost, const DeviceRates& rates,
                                const EstimateOptions& options) {
  check_internal(cost.generated.size() == call.generated.size(), call.origin, ": counted ", cost.generated.size(), " of ",
                 call.generated.size(), " launches");
  if (rates.attention_share > 0 && !call.generated_is_faster) return library_attention_estimate(call, rates);
  StepEstimate made{.seconds = rates.attention_share > 0 ? rates.launch_seconds : 0};
  double longest = 0;
  for (std::size_t i = 0; i < call.generated.size(); ++i) {
    const KernelWork work{Family::attention, cost.generated[i]};
    // Their arithmetic is in what was counted.
    const StepEstimate one = kernel_estimate(call.generated[i], work, cost.generated_bytes.at(i), 0, call.dtype, rates, options);
    if (one.seconds > longest) longest = one.seconds, made.limit = one.limit, made.waves = one.waves;
    made.seconds += one.seconds;
  }
  return made;
}

}  // namespace

std::string_view name_of(Limit limit) {
  static constexpr std::array<std::string_view, 7> kNames = {"copy", "L1", "L2", "waits", "issue", "mma", "fma"};
  return kNames[static_cast<std::size_t>(limit)];
}

double library_product_seconds(const MatmulCall& call, double rate, const DeviceRates& rates) {
  double batches = 1;
  for (const std::int64_t extent : call.batch) batches *= number(extent);
  const Extents extents{number(call.m), number(call.n), number(call.k), batches};
  // What the rate was measured with has its own tiles, waves and ends.
  const Extents measured{8192, 8192, 8192, 1};
  const auto seconds = [&](const Extents& e) { return tiled_seconds(e, number(size_of(call.dtype)), rate, rates); };
  return seconds(extents) * (measured.flops() / rate / seconds(measured));
}

StepEstimate estimate(const Step& step, const StepCost& cost, const DeviceRates& rates, const EstimateOptions& options) {
  StepEstimate made = runtime::visit_step(
      step,
      [&](const KernelLaunch& launch) {
        KernelWork work = cost.work;
        if (options.tf32 && launch.tf32) work.traffic = cost.generated_tf32.at(0);
        return kernel_estimate(launch, work, cost.bytes, cost.flops, cost.dtype, rates, options);
      },
      [&](const MatmulCall& call) { return product_estimate(call, cost, rates, options); },
      [&](const ConvolutionCall& call) { return convolution_estimate(call, cost, rates, options); },
      [&](const AttentionCall& call) { return attention_estimate(call, cost, rates, options); },
      [&](const CollectiveCall&) { return StepEstimate{.seconds = cost.seconds(rates) + rates.launch_seconds}; });
  const bool rounds = may_round_to_tf32(cost.work.family) || !cost.generated_tf32.empty();
  made.floor = options.tf32 && rounds && cost.dtype == DType::f32 ? std::max(cost.flops / rates.tf32, cost.bytes / rates.copy_bytes)
                                                                  : cost.seconds(rates);
  return made;
}

}  // namespace gcomp::codegen
