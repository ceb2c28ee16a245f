#include "gcomp/driver/fit/batch_loader.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "ir/base/error.h"

namespace gcomp::driver {

using LoaderClock = std::chrono::steady_clock;

/// One batch in memory of its own.
struct BatchSlot {
  std::int64_t step = -1;  // -1: free
  std::optional<EpochKey> key;
  std::vector<std::int64_t> rows;                  // room for a whole batch; the first `count` are the step's
  std::vector<std::span<std::byte>> inputs;        // as the program wants them
  std::vector<SkippedRow> skipped;                 // of this batch, by any worker
  std::size_t count = 0, given_out = 0, done = 0;  // rows
  std::size_t failed_at = 0;                       // the first row of the batch that could not be read
  std::exception_ptr failure;
};

/// Rows of one slot that one worker reads at once.
struct Chunk {
  BatchSlot* slot = nullptr;
  std::size_t first = 0, count = 0;
};

/// The rows that could not be read are replaced here, so that the rest sees whole batches.
class ChunkReader {
 public:
  ChunkReader(const Dataset& data, const FedArrays& arrays, BadSample policy)
      : data_(data), feeder_(data, arrays), policy_(policy) {}

  const BatchFeeder& feeder() const { return feeder_; }

  /// Reads rows into memory of the inputs, which begins with the first of them. Throws for the first that cannot be read, and gives
  /// its place in `failed`.
  template <class Memory>
  void read(std::span<std::int64_t> rows, const EpochKey* key, const Memory& memory, std::vector<SkippedRow>& skipped,
            std::size_t& failed) {
    try {
      for (std::size_t i = 0; i < feeder_.inputs(); ++i)
        feeder_.fill(i, rows, key, memory(i).first(rows.size() * feeder_.row_bytes(i)));
    } catch (const UserError&) { read_each(rows, key, memory, skipped, failed); }
  }

 private:
  /// Finds out which it was.
  template <class Memory>
  void read_each(std::span<std::int64_t> rows, const EpochKey* key, const Memory& memory, std::vector<SkippedRow>& skipped,
                 std::size_t& failed) {
    for (std::size_t at = 0; at < rows.size(); ++at) {
      failed = at;
      const auto fill = [&](std::int64_t row) {
        for (std::size_t i = 0; i < feeder_.inputs(); ++i)
          feeder_.fill(i, std::span(&row, 1), key, memory(i).subspan(at * feeder_.row_bytes(i), feeder_.row_bytes(i)));
      };
      try {
        fill(rows[at]);
      } catch (const UserError& error) {
        if (policy_ == BadSample::stop) throw;
        const std::int64_t instead = replace(rows[at], error, fill);
        skipped.push_back({.row = rows[at], .instead = instead, .reason = error.what()});
        rows[at] = instead;
      }
    }
  }

  /// The next row of the data that can be read: it depends on nothing else.
  template <class Fill>
  std::int64_t replace(std::int64_t row, const UserError& error, const Fill& fill) const {
    const std::int64_t most = std::min<std::int64_t>(data_.rows() - 1, kMostBadRows);
    for (std::int64_t next = 1; next <= most; ++next) {
      const std::int64_t instead = (row + next) % data_.rows();
      try {
        fill(instead);
        return instead;
      } catch (const UserError&) {
        if (next == most) break;
      }
    }
    throw UserError(concat("--on-bad-sample skip: ", most + 1, " rows one after another cannot be read, the first: ", error.what()),
                    error.code());
  }

  static constexpr std::int64_t kMostBadRows = 1000;

  const Dataset& data_;
  BatchFeeder feeder_;
  BadSample policy_;
};

struct BatchLoader::Impl {
  const Dataset& data;
  const FedArrays arrays;
  const runtime::BatchPlan plan;
  const LoaderOptions options;
  std::int64_t end;
  std::size_t chunk_rows = 1;
  ChunkReader reader;              // of the thread that takes batches, where there are no workers
  std::vector<std::int64_t> rows;  // of the batch that was taken last
  std::vector<SkippedRow> skipped;
  std::vector<std::vector<std::byte>> own_memory;  // of slots and their inputs, without slot_memory
  LoaderClock::duration waited{};

  std::mutex mutex;  // of all below
  std::condition_variable work, ready;
  std::vector<BatchSlot> slots;
  std::int64_t next_open, next_taken;  // steps
  bool ends = false;
  std::vector<ChunkReader> readers;  // of the workers
  std::vector<std::thread> threads;

