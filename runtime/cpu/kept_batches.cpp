// Batches of inputs beside the executable's own, for those who read data ahead.
#include <algorithm>

#include "ir/base/error.h"
#include "runtime/cpu/executable.h"

namespace gcomp::runtime::cpu {

void CpuExecutable::keep_batches(int count, std::span<const std::size_t> inputs) {
  kept_.clear();
  segments_.resize(own_segments_);
  pointers_.resize(own_pointers_);
  batch_ = next_batch_ = kOwnInputs;
  std::int64_t bytes = 0;
  std::vector<std::int64_t> offsets;
  for (const std::size_t input : inputs) {
    offsets.push_back(bytes);
    bytes += aligned_size(std::max<std::int64_t>(input_type(input).bytes(), 1));
  }
  for (int i = 0; i < count; ++i) {
    KeptBatch& batch = kept_.emplace_back();
    batch.memory = MemoryBlock(bytes, concat("a batch of the inputs of program '", program().name, "', read ahead"));
    batch.inputs.resize(program().inputs.size());
    for (std::size_t k = 0; k < inputs.size(); ++k) batch.inputs[inputs[k]] = batch.memory.data() + offsets[k];
    if (shards() == 1) prepare_steps(batch);
  }
}

/// Whether a step has one of the inputs that are kept among its operands.
bool CpuExecutable::reads(std::size_t step, const KeptBatch& batch) const {
  const auto is_kept = [&](int buffer) {
    for (std::size_t i = 0; i < batch.inputs.size(); ++i)
      if (batch.inputs[i] && program().inputs[i].buffer == buffer) return true;
    return false;
  };
  return visit_step(
      program().steps[step],
      [&](const KernelLaunch& launch) {
        return std::ranges::any_of(launch.segments,
                                   [&](const Segment& segment) { return std::ranges::any_of(segment.buffers, is_kept); });
      },
      [&](const MatmulCall& call) { return is_kept(call.a.buffer) || is_kept(call.b.buffer); },
      [&](const ConvolutionCall& call) { return is_kept(call.input) || is_kept(call.weight) || is_kept(call.output); },
      [](const AttentionCall&) { return false; }, [&](const CollectiveCall& call) { return is_kept(call.operand); });
}

void CpuExecutable::prepare_steps(KeptBatch& batch) {
  std::vector<std::byte*> own = addresses_;
  for (std::size_t i = 0; i < batch.inputs.size(); ++i)
    if (batch.inputs[i]) addresses_[static_cast<std::size_t>(program().inputs[i].buffer)] = batch.inputs[i];
  try {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (!reads(i, batch)) continue;
      PreparedStep& step = batch.steps.emplace_back(i, prepare_step(i)).second;
      if (auto* call = std::get_if<std::unique_ptr<LibraryCall>>(&step)) (*call)->bind(workspace_, pool_->size());
    }
  } catch (...) {
    addresses_ = std::move(own);
    throw;
  }
  addresses_ = std::move(own);
}

const CpuExecutable::KeptBatch& CpuExecutable::kept(int batch) const {
  check_internal(batch >= 0 && batch < std::ssize(kept_), "batch ", batch, " of ", kept_.size(), " of program '", program().name,
                 "'");
  return kept_[static_cast<std::size_t>(batch)];
}

std::span<std::byte> CpuExecutable::kept_input(int batch, std::size_t index) {
  check_internal(index < kept(batch).inputs.size() && kept(batch).inputs[index], "input ", index, " is not kept");
  return input_in(batch, index);
}

void CpuExecutable::use_batch(int batch) {
  kept(batch);
  next_batch_ = batch;
}

/// Of a kept batch where it has this input.
std::span<std::byte> CpuExecutable::input_in(int batch, std::size_t index) {
  const auto bytes = static_cast<std::size_t>(input_type(index).bytes());
  if (batch != kOwnInputs && kept(batch).inputs[index]) return {kept(batch).inputs[index], bytes};
  if (shards() > 1) return {whole_batch_.data() + batch_offsets_[index], bytes};
  return {address(program().inputs[index].buffer), bytes};
}

/// Steps are asked for in their order; `next_of_batch` counts those that the batch has of its own.
const CpuExecutable::PreparedStep& CpuExecutable::step_at(std::size_t step, std::size_t& next_of_batch) const {
  if (batch_ == kOwnInputs) return steps_[step];
  const auto& own = kept_[static_cast<std::size_t>(batch_)].steps;
  if (next_of_batch == own.size() || own[next_of_batch].first != step) return steps_[step];
  return own[next_of_batch++].second;
}

}  // namespace gcomp::runtime::cpu
