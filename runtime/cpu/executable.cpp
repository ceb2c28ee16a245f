#include "runtime/cpu/executable.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <utility>

#include "ir/base/error.h"
#include "runtime/collective.h"
#include "runtime/cpu/collective.h"
#include "runtime/cpu/convolution.h"
#include "runtime/cpu/matmul.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kCacheLine = 64;

/// The buffer's place in a space of `space_bytes`; throws InternalError where it does not fit.
std::byte* place(const MemoryBlock& block, const Buffer& buffer) {
  check_internal(buffer.offset >= 0 && buffer.offset % kCacheLine == 0 && buffer.offset + buffer.type.bytes() <= block.bytes(),
                 "buffer '", buffer.name, "' of ", buffer.type.bytes(), " bytes at ", buffer.offset, " leaves its space of ",
                 block.bytes(), " bytes");
  return block.data() ? block.data() + buffer.offset : nullptr;
}

}  // namespace

CpuExecutable::CpuExecutable(Program program, std::shared_ptr<CpuStateMemory> states, std::unique_ptr<KernelLibrary> kernels,
                             const Place& place, const CallBackend& backend, int shards)
    : Executable(std::move(program), states, shards),
      kernels_(std::move(kernels)),
      pool_(place.pool),
      backend_(backend),
      communicator_(place.communicator),
      beside_(place.beside),
      lane_(place.lane) {
  states->bind(this->program());
  arena_ = MemoryBlock(this->program().arena_bytes, "the arena of program '" + this->program().name + "'");
  constants_ = MemoryBlock(this->program().constant_bytes, "the constants of program '" + this->program().name + "'");
  io_ = MemoryBlock(this->program().io_bytes, "the inputs and outputs of program '" + this->program().name + "'");
  faults_ = MemoryBlock(pool_->size() * kCacheLine, "fault flags");
  place_buffers(*states);
  find_moments();
  if (shards > 1) place_batch();
  prepare_steps();
}

CpuExecutable::~CpuExecutable() {
  if (lane_ == Lane::beside) beside_->finish();
}

void CpuExecutable::place_buffers(const CpuStateMemory& states) {
  const StateBuffers held(program());
  for (const Buffer& buffer : program().buffers) {
    switch (buffer.space) {
      case Space::arena: addresses_.push_back(place(arena_, buffer)); break;
      case Space::state: {
        const Buffer* holder = held.holder(buffer);
        check_internal(holder, "buffer '", buffer.name, "' lies within no state");
        addresses_.push_back(states.address(holder->name) + (buffer.offset - holder->offset));
        break;
      }
      case Space::io: addresses_.push_back(place(io_, buffer)); break;
      case Space::constant:
        check_internal(buffer.contents.type() == buffer.type, "constant '", buffer.name, "' is ", to_string(buffer.type),
                       ", its contents are ", to_string(buffer.contents.type()));
        addresses_.push_back(place(constants_, buffer));
        if (buffer.type.bytes() > 0)
          std::memcpy(addresses_.back(), buffer.contents.data(), static_cast<std::size_t>(buffer.type.bytes()));
        break;
    }
  }
}

void CpuExecutable::place_batch() {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < program().inputs.size(); ++i) {
    batch_offsets_.push_back(bytes);
    bytes += aligned_size(input_type(i).bytes());
  }
  whole_batch_ = MemoryBlock(bytes, "the inputs of a batch for program '" + program().name + "'");
}

void CpuExecutable::find_moments() {
  const StateBuffers held(program());
  std::set<const Buffer*> moments;
  for (const State& state : program().states)
    if (state.role == StateRole::optimizer) moments.insert(&program().buffers[static_cast<std::size_t>(state.buffer)]);
  for (const Buffer& buffer : program().buffers)
    moments_.push_back(buffer.space == Space::state && moments.contains(held.holder(buffer)));
}

/// Kernels and library calls know one place of each input.
void CpuExecutable::take_shard(int shard) {
  for (std::size_t i = 0; i < program().inputs.size(); ++i) {
    const TensorType& type = input_buffer(i).type;
    const std::int64_t first = type.shape.empty() ? 0 : shard * type.bytes();
    if (type.bytes() > 0)
      std::memcpy(address(program().inputs[i].buffer), input_in(batch_, i).data() + first, static_cast<std::size_t>(type.bytes()));
  }
}