  Impl(const Dataset& the_data, const FedArrays& the_arrays, const runtime::BatchPlan& the_plan, const LoaderOptions& the_options);
  ~Impl();

  std::optional<EpochKey> key_of(std::int64_t step) const {
    return options.seed ? std::optional(EpochKey{*options.seed, plan.epoch_of(step)}) : std::nullopt;
  }
  BatchSlot& slot_of(std::int64_t step) { return slots[static_cast<std::size_t>(step) % slots.size()]; }
  std::optional<Chunk> next_chunk();
  void open(std::int64_t step);
  void run(ChunkReader& worker);
  void read(ChunkReader& worker, const Chunk& chunk);
  std::span<const std::int64_t> load_directly(std::int64_t step, const Memory& memory);
  BatchSlot& wait_for(std::int64_t step);
  std::span<const std::int64_t> copy(std::int64_t step, const Memory& memory);
  void release(std::int64_t step);
};

BatchLoader::Impl::Impl(const Dataset& the_data, const FedArrays& the_arrays, const runtime::BatchPlan& the_plan,
                        const LoaderOptions& the_options)
    : data(the_data),
      arrays(the_arrays),
      plan(the_plan),
      options(the_options),
      end(the_options.first_step + the_options.steps),
      reader(the_data, the_arrays, the_options.on_bad_sample),
      rows(static_cast<std::size_t>(the_plan.own_batch())),
      next_open(the_options.first_step),
      next_taken(the_options.first_step) {
  const int workers = data.thread_safe() ? options.workers : std::min(options.workers, 1);
  if (workers == 0) return;
  const auto batch = static_cast<std::size_t>(plan.own_batch());
  chunk_rows = std::max<std::size_t>(1, batch / (2 * static_cast<std::size_t>(workers)));
  slots.resize(static_cast<std::size_t>(options.ahead + options.held));
  for (std::size_t s = 0; s < slots.size(); ++s) {
    slots[s].rows.resize(batch);
    for (std::size_t i = 0; i < reader.feeder().inputs(); ++i)
      slots[s].inputs.push_back(options.slot_memory ? options.slot_memory(static_cast<int>(s), i)
                                                    : std::span(own_memory.emplace_back(batch * reader.feeder().row_bytes(i))));
  }
  readers.reserve(static_cast<std::size_t>(workers));
  for (int i = 0; i < workers; ++i) readers.emplace_back(data, arrays, options.on_bad_sample);
  for (ChunkReader& worker : readers) threads.emplace_back([this, &worker] { run(worker); });
}

BatchLoader::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex);
    ends = true;
  }
  work.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void BatchLoader::Impl::open(std::int64_t step) {
  BatchSlot& slot = slot_of(step);
  slot.step = step;
  slot.key = key_of(step);
  slot.count = static_cast<std::size_t>(plan.count_of(step));
  slot.given_out = slot.done = 0;
  slot.skipped.clear();
  slot.failure = nullptr;
  plan.rows_of(step, std::span(slot.rows).first(slot.count));
}

/// The earliest rows that nobody reads yet. Under the mutex.
std::optional<Chunk> BatchLoader::Impl::next_chunk() {
  for (std::int64_t step = next_taken; step < next_open; ++step) {
    BatchSlot& slot = slot_of(step);
    if (slot.step != step || slot.given_out == slot.count) continue;
    const Chunk chunk{&slot, slot.given_out, std::min(chunk_rows, slot.count - slot.given_out)};
    slot.given_out += chunk.count;
    return chunk;
  }
  if (next_open == end || slot_of(next_open).step >= 0) return std::nullopt;
  open(next_open++);
  return next_chunk();
}

void BatchLoader::Impl::read(ChunkReader& worker, const Chunk& chunk) {
  BatchSlot& slot = *chunk.slot;
  std::vector<SkippedRow> bad;
  std::size_t failed = 0;
  std::exception_ptr failure;
  try {
    worker.read(
        std::span(slot.rows).subspan(chunk.first, chunk.count), slot.key ? &*slot.key : nullptr,
        [&](std::size_t i) { return slot.inputs[i].subspan(chunk.first * worker.feeder().row_bytes(i)); }, bad, failed);
  } catch (...) { failure = std::current_exception(); }
  const std::lock_guard lock(mutex);
  for (SkippedRow& row : bad) slot.skipped.push_back(std::move(row));
  if (failure && (!slot.failure || chunk.first + failed < slot.failed_at)) {
    slot.failure = failure;
    slot.failed_at = chunk.first + failed;
  }
  slot.done += chunk.count;
  if (slot.done == slot.count) ready.notify_all();
}

