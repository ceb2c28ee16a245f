// gcomp data bench: how fast rows are read, without a model.
#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "ir/base/units.h"
#include "runtime/batch_plan.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/data_rows.h"
#include "tools/gcomp/report.h"

namespace gcomp::tools {
namespace {

struct DataBenchFlags {
  DataSpecFlags data;
  int workers = 0;
  std::int64_t batch = 64;
  double seconds = 5;
};

struct WorkerCount {
  std::int64_t rows = 0, bytes = 0;
};

struct DataBench {
  std::vector<WorkerCount> workers;
  double seconds = 0;
};

/// Each thread takes the next batch of the shuffled order until the time is over; batches that were begun are ended.
DataBench read_for(const data::Source& source, const DataBenchFlags& flags) {
  using Clock = std::chrono::steady_clock;
  const std::int64_t batch = std::min(flags.batch, source.rows());
  const auto seed = static_cast<std::uint64_t>(flags.data.seed);
  const runtime::BatchPlan plan(source.rows(), batch, seed, runtime::RowOrder::shuffled);
  const int workers = worker_count(flags.workers, source);
  DataBench bench{.workers = std::vector<WorkerCount>(static_cast<std::size_t>(workers))};
  std::atomic<std::int64_t> next = 0;
  const Clock::time_point begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  for_each_index(workers, workers, [&](int, std::int64_t worker) {
    WorkerCount& count = bench.workers[static_cast<std::size_t>(worker)];
    SampleRow row(source);
    std::vector<std::int64_t> rows(static_cast<std::size_t>(batch));
    while (elapsed() < flags.seconds) {
      const std::int64_t step = next++;
      plan.rows_of(step, rows);
      const EpochKey key{.seed = seed, .epoch = plan.epoch_of(step)};
      for (const std::int64_t at : rows) {
        row.read(at, &key);
        count.bytes += row.bytes();
      }
      count.rows += batch;
    }
  });
  bench.seconds = elapsed();
  return bench;
}

void bench_data(const DataBenchFlags& flags, const Console& console) {
  if (flags.batch < 1) throw UserError(concat("--batch ", flags.batch, ": wanted at least 1"), ExitCode::usage);
  if (!(flags.seconds > 0) || flags.seconds > 86400)
    throw UserError(concat("--seconds ", flags.seconds, ": wanted more than 0 and at most 86400"), ExitCode::usage);
  const std::unique_ptr<data::Source> source = flags.data.open();
  check_user(source->rows() > 0, "'", source->source(), "' has no rows");
  const DataBench bench = read_for(*source, flags);
  WorkerCount all;
  for (const WorkerCount& worker : bench.workers) all.rows += worker.rows, all.bytes += worker.bytes;
  const double rows = static_cast<double>(all.rows) / bench.seconds, bytes = static_cast<double>(all.bytes) / bench.seconds;
  console.result(concat("read: ", grouped(all.rows), " rows of ", printable_message(concat("'", source->source(), "'")), " in ",
                        time_text(bench.seconds), ", shuffled, by ", bench.workers.size(),
                        bench.workers.size() == 1 ? " worker" : " workers"));
  console.result(concat("rate: ", rows_rate_text(rows), ", ", size_text(bytes), "/s as they are given"));
  nlohmann::json shares = nlohmann::json::array();
  for (std::size_t i = 0; i < bench.workers.size(); ++i) {
    const double share = all.rows > 0 ? static_cast<double>(bench.workers[i].rows) / static_cast<double>(all.rows) : 0;
    shares.push_back(share);
    console.result(concat("worker: ", i, ", ", percent_text(share), " of the rows"));
  }
  console.result_json({{"data", flags.data.spec},
                       {"rows", all.rows},
                       {"bytes", all.bytes},
                       {"seconds", bench.seconds},
                       {"rows_per_second", rows},
                       {"bytes_per_second", bytes},
                       {"workers", bench.workers.size()},
                       {"worker_shares", shares}});
}

}  // namespace

Command add_data_bench(ArgumentParser& data, Console& console) {
  auto flags = std::make_shared<DataBenchFlags>();
  ArgumentParser parser = data.add_subcommand("bench", "how many rows a second are read and transformed, without a model");
  flags->data.add(parser);
  parser.add_option("--workers", flags->workers, "threads that read; 0: as many as there are processors, at most 8");
  parser.add_option("--batch", flags->batch, "rows that a thread takes at once");
  parser.add_option("--seconds", flags->seconds, "how long");
  parser.set_footer("Example:\n  gcomp data bench photos --augment 'random_resized_crop(224), hflip' --workers 2");
  return {parser, [flags, &console] { bench_data(*flags, console); }};
}

}  // namespace gcomp::tools
