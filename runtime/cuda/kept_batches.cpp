// Batches of inputs beside those of the two slots, pinned, for those who read data ahead.
#include <algorithm>

#include "runtime/cuda/executable.h"

namespace gcomp::runtime::cuda {

void CudaExecutable::keep_batches(int count, std::span<const std::size_t> inputs) {
  session_->context->make_current();
  synchronize();
  kept_.clear();
  std::ranges::fill(kept_offsets_, kNotKept);
  for (Slot& slot : slots_) slot.batch = kOwnInputs;
  next_batch_ = kOwnInputs;
  std::int64_t bytes = 0;
  std::vector<Port> others = program().inputs;
  if (count > 0)
    for (const std::size_t input : inputs) {
      kept_offsets_[input] = bytes;
      bytes += aligned_size(input_type(input).bytes());
      std::erase(others, program().inputs[input]);
    }
  input_ranges_ = ranges_of(others);
  for (int i = 0; i < count; ++i)
    kept_.emplace_back(session_->context, std::max<std::int64_t>(bytes, 1),
                       concat("a batch of the inputs of program '", program().name, "', read ahead"));
}

std::span<std::byte> CudaExecutable::kept_input(int batch, std::size_t index) {
  check_internal(index < kept_offsets_.size() && kept_offsets_[index] != kNotKept, "input ", index, " is not kept");
  return input_of(index, next_, batch);
}

void CudaExecutable::use_batch(int batch) {
  check_internal(batch >= 0 && batch < std::ssize(kept_), "batch ", batch, " of ", kept_.size(), " of ", where_);
  next_batch_ = batch;
}

/// Of a kept batch where it has this input, else of the slot.
std::span<std::byte> CudaExecutable::input_of(std::size_t index, int slot, int batch) {
  if (batch == kOwnInputs || kept_offsets_[index] == kNotKept) return host_input(index, slot);
  check_internal(batch >= 0 && batch < std::ssize(kept_), "batch ", batch, " of ", kept_.size(), " of ", where_);
  return {kept_[static_cast<std::size_t>(batch)].data() + kept_offsets_[index],
          static_cast<std::size_t>(input_type(index).bytes())};
}

}  // namespace gcomp::runtime::cuda