std::byte* CpuExecutable::address(int buffer) const {
  check_internal(buffer >= 0 && static_cast<std::size_t>(buffer) < addresses_.size(), "buffer ", buffer, " of ", addresses_.size());
  return addresses_[static_cast<std::size_t>(buffer)];
}

CpuExecutable::PreparedLaunch CpuExecutable::prepare(const KernelLaunch& launch) {
  const auto& kernels = program().kernels;
  check_internal(launch.kernel >= 0 && static_cast<std::size_t>(launch.kernel) < kernels.size(), launch.origin, ": kernel ",
                 launch.kernel, " of ", kernels.size());
  check_internal(launch.fault >= 0 && static_cast<std::size_t>(launch.fault) <= program().faults.size(), launch.origin, ": fault ",
                 launch.fault, " of ", program().faults.size());
  PreparedLaunch prepared;
  prepared.function = kernels_->function(kernels[static_cast<std::size_t>(launch.kernel)].name);
  prepared.first_segment = segments_.size();
  prepared.launch = &launch;
  for (const Segment& segment : launch.segments) {
    const std::int64_t first = prepared.tasks;
    prepared.tasks += segment.tasks;
    segments_.push_back({pointers_.size(), static_cast<long>(segment.extent), first, prepared.tasks});
    for (const int buffer : segment.buffers) {
      pointers_.push_back(address(buffer));
      prepared.updates |= moments_[static_cast<std::size_t>(buffer)] != 0;
    }
  }
  prepared.last_segment = segments_.size();
  return prepared;
}

std::unique_ptr<LibraryCall> CpuExecutable::prepare(const MatmulCall& call) {
  return make_matmul(call, {address(call.a.buffer), address(call.b.buffer), address(call.c.buffer), backend_});
}

std::unique_ptr<LibraryCall> CpuExecutable::prepare(const ConvolutionCall& call) {
  return make_convolution(call, {address(call.input), address(call.weight), address(call.output), backend_});
}

std::unique_ptr<LibraryCall> CpuExecutable::prepare(const AttentionCall& call) {
  throw InternalError(concat(call.origin, ": an attention as a call, which is for CUDA alone"));
}

std::unique_ptr<LibraryCall> CpuExecutable::prepare(const CollectiveCall& call) {
  require_ranks(communicator_, call, program().name);
  return make_collective(call, address(call.operand), address(call.result), *communicator_);
}

void CpuExecutable::prepare_steps() {
  WorkspaceSize size;
  for (std::size_t i = 0; i < program().steps.size(); ++i) {
    steps_.push_back(prepare_step(i));
    if (const auto* call = std::get_if<std::unique_ptr<LibraryCall>>(&steps_.back())) size.include((*call)->workspace());
  }
  const std::int64_t shared = aligned_size(size.shared);
  // A page more than needed, so that threads do not meet in the same cache sets.
  const std::int64_t stride = size.per_thread ? aligned_size(size.per_thread) + 4096 + kCacheLine : 0;
  scratch_ = MemoryBlock(shared + stride * pool_->size(), "scratch memory of matrix products and convolutions");
  workspace_ = {scratch_.data(), scratch_.data() ? scratch_.data() + shared : nullptr, stride};
  for (PreparedStep& step : steps_)
    if (auto* call = std::get_if<std::unique_ptr<LibraryCall>>(&step)) (*call)->bind(workspace_, pool_->size());
  own_segments_ = segments_.size();
  own_pointers_ = pointers_.size();
}

CpuExecutable::PreparedStep CpuExecutable::prepare_step(std::size_t step) {
  return std::visit([this](const auto& one) -> PreparedStep { return prepare(one); }, program().steps[step]);
}

void CpuExecutable::run_tasks(const PreparedLaunch& prepared, std::int64_t first, std::int64_t last, int* fault) const {
  for (std::size_t i = prepared.first_segment; i < prepared.last_segment; ++i) {
    const PreparedSegment& segment = segments_[i];
    const std::int64_t begin = std::max(first, segment.first_task), end = std::min(last, segment.last_task);
    if (begin >= end) continue;
    prepared.function(pointers_.data() + segment.buffers, segment.extent, static_cast<long>(begin - segment.first_task),
                      static_cast<long>(end - segment.first_task), fault);
  }
}

