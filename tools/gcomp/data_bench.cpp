// gcomp data bench: how fast the loader of a training gives batches, without a model.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "data/format.h"
#include "data/transforms/transformed.h"
#include "gcomp/driver/fit/batch_loader.h"
#include "ir/base/error.h"
#include "ir/base/units.h"
#include "runtime/batch_plan.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/data_rows.h"
#include "tools/gcomp/options.h"
#include "tools/gcomp/report.h"

namespace gcomp::tools {
namespace {

using BenchClock = std::chrono::steady_clock;

struct DataBenchFlags {
  DataSpecFlags data;
  std::optional<std::int64_t> batch, workers;
  std::int64_t prefetch = 4;
  double seconds = 3, step_ms = 0;
};

struct DataBench {
  std::int64_t batches = 0, rows = 0, bytes = 0;
  double seconds = 0, waited = 0;
  int workers = 0;
};

double seconds_since(BenchClock::time_point begin) { return std::chrono::duration<double>(BenchClock::now() - begin).count(); }

void check_data_bench(const DataBenchFlags& flags) {
  const auto require = [](const char* flag, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most) throw UserError(concat(flag, " ", value, ": wanted ", least, " to ", most), ExitCode::usage);
  };
  require("--batch", flags.batch.value_or(1), 1, std::int64_t{1} << 30);
  require_workers(flags.workers);
  require("--prefetch", flags.prefetch, 1, driver::kMostPrefetched);
  if (!(flags.seconds > 0) || flags.seconds > 86400)
    throw UserError(concat("--seconds ", flags.seconds, ": wanted more than 0 and at most 86400"), ExitCode::usage);
  if (!(flags.step_ms >= 0) || flags.step_ms > 60000)
    throw UserError(concat("--step-ms ", flags.step_ms, ": wanted 0 to 60000"), ExitCode::usage);
}

/// Batches are of rows of one type. Images that have sizes of their own, and no transform that gives them one, are wanted as the
/// first of them is, so that one of another size is told.
std::unique_ptr<data::Source> open_rows(const DataSpecFlags& flags) {
  std::unique_ptr<data::Source> source = flags.open();
  check_user(source->rows() > 0, "'", source->source(), "' has no rows");
  std::vector<data::WantedArray> wanted;
  const std::vector<NamedType> arrays = source->arrays();
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const data::ImageSource* images = source->images(i);
    if (!images) continue;
    const data::ImageSize size = images->size(0);
    wanted.push_back({.name = arrays[i].first, .dtype = DType::u8, .row = Shape{images->channels(0), size.height, size.width}});
  }
  return wanted.empty() ? std::move(source) : data::transformed(std::move(source), {}, wanted);
}

std::int64_t batch_of(const DataBenchFlags& flags, const Dataset& data) {
  constexpr std::int64_t kBatch = 64;
  return std::min(flags.batch.value_or(kBatch), data.rows());
}

/// Every array, as the data have it.
driver::FedArrays all_arrays(const Dataset& data, std::int64_t batch) {
  driver::FedArrays fed;
  for (auto& [name, row] : data.arrays()) {
    TensorType type{row.dtype, {batch}};
    type.shape.insert(type.shape.end(), row.shape.begin(), row.shape.end());
    fed.arrays.push_back({.name = name, .type = std::move(type)});
  }
  return fed;
}

/// Takes batches as a training does: workers write them where a step would read them, one step after another.
class BatchTaker {
 public:
  BatchTaker(const Dataset& data, const DataBenchFlags& flags)
      : flags_(flags),
        batch_(batch_of(flags, data)),
        fed_(all_arrays(data, batch_)),
        loader_(data, fed_, plan(data), options(data)) {}

  int workers() const { return loader_.workers(); }
  std::int64_t batch() const { return batch_; }
  std::int64_t batch_bytes() const {
    std::int64_t bytes = 0;
    for (const driver::FedArray& array : fed_.arrays) bytes += array.type.bytes();
    return bytes;
  }
  double waited() const { return loader_.waited(); }

  void take() {
    if (workers() == 0) loader_.load(step_, [&](std::size_t input) { return memory_of(0, input); });
    else loader_.take(step_);
    if (flags_.step_ms > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(flags_.step_ms));
    loader_.release(step_++);
  }

 private:
  std::uint64_t seed() const { return static_cast<std::uint64_t>(flags_.data.seed); }
  runtime::BatchPlan plan(const Dataset& data) const { return {data.rows(), batch_, seed(), runtime::RowOrder::shuffled}; }
  driver::LoaderOptions options(const Dataset& data) {
    return {.workers = flags_.workers ? static_cast<int>(*flags_.workers) : driver::default_workers(data, fed_),
            .ahead = static_cast<int>(flags_.prefetch),
            .seed = seed(),
            .steps = std::numeric_limits<std::int64_t>::max(),
            .held = 1,
            .slot_memory = [this](int slot, std::size_t input) { return memory_of(static_cast<std::size_t>(slot), input); }};
  }
  std::span<std::byte> memory_of(std::size_t slot, std::size_t input) {
    while (memory_.size() <= slot) {
      std::vector<Tensor>& inputs = memory_.emplace_back();
      for (const driver::FedArray& array : fed_.arrays) inputs.emplace_back(array.type);
    }
    return memory_[slot][input].bytes();
  }

