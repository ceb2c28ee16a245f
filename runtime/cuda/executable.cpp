#include "runtime/cuda/executable.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "runtime/collective.h"
#include "runtime/cuda/cudnn_choices.h"

namespace gcomp::runtime::cuda {
namespace {

bool overlaps_gap(const Buffer& buffer, std::int64_t begin, std::int64_t end) {
  return buffer.space == Space::io && buffer.type.bytes() > 0 && buffer.offset < end && buffer.offset + buffer.type.bytes() > begin;
}

}  // namespace

CudaExecutable::CudaExecutable(Program program, std::shared_ptr<CudaStateMemory> states, std::span<const std::byte> kernel_binary,
                               const DeviceOptions& options, MatmulTuning& tuning, int shards, Lane lane)
    : Executable(std::move(program), states, shards),
      session_(states->session()),
      products_(*session_, this->program(), kernel_binary, options, tuning),
      kernels_(session_->context, this->program(), used_kernels(this->program(), products_), kernel_binary, options),
      lane_(lane),
      check_steps_(options.check_steps),
      where_(concat("a run of program '", this->program().name, "'",
                    options.check_steps ? "" : " (its graph does not tell the step; --check-steps does)")) {
  const Program& p = this->program();
  for (const Step& step : p.steps)
    visit_step(
        step, [](const KernelLaunch&) {}, [](const MatmulCall&) {}, [](const ConvolutionCall&) {}, [](const AttentionCall&) {},
        [&](const CollectiveCall& call) { require_ranks(options.communicator, call, p.name); });
  session_->context->make_current();
  MemoryNeeds needs = memory_needs(p, *states, products_.workspace_bytes(), table_bytes(p));
  if (shared_arena(*session_, p.arena_bytes, lane)) needs.arena = 0;
  require_memory(*session_->context, p, needs);
  held_ = {needs.arena, needs.constants, needs.io, needs.workspace + needs.tables};
  states->bind(p);
  memory_ = std::make_unique<ProgramMemory>(*session_, p, *states, products_.workspace_bytes(), lane);
  input_ranges_ = ranges_of(p.inputs);
  kept_offsets_.assign(p.inputs.size(), kNotKept);
  output_ranges_ = ranges_of(p.outputs);
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    may_fault_ |= fault_of(p.steps[i]) != 0;
    for (const GridKernel& launch : planned_launches(p, i, products_))
      allow_shared_memory(*session_->context, kernels_.function(launch.kernel), launch.grid, origin(i));
  }
  uses_host_ = may_fault_ || !p.inputs.empty() || !p.outputs.empty();
  if (shards > 1) place_batch();
  if (!driver().loads_in_capture()) run_products_once();
  for (int slot = 0; slot < kSlots; ++slot) make_slot(slot);
  if (lane != Lane::beside) return;
  behind_ = make_event(session_->context, CU_EVENT_DISABLE_TIMING);
  session_->beside.programs.push_back(this);
}

// Memory must not go while the GPU may still use it.
CudaExecutable::~CudaExecutable() {
  session_->context->try_make_current();
  std::erase(session_->beside.programs, this);
  if (session_->nccl) try {
      wait_for_stream(*session_, stream(), where_);
    } catch (const DeviceError&) {  // what hung goes on
    }
  driver().functions().cuStreamSynchronize(session_->copy.get());
  driver().functions().cuStreamSynchronize(stream());
}

const std::string& CudaExecutable::origin(std::size_t step) const { return origin_of(program().steps[step]); }