/// Moments decay to numbers below the normal ones where no gradient comes any more, and stay there: to an update they are zeros, as
/// to library calls. The functions of other kernels have their values everywhere.
void CpuExecutable::run_launch(const PreparedLaunch& prepared) {
  pool_->run(prepared.tasks, [&](std::int64_t first, std::int64_t last, int thread) {
    int* fault = reinterpret_cast<int*>(faults_.data() + thread * kCacheLine);
    if (prepared.updates) return run_tasks(prepared, first, last, fault);
    const SubnormalsKept kept;
    run_tasks(prepared, first, last, fault);
  });
  if (prepared.launch->fault != 0) check_faults(*prepared.launch);
}

void CpuExecutable::check_faults(const KernelLaunch& launch) {
  bool raised = false;
  for (int thread = 0; thread < pool_->size(); ++thread) {
    int* fault = reinterpret_cast<int*>(faults_.data() + thread * kCacheLine);
    raised |= std::exchange(*fault, 0) != 0;
  }
  if (raised) throw UserError(concat(launch.origin, ": ", program().faults[static_cast<std::size_t>(launch.fault - 1)]));
}

void CpuExecutable::run_step(const PreparedStep& step) {
  std::visit(Overloaded{[&](const PreparedLaunch& launch) { run_launch(launch); },
                        [&](const std::unique_ptr<LibraryCall>& call) { call->run(*pool_); }},
             step);
}

void CpuExecutable::plan_beside(BesidePlan plan) {
  planned_.clear();
  for (const Executable* one : plan.programs()) {
    const auto* program = dynamic_cast<const CpuExecutable*>(one);
    check_internal(program && program->beside_ == beside_ && program->lane_ == Lane::beside, "plan_beside: program '",
                   one->program().name, "' does not run beside '", this->program().name, "'");
    planned_.push_back(program);
  }
  plan_ = by_steps(std::move(plan));
}

void CpuExecutable::synchronize() {
  if (lane_ == Lane::beside) beside_->wait(started_);
}

void CpuExecutable::work() { run_steps(false); }

void CpuExecutable::run_shard(int shard) {
  if (lane_ == Lane::beside) {
    started_ = beside_->start(*this);
    if (!times_.empty()) synchronize();  // who times it reads the times after the run
    return;
  }
  beside_->wait_for_others(planned_);
  if (shard == 0) batch_ = std::exchange(next_batch_, kOwnInputs);
  if (shards() > 1) take_shard(shard);
  run_steps(shard + 1 == shards());
}

void CpuExecutable::run_steps(bool last_shard) {
  PlanCursor cursor(plan_, last_shard);
  const auto reach = [&](std::size_t steps) {
    cursor.reach(
        steps, [](Executable& program) { program.run(); }, [](Executable& program) { program.synchronize(); });
  };
  std::size_t of_batch = 0;
  auto before = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    reach(i);
    run_step(step_at(i, of_batch));
    if (times_.empty()) continue;
    const auto after = std::chrono::steady_clock::now();
    times_[i] += std::chrono::duration_cast<std::chrono::nanoseconds>(after - before).count();
    before = after;
  }
  reach(steps_.size());
}

std::span<std::byte> CpuExecutable::input(std::size_t index) { return input_in(kOwnInputs, index); }

std::span<const std::byte> CpuExecutable::input_of_run(std::size_t index, int age) {
  check_internal(age == 0, "input_of_run: the CPU keeps no run before the last");
  return input_in(batch_, index);
}

std::span<const std::byte> CpuExecutable::output_bytes(std::size_t index, int age) {
  check_internal(age == 0, "output_bytes: the CPU keeps no run before the last");
  const Buffer& buffer = output_buffer(index);
  return {address(program().outputs[index].buffer), static_cast<std::size_t>(buffer.type.bytes())};
}

void CpuExecutable::time_steps(std::span<std::int64_t> nanoseconds) {
  check_internal(nanoseconds.empty() || nanoseconds.size() == steps_.size(), "time_steps: ", nanoseconds.size(), " entries for ",
                 steps_.size(), " steps");
  synchronize();
  times_ = nanoseconds;
}

std::span<const std::byte> CpuExecutable::kernel_binary() const {
  return kernels_ ? kernels_->object() : std::span<const std::byte>();
}

}  // namespace gcomp::runtime::cpu
