// A Program that is loaded on a device and can run. What a training loop sees of any device:
//
//   auto device = open_device(DeviceRequest::automatic, {});
//   auto states = device->allocate_states();
//   auto step = device->load(program, states);
//   step->set_input("x", batch);  step->run();  Tensor loss = step->output("loss");
//
// An executable and its states belong to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ir/base/tensor.h"
#include "runtime/beside_plan.h"
#include "runtime/program.h"
#include "runtime/state_memory.h"

namespace gcomp::runtime {

/// Bytes of a device's memory.
struct HeldBytes {
  std::int64_t arena = 0;  ///< 0 where it lies in that of a program which was loaded before
  std::int64_t constants = 0, inputs_and_outputs = 0;
  std::int64_t workspace = 0;  ///< of library calls, and what kernels report in
};

class Executable {
 public:
  virtual ~Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  const Program& program() const { return program_; }
  StateMemory& states() { return *states_; }

  /// Position in Program::inputs; throws UserError listing the inputs where there is none of this name.
  std::size_t input_index(std::string_view name) const;
  std::size_t output_index(std::string_view name) const;
  const Buffer& input_buffer(std::size_t index) const;
  const Buffer& output_buffer(std::size_t index) const;

  /// Into how many shards of consecutive rows a batch is cut. With more than one, a batch takes a run for each, and inputs with
  /// dimensions are those of the whole batch: each run reads its part, and scalars are the same for all. There are no outputs then.
  int shards() const { return shards_; }
  /// Of the whole batch; input_buffer() has the type of a shard.
  const TensorType& input_type(std::size_t index) const { return input_types_[index]; }

  /// Host memory that the next run() reads, dense row-major; all of it must be written. Ask anew for each run: an asynchronous
  /// device still reads the memory of the last one. An input that is not asked for keeps its contents from run to run.
  virtual std::span<std::byte> input(std::size_t index) = 0;
  std::span<std::byte> input(std::string_view name) { return input(input_index(name)); }
  /// What the next run would read there, as it was written last.
  virtual std::span<const std::byte> next_input(std::size_t index) = 0;

  /// Makes host memory for `count` batches of these inputs beside input(), or lets go of it (0): any thread may write it while runs
  /// go on. Pinned on a GPU. Waits for all runs; what was there before is gone. Throws as Device::load does where there is too
  /// little memory.
  virtual void keep_batches(int count, std::span<const std::size_t> inputs) = 0;
  virtual std::span<std::byte> kept_input(int batch, std::size_t index) = 0;
  /// The next run, or all shards of it, reads those inputs from this batch, which must stay as it is until that run was waited for.
  /// The run after reads input() again.
  virtual void use_batch(int batch) = 0;

  /// Throws UserError where dtype or shape differ from the program's.
  void set_input(std::size_t index, const Tensor& value);
  void set_input(std::string_view name, const Tensor& value) { set_input(input_index(name), value); }

  /// Runs all steps once; on an asynchronous device it returns as soon as they are queued. Throws UserError where a kernel raised
  /// a fault (on an asynchronous device, synchronize() or output() may throw it instead).
  void run() { run_shard(0); }
  /// The same for one shard of a batch, which are run in their order from 0 on.
  virtual void run_shard(int shard) = 0;
  /// Waits for all runs.
  virtual void synchronize() = 0;

  /// From now on runs start and await other programs so. Where nothing was planned, all that run beside are done first.
  virtual void plan_beside(BesidePlan plan) = 0;

  /// How many runs (of batches) may be queued before the results of the first are taken: 1 where run() computes at once.
  virtual int runs_in_flight() const { return 1; }
  /// Waits for the last batch, or the one `age` before it; throws the fault that it raised.
  virtual void wait(int age) = 0;
  /// What the last run wrote (`age` 0), or the one before it (`age` 1, where two runs may be in flight); waits for that run alone.
  /// Valid until it is no longer among the last runs_in_flight().
  virtual std::span<const std::byte> output_bytes(std::size_t index, int age) = 0;
  std::span<const std::byte> output_bytes(std::size_t index) { return output_bytes(index, 0); }
  /// What that run read, for as long as no input is written for the run after the last.
  virtual std::span<const std::byte> input_of_run(std::size_t index, int age) = 0;
  Tensor output(std::size_t index);
  Tensor output(std::string_view name) { return output(output_index(name)); }

  /// From now on each run() adds the time of each step to the entry of its index. An empty span, as at the start, turns that off.
  /// The memory stays the caller's.
  virtual void time_steps(std::span<std::int64_t> nanoseconds) = 0;

  /// What it holds of the device's memory beside its states, known since it was loaded.
  virtual HeldBytes held_bytes() const = 0;

  /// The compiled kernels, for an artifact that must load without a compiler.
  virtual std::span<const std::byte> kernel_binary() const = 0;

 protected:
  Executable(Program program, std::shared_ptr<StateMemory> states, int shards);
  const std::shared_ptr<StateMemory>& shared_states() const { return states_; }

 private:
  Program program_;
  std::shared_ptr<StateMemory> states_;
  int shards_;
  std::vector<TensorType> input_types_;
};

}  // namespace gcomp::runtime
