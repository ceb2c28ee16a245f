#include "runtime/cuda/memory_needs.h"

#include <algorithm>
#include <vector>

#include "runtime/cuda/state_memory.h"

namespace gcomp::runtime::cuda {
namespace {

constexpr std::size_t kLargest = 6;

/// What the driver takes for itself beside the plan: graphs, machine code, local memory.
std::int64_t reserve(std::int64_t total) { return std::min<std::int64_t>(std::int64_t{128} << 20, total / 50); }

std::string_view space_name(Space space) {
  switch (space) {
    case Space::arena: return "temporary";
    case Space::state: return "state";
    case Space::constant: return "constant";
    case Space::io: return "input or output";
  }
  return "";
}

std::string largest_buffers(const Program& program) {
  std::vector<const Buffer*> all;
  for (const Buffer& buffer : program.buffers) all.push_back(&buffer);
  const std::size_t count = std::min(kLargest, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(), [](const Buffer* a, const Buffer* b) {
    return a->type.bytes() != b->type.bytes() ? a->type.bytes() > b->type.bytes() : a->name < b->name;
  });
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += concat(i ? ", " : "", "'", all[i]->name, "' ", to_string(all[i]->type), " ", bytes_text(all[i]->type.bytes()), " (",
                   space_name(all[i]->space), ")");
  return text;
}

/// The first dimension that all inputs with dimensions have in common, or 0.
std::int64_t batch_of(const Program& program) {
  std::int64_t batch = 0;
  for (const Port& port : program.inputs) {
    const Shape& shape = program.buffers[static_cast<std::size_t>(port.buffer)].type.shape;
    if (shape.empty()) continue;
    if (batch != 0 && shape[0] != batch) return 0;
    batch = shape[0];
  }
  return batch;
}

/// What activations that are computed again may leave to a training step, as `gcomp train --recompute` takes it; "" for other
/// programs. A plan has one slot for inputs and outputs, and neither workspace nor tables.
std::string recomputation(const Program& program, const MemoryNeeds& needs, std::int64_t usable) {
  constexpr std::int64_t kMiB = 1 << 20;
  const bool trains = std::ranges::any_of(program.inputs, [](const Port& port) { return port.role == Role::learning_rate; });
  const std::int64_t beside_plan = needs.total() - needs.states - needs.arena - needs.constants - program.io_bytes;
  const std::int64_t most = (usable - beside_plan) / kMiB;
  return trains && most > 0 ? concat(", or --recompute ", most, "MiB") : "";
}

std::string what_would_fit(const Program& program, const MemoryNeeds& needs, std::int64_t usable) {
  const std::int64_t grows = needs.arena + needs.io, fixed = needs.total() - grows, batch = batch_of(program);
  if (fixed >= usable)
    return concat("no batch fits: states, constants and workspace alone need ", bytes_text(fixed), " of ", bytes_text(usable),
                  " usable; take a GPU with more memory, or free this one");
  if (batch > 1) {
    const auto fits = static_cast<std::int64_t>(static_cast<double>(batch) * static_cast<double>(usable - fixed) /
                                                static_cast<double>(std::max<std::int64_t>(1, grows)));
    if (fits >= 1)
      return concat("a batch of about ", fits, " instead of ", batch, " would fit", recomputation(program, needs, usable));
  }
  return concat("smaller inputs would fit: temporaries, inputs and outputs may take ", bytes_text(usable - fixed),
                recomputation(program, needs, usable));
}

}  // namespace

MemoryNeeds memory_needs(const Program& program, const StateMemory& states, std::int64_t workspace, std::int64_t tables) {
  MemoryNeeds needs{.states = 0,
                    .arena = program.arena_bytes,
                    .constants = program.constant_bytes,
                    .io = kSlots * program.io_bytes,
                    .workspace = workspace,
                    .tables = tables};
  for (const State& state : program.states) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(state.buffer)];
    if (!states.contains(buffer.name)) needs.states += aligned_size(buffer.type.bytes());
  }
  return needs;
}

std::string why_too_large(const Program& program, const MemoryNeeds& needs, std::int64_t free, std::int64_t total) {
  const std::int64_t usable = free - reserve(total);
  if (needs.total() <= usable) return {};
  return concat("program '", program.name, "' needs ", bytes_text(needs.total()), " of the GPU's memory and ",
                bytes_text(std::max<std::int64_t>(0, usable)), " can be had (", bytes_text(free), " free of ", bytes_text(total),
                "): states ", bytes_text(needs.states), ", temporaries ", bytes_text(needs.arena), ", constants ",
                bytes_text(needs.constants), ", inputs and outputs ", bytes_text(needs.io), ", workspace ",
                bytes_text(needs.workspace), "; the largest: ", largest_buffers(program), "; ",
                what_would_fit(program, needs, std::max<std::int64_t>(0, usable)));
}

void require_memory(const Context& context, const Program& program, const MemoryNeeds& needs) {
  const Context::Memory memory = context.memory();
  if (const std::string reason = why_too_large(program, needs, memory.free, memory.total); !reason.empty())
    throw DeviceError(concat("out of memory: ", reason), ExitCode::out_of_memory);
}

}  // namespace gcomp::runtime::cuda