/// Neighbours are copied together, gaps of alignment included.
std::vector<CudaExecutable::Range> CudaExecutable::ranges_of(std::span<const Port> ports) const {
  std::vector<Range> all, joined;
  for (const Port& port : ports) {
    const Buffer& buffer = program().buffers[static_cast<std::size_t>(port.buffer)];
    if (buffer.type.bytes() > 0) all.push_back({buffer.offset, buffer.offset + buffer.type.bytes()});
  }
  std::sort(all.begin(), all.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (const Range& range : all) {
    const auto foreign = [&](const Buffer& buffer) { return overlaps_gap(buffer, joined.back().end, range.begin); };
    const bool near = !joined.empty() && range.begin - joined.back().end < 256;
    if (near && std::none_of(program().buffers.begin(), program().buffers.end(), foreign)) joined.back().end = range.end;
    else joined.push_back(range);
  }
  return joined;
}

/// The library loads their kernels then, and not within the capture. What they compute of whatever lies in the arena is lost; a
/// product that stores into a state is left out.
void CudaExecutable::run_products_once() {
  const auto is_state = [&](int buffer) { return program().buffers[static_cast<std::size_t>(buffer)].space == Space::state; };
  const auto run_once = [&](std::size_t step, const MatmulCall& call) {
    const CublasLtMatmul* library = products_.library(step);
    if (!library) return;
    const LibraryEpilogue* epilogue = library->has_epilogue() ? &*call.epilogue->library : nullptr;
    if (is_state(call.c.buffer) || (epilogue && epilogue->bias && is_state(*epilogue->bias) && is_bias_gradient(epilogue->kind)) ||
        (epilogue && epilogue->aux && is_state(*epilogue->aux)))
      return;
    products_.queue(step, call, library_buffers(call, *library, 0), memory_->workspace(), stream());
  };
  for (std::size_t i = 0; i < program().steps.size(); ++i)
    visit_step(
        program().steps[i], [](const KernelLaunch&) {}, [&](const MatmulCall& call) { run_once(i, call); },
        [&](const ConvolutionCall& call) {
          const CudnnConvolution* library = products_.convolution(i);
          if (library && !is_state(product_buffers(call).result)) queue_convolution(call, *library, 0);
        },
        [&](const AttentionCall& call) {
          if (const CudnnAttention* library = products_.attention(i)) queue_attention(call, *library, 0);
        },
        [](const CollectiveCall&) {});
  GCOMP_CUDA(driver(), program().name, cuStreamSynchronize, stream());
}

// ---- one slot's graph ----

void CudaExecutable::make_slot(int index) {
  Slot& slot = slots_[index];
  const SharedContext& context = session_->context;
  if (shards() == 1)
    slot.io = PinnedMemory(context, program().io_bytes, concat("inputs and outputs of program '", program().name, "'"));
  else slot.shards = PinnedMemory(context, batch_bytes_, concat("inputs of a batch for program '", program().name, "'"));
  slot.faults = PinnedMemory(context, memory_->fault_bytes(), "fault flags");
  slot.inputs_there = make_event(context, CU_EVENT_DISABLE_TIMING);
  slot.done = make_event(context, CU_EVENT_DISABLE_TIMING);
  if (shards() > 1) slot.ran = make_event(context, CU_EVENT_DISABLE_TIMING);
  slot.holds_input.assign(program().inputs.size(), 1);
  capture_parts(index);
}

/// Cut where the plan has something begin, or wait: between two graphs streams can meet.
void CudaExecutable::capture_parts(int slot) {
  const std::size_t steps = program().steps.size();
  std::set<std::size_t> cuts = {0};
  for (const BesidePlan::Start& start : plan_.starts) cuts.insert(start.after);
  for (const BesidePlan::Need& need : plan_.needs) cuts.insert(*need.before);
  cuts.erase(cuts.lower_bound(std::max<std::size_t>(steps, 1)), cuts.end());
  std::vector<GraphPart>& parts = slots_[slot].parts;
  parts.clear();
  for (auto cut = cuts.begin(); cut != cuts.end(); ++cut) {
    const std::size_t end = std::next(cut) == cuts.end() ? steps : *std::next(cut);
    parts.push_back({*cut, capture(slot, *cut, end)});
  }
}

GraphExecutable CudaExecutable::capture(int slot, std::size_t first, std::size_t last) {
  // Relaxed: a library may load its kernels on their first use.
  GCOMP_CUDA(driver(), program().name, cuStreamBeginCapture_v2, stream(), CU_STREAM_CAPTURE_MODE_RELAXED);
  CUgraph graph = nullptr;
  try {
    if (shards() == 1 && first == 0) queue_begin();
    for (std::size_t i = first; i < last; ++i) queue_step(i, slot);
    if (shards() == 1 && last == program().steps.size()) queue_end(slot);
  } catch (...) {
    driver().functions().cuStreamEndCapture(stream(), &graph);
    const Graph dropped(session_->context, graph);
    throw;
  }
  const CUresult result = driver().functions().cuStreamEndCapture(stream(), &graph);
  const Graph owned(session_->context, graph);
  driver().check(result, "cuStreamEndCapture", program().name);
  return instantiate(session_->context, owned, program().name);
}

void CudaExecutable::queue_begin() {
  if (!may_fault_) return;
  GCOMP_CUDA(driver(), "fault flags", cuMemsetD8Async, memory_->fault_flag(0), 0, static_cast<std::size_t>(memory_->fault_bytes()),
             stream());
}

void CudaExecutable::queue_end(int slot) {
  for (const Range& range : output_ranges_)
    GCOMP_CUDA(driver(), "outputs", cuMemcpyDtoHAsync_v2, slots_[slot].io.data() + range.begin,
               memory_->io(slot) + static_cast<CUdeviceptr>(range.begin), static_cast<std::size_t>(range.end - range.begin),
               stream());
  queue_faults(slot);
}

void CudaExecutable::queue_faults(int slot) {
  if (!may_fault_) return;
  GCOMP_CUDA(driver(), "fault flags", cuMemcpyDtoHAsync_v2, slots_[slot].faults.data(), memory_->fault_flag(0),
             static_cast<std::size_t>(memory_->fault_bytes()), stream());
}

// ---- runs ----

void CudaExecutable::place_batch() {
  for (std::size_t i = 0; i < program().inputs.size(); ++i) {
    batch_offsets_.push_back(batch_bytes_);
    batch_bytes_ += aligned_size(input_type(i).bytes());
  }
}

std::span<std::byte> CudaExecutable::host_input(std::size_t index, int slot) {
  std::byte* data =
      shards() == 1 ? slots_[slot].io.data() + input_buffer(index).offset : slots_[slot].shards.data() + batch_offsets_[index];
  return {data, static_cast<std::size_t>(input_type(index).bytes())};
}

std::span<std::byte> CudaExecutable::input(std::size_t index) {
  const std::span<std::byte> memory = host_input(index, next_);
  finish(next_);
  slots_[next_].holds_input[index] = 1;
  slots_[1 - next_].holds_input[index] = 0;
  return memory;
}

std::span<const std::byte> CudaExecutable::next_input(std::size_t index) {
  return input_of(index, slots_[next_].holds_input[index] ? next_ : 1 - next_, next_batch_);
}

void CudaExecutable::carry_inputs(int slot) {
  for (std::size_t i = 0; i < program().inputs.size(); ++i) {
    if (std::exchange(slots_[slot].holds_input[i], 1)) continue;
    const std::span<std::byte> input = host_input(i, slot);
    std::memcpy(input.data(), host_input(i, 1 - slot).data(), input.size());
  }
}

void CudaExecutable::queue_inputs(int slot) {
  if (program().inputs.empty()) return;
  const CUstream copy = session_->copy.get();
  for (std::size_t i = 0; i < kept_offsets_.size(); ++i) {
    if (kept_offsets_[i] == kNotKept) continue;
    const std::span<const std::byte> input = input_of(i, slot, slots_[slot].batch);
    if (!input.empty())
      GCOMP_CUDA(driver(), where_, cuMemcpyHtoDAsync_v2, memory_->io(slot) + static_cast<CUdeviceptr>(input_buffer(i).offset),
                 input.data(), input.size(), copy);
  }
  for (const Range& range : input_ranges_)
    GCOMP_CUDA(driver(), where_, cuMemcpyHtoDAsync_v2, memory_->io(slot) + static_cast<CUdeviceptr>(range.begin),
               slots_[slot].io.data() + range.begin, static_cast<std::size_t>(range.end - range.begin), copy);
  GCOMP_CUDA(driver(), where_, cuEventRecord, slots_[slot].inputs_there.get(), copy);
  GCOMP_CUDA(driver(), where_, cuStreamWaitEvent, stream(), slots_[slot].inputs_there.get(), 0);
}

/// Into the memory of the device that the shard before the last had.
void CudaExecutable::queue_shard_inputs(int slot, int shard) {
  if (program().inputs.empty()) return;
  const CUstream copy = session_->copy.get();
  const Slot& graph = slots_[next_graph_];
  GCOMP_CUDA(driver(), where_, cuStreamWaitEvent, copy, graph.ran.get(), 0);
  for (std::size_t i = 0; i < program().inputs.size(); ++i) {
    const Buffer& buffer = input_buffer(i);
    const auto bytes = static_cast<std::size_t>(buffer.type.bytes());
    const std::size_t first = buffer.type.shape.empty() ? 0 : static_cast<std::size_t>(shard) * bytes;
    if (bytes > 0)
      GCOMP_CUDA(driver(), where_, cuMemcpyHtoDAsync_v2, memory_->io(next_graph_) + static_cast<CUdeviceptr>(buffer.offset),
                 input_of(i, slot, slots_[slot].batch).data() + first, bytes, copy);
  }
  GCOMP_CUDA(driver(), where_, cuEventRecord, graph.inputs_there.get(), copy);
  GCOMP_CUDA(driver(), where_, cuStreamWaitEvent, stream(), graph.inputs_there.get(), 0);
}

void CudaExecutable::queue_shard(int slot, int shard) {
  if (shard == 0) queue_begin();
  queue_shard_inputs(slot, shard);
  if (check_steps_) queue_timed_steps(next_graph_, shard + 1 == shards());
  else queue_parts(next_graph_, shard + 1 == shards());
  GCOMP_CUDA(driver(), where_, cuEventRecord, slots_[next_graph_].ran.get(), stream());
  next_graph_ = 1 - next_graph_;
  if (shard + 1 < shards()) return;
  queue_faults(slot);
  GCOMP_CUDA(driver(), where_, cuEventRecord, slots_[slot].done.get(), stream());
  slots_[slot].under_way = true;
  next_ = 1 - slot;
}

void CudaExecutable::run_shard(int shard) {
  session_->context->make_current();
  const int slot = next_;
  if (shard == 0) {
    finish(slot);
    carry_inputs(slot);
    slots_[slot].batch = std::exchange(next_batch_, kOwnInputs);
  }
  follow_other_lane();
  if (shards() > 1) return queue_shard(slot, shard);
  queue_inputs(slot);
  if (times_.empty() && !check_steps_) {
    queue_parts(slot, true);
  } else {
    queue_begin();
    queue_timed_steps(slot, true);
    queue_end(slot);
  }
  GCOMP_CUDA(driver(), where_, cuEventRecord, slots_[slot].done.get(), stream());
  if (lane_ == Lane::beside) GCOMP_CUDA(driver(), where_, cuEventRecord, session_->beside.last.get(), stream());
  slots_[slot].under_way = uses_host_;
  next_ = 1 - slot;
  if (times_.empty()) return;
  slots_[slot].under_way = true;
  finish(slot);
  for (std::size_t i = 0; i < times_.size(); ++i) {
    float milliseconds = 0;
    GCOMP_CUDA(driver(), where_, cuEventElapsedTime, &milliseconds, clock_[i].get(), clock_[i + 1].get());
    times_[i] += static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
  }
}

/// Without a graph: events between the steps, or a wait after each.
void CudaExecutable::queue_timed_steps(int slot, bool last_shard) {
  PlanCursor cursor(plan_, last_shard);
  if (!times_.empty()) GCOMP_CUDA(driver(), where_, cuEventRecord, clock_[0].get(), stream());
  for (std::size_t i = 0; i < program().steps.size(); ++i) {
    reach(cursor, i);
    queue_step(i, slot);
    if (check_steps_) wait_for_stream(*session_, stream(), origin(i));
    if (!times_.empty()) GCOMP_CUDA(driver(), where_, cuEventRecord, clock_[i + 1].get(), stream());
  }
  reach(cursor, program().steps.size());
}

void CudaExecutable::queue_parts(int slot, bool last_shard) {
  PlanCursor cursor(plan_, last_shard);
  for (const GraphPart& part : slots_[slot].parts) {
    reach(cursor, part.first);
    GCOMP_CUDA(driver(), where_, cuGraphLaunch, part.graph.get(), stream());
  }
  reach(cursor, program().steps.size());
}

// ---- beside other programs ----

void CudaExecutable::plan_beside(BesidePlan plan) {
  planned_.clear();
  for (const Executable* one : plan.programs()) {
    const auto* program = dynamic_cast<const CudaExecutable*>(one);
    check_internal(program && program->session_ == session_ && program->lane_ == Lane::beside, "plan_beside: program '",
                   one->program().name, "' does not run beside '", this->program().name, "'");
    planned_.push_back(program);
  }
  plan_ = by_steps(std::move(plan));
  session_->context->make_current();
  synchronize();
  for (int slot = 0; slot < kSlots; ++slot) capture_parts(slot);
}

void CudaExecutable::reach(PlanCursor& cursor, std::size_t steps) {
  cursor.reach(
      steps, [](Executable& program) { program.run(); },
      [this](Executable& program) { follow(static_cast<CudaExecutable&>(program)); });
}

/// What is queued from now on comes behind the other program's last run.
void CudaExecutable::follow(const CudaExecutable& other) {
  if (other.has_run_) GCOMP_CUDA(driver(), where_, cuStreamWaitEvent, stream(), other.slots_[other.slot_of(0)].done.get(), 0);
}

/// A run beside others comes behind all that was queued before it; one of the others behind what its plan does not know.
void CudaExecutable::follow_other_lane() {
  if (lane_ == Lane::beside) {
    GCOMP_CUDA(driver(), where_, cuEventRecord, behind_.get(), session_->compute.get());
    GCOMP_CUDA(driver(), where_, cuStreamWaitEvent, stream(), behind_.get(), 0);
    has_run_ = true;
  } else if (planned_.empty()) {
    follow_beside(*session_, where_);
  } else {
    for (const CudaExecutable* program : session_->beside.programs)
      if (std::ranges::find(planned_, program) == planned_.end()) follow(*program);
  }
}

/// Waits for the slot's run, so that its memory may be read and written.
void CudaExecutable::finish(int index) {
  Slot& slot = slots_[index];
  if (!slot.under_way) return;
  session_->context->make_current();
  wait_for(*session_, slot.done.get(), where_);
  slot.under_way = false;
  if (may_fault_) check_faults(index);
}

void CudaExecutable::check_faults(int slot) {
  const auto* flags = reinterpret_cast<const int*>(slots_[slot].faults.data());
  for (std::size_t i = 0; i < program().steps.size(); ++i) {
    if (flags[i] == 0) continue;
    const int fault = fault_of(program().steps[i]);
    check_internal(fault != 0, origin(i), ": a fault of a step that raises none");
    throw UserError(concat(origin(i), ": ", program().faults[static_cast<std::size_t>(fault - 1)]));
  }
}

void CudaExecutable::synchronize() {
  finish(next_);  // the older run
  finish(1 - next_);
}

int CudaExecutable::slot_of(int age) const {
  check_internal(age >= 0 && age < kSlots, "a run ", age, " before the last: ", kSlots, " are kept");
  return age == 0 ? 1 - next_ : next_;
}

std::span<const std::byte> CudaExecutable::output_bytes(std::size_t index, int age) {
  const Buffer& buffer = output_buffer(index);
  finish(slot_of(age));
  return {slots_[slot_of(age)].io.data() + buffer.offset, static_cast<std::size_t>(buffer.type.bytes())};
}

std::span<const std::byte> CudaExecutable::input_of_run(std::size_t index, int age) {
  return input_of(index, slot_of(age), slots_[slot_of(age)].batch);
}

void CudaExecutable::time_steps(std::span<std::int64_t> nanoseconds) {
  check_internal(shards() == 1, "time_steps: of a program that runs in shards");
  check_internal(nanoseconds.empty() || nanoseconds.size() == program().steps.size(), "time_steps: ", nanoseconds.size(),
                 " entries for ", program().steps.size(), " steps");
  synchronize();
  times_ = nanoseconds;
  while (!nanoseconds.empty() && clock_.size() <= nanoseconds.size())
    clock_.push_back(make_event(session_->context, CU_EVENT_DEFAULT));
}

}  // namespace gcomp::runtime::cuda
