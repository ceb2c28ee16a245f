// A Program on a GPU. The whole step is captured once for each of two slots as a CUDA graph: fault flags cleared, kernels and
// library calls in order, outputs and flags copied back. A run copies its inputs on the copy stream, while the run before still
// computes, and launches the slot's graph behind that copy. Inputs and outputs live in pinned memory of the slot.
//
// Where programs run beside it, the step is cut into several graphs: between two of them events of the other stream are recorded
// and waited for, which has one meaning in every version of CUDA, and costs a launch of some microseconds for an exchange.
//
// A batch in several shards is one run of a slot for the host, whose pinned memory then holds the inputs of all. On the device the
// shards take turns with the two sets of inputs and graphs; a copy waits there, and not on the host, for the shard before the last.
#pragma once

#include <memory>
#include <vector>

#include "runtime/cuda/kernel_set.h"
#include "runtime/cuda/products.h"
#include "runtime/cuda/program_memory.h"
#include "runtime/cuda/session.h"
#include "runtime/cuda/state_memory.h"
#include "runtime/device.h"
#include "runtime/executable.h"

namespace gcomp::runtime::cuda {

class CudaExecutable final : public Executable {
 public:
  /// Throws as Device::load does.
  CudaExecutable(Program program, std::shared_ptr<CudaStateMemory> states, std::span<const std::byte> kernel_binary,
                 const DeviceOptions& options, MatmulTuning& tuning, int shards, Lane lane);
  ~CudaExecutable() override;

  using Executable::input;
  using Executable::output_bytes;
  std::span<std::byte> input(std::size_t index) override;
  std::span<const std::byte> next_input(std::size_t index) override;
  void keep_batches(int count, std::span<const std::size_t> inputs) override;
  std::span<std::byte> kept_input(int batch, std::size_t index) override;
  void use_batch(int batch) override;
  void run_shard(int shard) override;
  void synchronize() override;
  void plan_beside(BesidePlan plan) override;
  void wait(int age) override { finish(slot_of(age)); }
  int runs_in_flight() const override { return kSlots; }
  std::span<const std::byte> output_bytes(std::size_t index, int age) override;
  std::span<const std::byte> input_of_run(std::size_t index, int age) override;
  void time_steps(std::span<std::int64_t> nanoseconds) override;
  HeldBytes held_bytes() const override { return held_; }
  std::span<const std::byte> kernel_binary() const override { return kernels_.binary(); }

 private:
  /// Bytes of the io space that are copied at once.
  struct Range {
    std::int64_t begin = 0, end = 0;
  };
  static constexpr int kOwnInputs = -1;         // in place of a kept batch
  static constexpr std::int64_t kNotKept = -1;  // in place of an offset
  /// Steps from the first on.
  struct GraphPart {
    std::size_t first = 0;
    GraphExecutable graph;
  };
  struct Slot {
    PinnedMemory io, faults;
    std::vector<GraphPart> parts;  // in their order
    PinnedMemory shards;           // inputs of all of them, where there are several
    Event inputs_there, done;
    Event ran;                      // the last shard that used the slot's memory of the device, where there are several
    std::vector<char> holds_input;  // of each input: whether this slot's memory has its newest contents
    int batch = kOwnInputs;         // the kept one that its last run reads
    bool under_way = false;         // a run was queued and nobody has waited for it
  };

  std::vector<Range> ranges_of(std::span<const Port> ports) const;
  void run_products_once();
  void make_slot(int index);
  void capture_parts(int slot);
  GraphExecutable capture(int slot, std::size_t first, std::size_t last);
  void queue_launch(std::size_t step, const KernelLaunch& launch, int slot);
  MatmulBuffers library_buffers(const MatmulCall& call, const CublasLtMatmul& library, int slot) const;
  void queue_convolution(const ConvolutionCall& call, const CudnnConvolution& library, int slot);
  void queue_attention(const AttentionCall& call, const CudnnAttention& library, int slot);
  void queue_ones(const AttentionCall& call, int slot);
  void queue_product(const ProductBuffers& buffers, const GeneratedProduct& product, const std::string& origin, int slot);
  void queue_collective(const CollectiveCall& call, int slot);
  void queue_step(std::size_t step, int slot);
  void queue_begin();
  void queue_end(int slot);
  void queue_parts(int slot, bool last_shard);
  void queue_timed_steps(int slot, bool last_shard);
  void reach(PlanCursor& cursor, std::size_t steps);
  void follow(const CudaExecutable& other);
  void follow_other_lane();
  void place_batch();
  std::span<std::byte> host_input(std::size_t index, int slot);
  std::span<std::byte> input_of(std::size_t index, int slot, int batch);
  void carry_inputs(int slot);
  void queue_shard_inputs(int slot, int shard);
  void queue_shard(int slot, int shard);
  void queue_faults(int slot);
  void queue_inputs(int slot);
  void finish(int slot);
  void check_faults(int slot);
  int slot_of(int age) const;
  const std::string& origin(std::size_t step) const;
  const Driver& driver() const { return session_->driver(); }
  CUstream stream() const { return lane_ == Lane::beside ? session_->beside.stream.get() : session_->compute.get(); }

  SharedSession session_;
  ProductPlan products_;
  KernelSet kernels_;
  std::unique_ptr<ProgramMemory> memory_;
  HeldBytes held_;
  std::vector<Range> input_ranges_, output_ranges_;
  Lane lane_;
  BesidePlan plan_;                             // by steps
  std::vector<const CudaExecutable*> planned_;  // all that it names
  Event behind_;                                // on Lane::beside, what was queued before a run
  bool has_run_ = false;                        // likewise
  bool may_fault_ = false, check_steps_ = false;
  bool uses_host_ = true;  // what uses none of its memory may be queued any number of times
  std::string where_;      // of failures that no step can be named for
  Slot slots_[kSlots];
  int next_ = 0;        // slot of the next batch
  int next_graph_ = 0;  // slot on the device of the next shard, where there are several
  std::vector<std::int64_t> batch_offsets_;
  std::int64_t batch_bytes_ = 0;
  std::span<std::int64_t> times_;
  std::vector<PinnedMemory> kept_;          // batches
  std::vector<std::int64_t> kept_offsets_;  // of each input in those, or kNotKept
  int next_batch_ = kOwnInputs;             // which the next run reads
  std::vector<Event> clock_;                // around each step, where steps are timed
};

}  // namespace gcomp::runtime::cuda
