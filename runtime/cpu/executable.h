// A Program on the CPU: one arena, pointer tables and library calls resolved at load, then steps in order on the pool's threads.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "gcomp/communicator.h"
#include "runtime/cpu/beside_thread.h"
#include "runtime/cpu/kernel_library.h"
#include "runtime/cpu/library_call.h"
#include "runtime/cpu/memory_block.h"
#include "runtime/cpu/state_memory.h"
#include "runtime/device.h"
#include "runtime/executable.h"

namespace gcomp::runtime::cpu {

class CpuExecutable final : public Executable, private BesideWork {
 public:
  /// What runs a program. `communicator` may be null for one without collectives.
  struct Place {
    std::shared_ptr<ThreadPool> pool;
    Communicator* communicator = nullptr;
    std::shared_ptr<BesideThread> beside;  ///< runs it, for Lane::beside, else those that run beside it
    Lane lane = Lane::main;
  };

  /// `kernels` may be null for a program without kernels. Throws UserError where collectives find no communicator.
  CpuExecutable(Program program, std::shared_ptr<CpuStateMemory> states, std::unique_ptr<KernelLibrary> kernels, const Place& place,
                const CallBackend& backend, int shards);
  ~CpuExecutable() override;

  using Executable::input;
  std::span<std::byte> input(std::size_t index) override;
  std::span<const std::byte> next_input(std::size_t index) override { return input_in(next_batch_, index); }
  void keep_batches(int count, std::span<const std::size_t> inputs) override;
  std::span<std::byte> kept_input(int batch, std::size_t index) override;
  void use_batch(int batch) override;
  void run_shard(int shard) override;
  void synchronize() override;
  void wait(int) override { synchronize(); }
  void plan_beside(BesidePlan plan) override;
  using Executable::output_bytes;
  std::span<const std::byte> output_bytes(std::size_t index, int age) override;
  std::span<const std::byte> input_of_run(std::size_t index, int age) override;
  void time_steps(std::span<std::int64_t> nanoseconds) override;
  HeldBytes held_bytes() const override {
    return {arena_.bytes(), constants_.bytes(), io_.bytes() + whole_batch_.bytes(), scratch_.bytes() + faults_.bytes()};
  }
  std::span<const std::byte> kernel_binary() const override;

 private:
  /// One segment of a launch: its pointers stand at `buffers` of pointers_, its tasks begin at `first_task` of the launch.
  struct PreparedSegment {
    std::size_t buffers = 0;
    long extent = 0;
    std::int64_t first_task = 0, last_task = 0;
  };
  struct PreparedLaunch {
    KernelFunction function = nullptr;
    std::size_t first_segment = 0, last_segment = 0;
    std::int64_t tasks = 0;
    const KernelLaunch* launch = nullptr;
    bool updates = false;  // what an optimizer keeps
  };
  using PreparedStep = std::variant<PreparedLaunch, std::unique_ptr<LibraryCall>>;
  /// Memory of a batch, and the steps that read it there: kernels and library calls know one place of each buffer. Shards are
  /// copied to where the program's own inputs lie, so that there the steps are the same.
  struct KeptBatch {
    MemoryBlock memory;
    std::vector<std::byte*> inputs;                           // of the program's inputs; null for those that are not kept
    std::vector<std::pair<std::size_t, PreparedStep>> steps;  // by their places
  };
  static constexpr int kOwnInputs = -1;  // in place of a kept batch

  void place_buffers(const CpuStateMemory& states);
  void place_batch();
  void take_shard(int shard);
  void prepare_steps();
  PreparedStep prepare_step(std::size_t step);
  void prepare_steps(KeptBatch& batch);
  bool reads(std::size_t step, const KeptBatch& batch) const;
  const KeptBatch& kept(int batch) const;
  std::span<std::byte> input_in(int batch, std::size_t index);
  const PreparedStep& step_at(std::size_t step, std::size_t& next_of_batch) const;
  PreparedLaunch prepare(const KernelLaunch& launch);
  std::unique_ptr<LibraryCall> prepare(const MatmulCall& call);
  std::unique_ptr<LibraryCall> prepare(const ConvolutionCall& call);
  [[noreturn]] std::unique_ptr<LibraryCall> prepare(const AttentionCall& call);
  std::unique_ptr<LibraryCall> prepare(const CollectiveCall& call);
  void work() override;
  void run_steps(bool last_shard);
  void run_step(const PreparedStep& step);
  void run_launch(const PreparedLaunch& prepared);
  void run_tasks(const PreparedLaunch& prepared, std::int64_t first, std::int64_t last, int* fault) const;
  void check_faults(const KernelLaunch& launch);
  std::byte* address(int buffer) const;
  void find_moments();

  std::unique_ptr<KernelLibrary> kernels_;
  std::shared_ptr<ThreadPool> pool_;
  CallBackend backend_;
  Communicator* communicator_;
  std::shared_ptr<BesideThread> beside_;
  Lane lane_;
  BesidePlan plan_;                         // by steps
  std::vector<const BesideWork*> planned_;  // all that it names
  std::uint64_t started_ = 0;               // the last run's number, on Lane::beside
  MemoryBlock arena_, constants_, io_, scratch_;
  MemoryBlock whole_batch_;                  // inputs of all shards, where there are several
  std::vector<std::int64_t> batch_offsets_;  // of each input
  std::vector<std::byte*> addresses_;        // of each buffer
  std::vector<char> moments_;                // of each buffer, whether it is a state of an optimizer
  std::vector<void*> pointers_;
  std::vector<PreparedSegment> segments_;
  std::vector<PreparedStep> steps_;
  std::size_t own_segments_ = 0, own_pointers_ = 0;  // those of steps_
  Workspace workspace_;
  std::vector<KeptBatch> kept_;
  int batch_ = kOwnInputs, next_batch_ = kOwnInputs;  // which the last batch of runs read, and the next reads
  MemoryBlock faults_;                                // one int each thread, a cache line apart
  std::span<std::int64_t> times_;
};

}  // namespace gcomp::runtime::cpu