void BatchLoader::Impl::run(ChunkReader& worker) {
  sigset_t all;  // signals are for the threads that wait for them
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex);
  while (!ends) {
    const std::optional<Chunk> chunk = next_chunk();
    if (!chunk) {
      work.wait(lock);
      continue;
    }
    lock.unlock();
    read(worker, *chunk);
    lock.lock();
  }
}

std::span<const std::int64_t> BatchLoader::Impl::load_directly(std::int64_t step, const Memory& memory) {
  const std::span<std::int64_t> taken = std::span(rows).first(static_cast<std::size_t>(plan.count_of(step)));
  plan.rows_of(step, taken);
  std::size_t failed = 0;
  const std::optional<EpochKey> key = key_of(step);
  reader.read(taken, key ? &*key : nullptr, memory, skipped, failed);
  return taken;
}

/// Its rows are then in `rows`. Throws what a worker met.
BatchSlot& BatchLoader::Impl::wait_for(std::int64_t step) {
  std::unique_lock lock(mutex);
  check_internal(step == next_taken && step < end, "loader: step ", step, " after ", next_taken - 1);
  BatchSlot& slot = slot_of(step);
  ready.wait(lock, [&] { return slot.step == step && slot.done == slot.count; });
  if (slot.failure) std::rethrow_exception(slot.failure);
  std::ranges::sort(slot.skipped, {}, &SkippedRow::row);
  for (SkippedRow& row : slot.skipped) skipped.push_back(std::move(row));
  std::copy_n(slot.rows.begin(), slot.count, rows.begin());
  ++next_taken;
  return slot;
}

std::span<const std::int64_t> BatchLoader::Impl::copy(std::int64_t step, const Memory& memory) {
  BatchSlot& slot = wait_for(step);
  for (std::size_t i = 0; i < slot.inputs.size(); ++i)
    std::memcpy(memory(i).data(), slot.inputs[i].data(), slot.count * reader.feeder().row_bytes(i));
  const std::size_t count = slot.count;
  release(step);
  return std::span(rows).first(count);
}

/// Nothing where its slot has another step by now.
void BatchLoader::Impl::release(std::int64_t step) {
  const std::lock_guard lock(mutex);
  BatchSlot& slot = slot_of(step);
  if (slot.step != step) return;
  slot.step = -1;
  work.notify_all();
}

BatchLoader::BatchLoader(const Dataset& data, const FedArrays& arrays, const runtime::BatchPlan& plan, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(data, arrays, plan, options)) {}

BatchLoader::~BatchLoader() = default;

std::span<const std::int64_t> BatchLoader::load(std::int64_t step, const Memory& memory) {
  const LoaderClock::time_point begin = LoaderClock::now();
  const std::span<const std::int64_t> rows =
      impl_->threads.empty() ? impl_->load_directly(step, memory) : impl_->copy(step, memory);
  impl_->waited += LoaderClock::now() - begin;
  return rows;
}

BatchLoader::Taken BatchLoader::take(std::int64_t step) {
  const LoaderClock::time_point begin = LoaderClock::now();
  check_internal(!impl_->threads.empty() && impl_->options.slot_memory, "loader: it has no slots to take");
  const BatchSlot& slot = impl_->wait_for(step);
  impl_->waited += LoaderClock::now() - begin;
  return {std::span(impl_->rows).first(slot.count), static_cast<int>(&slot - impl_->slots.data())};
}

void BatchLoader::release(std::int64_t step) {
  if (!impl_->threads.empty()) impl_->release(step);
}

double BatchLoader::waited() const { return std::chrono::duration<double>(impl_->waited).count(); }
int BatchLoader::workers() const { return static_cast<int>(impl_->threads.size()); }
const std::vector<SkippedRow>& BatchLoader::skipped() const { return impl_->skipped; }

int default_workers(const Dataset& data, const FedArrays& arrays) {
  constexpr unsigned kMostByDefault = 8;
  const bool in_memory = data.is_in_memory() || std::ranges::all_of(arrays.arrays, [&](const FedArray& array) {
                           return data.whole(runtime::find_array(data, array.name)) != nullptr;
                         });
  return in_memory ? 0 : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kMostByDefault));
}

}  // namespace gcomp::driver