  const DataBenchFlags& flags_;
  std::int64_t batch_;
  driver::FedArrays fed_;
  std::vector<std::vector<Tensor>> memory_;  // of slots and their inputs
  std::int64_t step_ = 0;
  driver::BatchLoader loader_;  // its workers write into the members before it
};

/// The clock starts once the workers are under way.
DataBench read_for(const Dataset& data, const DataBenchFlags& flags) {
  BatchTaker taker(data, flags);
  DataBench bench{.workers = taker.workers()};
  const std::int64_t warmup = bench.workers == 0 ? 1 : flags.prefetch + 1;
  const BenchClock::time_point start = BenchClock::now();
  for (std::int64_t i = 0; i < warmup && (i == 0 || seconds_since(start) < flags.seconds / 4); ++i) taker.take();
  const double waited_before = taker.waited();
  const BenchClock::time_point begin = BenchClock::now();
  for (; bench.seconds < flags.seconds; bench.seconds = seconds_since(begin), ++bench.batches) taker.take();
  bench.waited = taker.waited() - waited_before;
  bench.rows = bench.batches * taker.batch(), bench.bytes = bench.batches * taker.batch_bytes();
  return bench;
}

void bench_data(const DataBenchFlags& flags, const Console& console) {
  check_data_bench(flags);
  const std::unique_ptr<data::Source> source = open_rows(flags.data);
  const std::int64_t batch = batch_of(flags, *source);
  if (flags.batch && *flags.batch > batch)
    console.say(concat("note: --batch ", *flags.batch, ": '", source->source(), "' has ", grouped(batch),
                       batch == 1 ? " row" : " rows", ", which are a batch here"));
  const DataBench bench = read_for(*source, flags);
  const double rows = static_cast<double>(bench.rows) / bench.seconds, bytes = static_cast<double>(bench.bytes) / bench.seconds;
  const double batch_wait = bench.waited / static_cast<double>(bench.batches);
  console.result(concat("read: ", grouped(bench.rows), bench.rows == 1 ? " row" : " rows", " of ",
                        printable_message(concat("'", source->source(), "'")), ", shuffled, in ", grouped(bench.batches),
                        bench.batches == 1 ? " batch" : " batches", " and ", time_text(bench.seconds)));
  console.result(concat("workers: ", bench.workers == 0 ? std::string("none, the thread that takes batches reads")
                                                        : concat(bench.workers, ", at most ", flags.prefetch,
                                                                 flags.prefetch == 1 ? " batch" : " batches", " ahead")));
  console.result(concat("rate: ", rows_rate_text(rows), ", ", size_text(bytes), "/s as they are given"));
  console.result(concat("waited: ", time_text(batch_wait), " for a batch, ", percent_text(bench.waited / bench.seconds),
                        " of the time", flags.step_ms > 0 ? concat(", with steps of ", time_text(flags.step_ms / 1e3)) : ""));
  console.result_json({{"data", flags.data.spec},
                       {"batch", batch},
                       {"rows", bench.rows},
                       {"bytes", bench.bytes},
                       {"seconds", bench.seconds},
                       {"rows_per_second", rows},
                       {"bytes_per_second", bytes},
                       {"workers", bench.workers},
                       {"data_wait_seconds", bench.waited}});
}

}  // namespace

Command add_data_bench(ArgumentParser& data, Console& console) {
  auto flags = std::make_shared<DataBenchFlags>();
  ArgumentParser parser = data.add_subcommand("bench", "how many rows a second a training would get, without a model");
  flags->data.add(parser);
  parser.add_option("--batch", flags->batch, "rows of a batch (default 64, or all where there are fewer)");
  parser.add_option("--workers", flags->workers,
                    "threads that read batches ahead, as of gcomp train; 0: the thread that takes them");
  parser.add_option("--prefetch", flags->prefetch, "batches that workers are ahead");
  parser.add_option("--step-ms", flags->step_ms, "milliseconds that a step of the training takes, in which nothing is taken");
  parser.add_option("--seconds", flags->seconds, "how long");
  parser.set_footer(
      "Examples:\n"
      "  gcomp data bench photos --augment 'random_resized_crop(224), hflip' --workers 2\n"
      "  gcomp data bench photos --augment 'random_resized_crop(224), hflip' --batch 64 --step-ms 50");
  return {parser, [flags, &console] { bench_data(*flags, console); }};
}

}  // namespace gcomp::tools
