// Batches of a training, read ahead by worker threads:
//
//   row order ──> chunks of rows ──> workers: fetch, transform, convert ──> slots, a batch each ──> the program
//
// Slots lie in memory of the executable, so that a batch is not copied again on its way to the program (Executable::keep_batches);
// in memory of the loader where what takes the batches wants a copy.
//
// Which rows a step takes and how a row looks are pure functions of step, seed and epoch, so that the number of workers changes
// nothing but the time. What goes wrong with a row is told when its batch is due: the steps before it are done as ever.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gcomp/driver/fit/batch_feeder.h"
#include "gcomp/fit.h"
#include "runtime/batch_plan.h"

namespace gcomp::driver {

struct LoaderOptions {
  int workers = 0;  ///< 0: the thread that takes a batch reads it
  int ahead = 4;    ///< batches that are read before they are due, at least 1
  BadSample on_bad_sample = BadSample::stop;
  Optional<std::uint64_t> seed = {};       ///< of the random transforms; without it rows are as an evaluation has them
  std::int64_t first_step = 0, steps = 0;  ///< which are taken, one after another
  int held = 0;  ///< with slot_memory: batches that are taken and not released at once; there are ahead + held slots
  /// Of a batch of each input that is fed, for workers. Without it the loader has its own.
  std::function<std::span<std::byte>(int slot, std::size_t input)> slot_memory = {};
};

/// A row that could not be read, and the one that stood in for it.
struct SkippedRow {
  std::int64_t row = 0, instead = 0;
  std::string reason;
};

/// What an evaluation does with such rows.
struct BadRows {
  BadSample policy = BadSample::stop;
  std::vector<SkippedRow>* skipped = nullptr;  ///< gets those that were passed over; null for nobody who asks
};

class BatchLoader {
 public:
  /// Where rows of an input of the program go, by its place among those that are fed.
  using Memory = std::function<std::span<std::byte>(std::size_t input)>;

  /// The data must outlive it. Workers start at once. Throws as BatchFeeder.
  BatchLoader(const Dataset& data, const FedArrays& arrays, const runtime::BatchPlan& plan, const LoaderOptions& options);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// The batch of this step to where it goes; steps come in order, each once. Gives its rows, valid until the next call. Throws
  /// UserError for a row that cannot be read or does not fit, the first of the batch.
  std::span<const std::int64_t> load(std::int64_t step, const Memory& memory);
  /// The batch of this step where it lies, from load() no different but that its slot is not written again before release(). Needs
  /// workers and slot_memory.
  struct Taken {
    std::span<const std::int64_t> rows;  ///< until the next call
    int slot = 0;
  };
  Taken take(std::int64_t step);
  /// That step has read its batch. Nothing for one that load() gave.
  void release(std::int64_t step);
  /// Seconds that load() and take() took so far: what the training waited for its data.
  double waited() const;
  int workers() const;
  /// Of the batches that were loaded, in their order.
  const std::vector<SkippedRow>& skipped() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

inline constexpr std::int64_t kMostWorkers = 256, kMostPrefetched = 1024;

/// How many workers read these data where nobody says: none for arrays that lie in memory, else as many as there are processors,
/// at most 8.
int default_workers(const Dataset& data, const FedArrays& arrays);

}  // namespace gcomp::driver
