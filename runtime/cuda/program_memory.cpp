#include "runtime/cuda/program_memory.h"

#include <cstring>

namespace gcomp::runtime::cuda {
namespace {

/// As the kernels see it (codegen/cuda/prelude/memory.h).
struct SegmentTable {
  int segments, buffers;
  CUdeviceptr first_block, extents, pointers;
};
static_assert(sizeof(SegmentTable) == 32 && sizeof(void*) == sizeof(CUdeviceptr));

/// Bytes from the table to its arrays and to its end.
struct TableLayout {
  std::int64_t first_block = sizeof(SegmentTable), extents = 0, pointers = 0, end = 0;
};

TableLayout layout_of(const KernelLaunch& launch) {
  const auto segments = static_cast<std::int64_t>(launch.segments.size());
  const auto buffers = static_cast<std::int64_t>(launch.segments[0].buffers.size());
  const auto aligned = [](std::int64_t bytes) { return (bytes + 15) / 16 * 16; };
  TableLayout layout;
  layout.extents = aligned(layout.first_block + (segments + 1) * static_cast<std::int64_t>(sizeof(int)));
  layout.pointers = aligned(layout.extents + segments * static_cast<std::int64_t>(sizeof(long long)));
  layout.end = aligned(layout.pointers + segments * buffers * static_cast<std::int64_t>(sizeof(CUdeviceptr)));
  return layout;
}

/// The step's launch where that reads its buffers from a table, else null. Epilogues have one segment, and so no table.
const KernelLaunch* tabled_launch(const Step& step) {
  using Found = const KernelLaunch*;
  return visit_step(
      step, [](const KernelLaunch& launch) -> Found { return uses_segment_table(launch) ? &launch : nullptr; },
      [](const MatmulCall&) -> Found { return nullptr; }, [](const ConvolutionCall&) -> Found { return nullptr; },
      [](const AttentionCall&) -> Found { return nullptr; }, [](const CollectiveCall&) -> Found { return nullptr; });
}

std::int64_t flags_of(const Program& program) {
  return aligned_size(static_cast<std::int64_t>((program.steps.size() + 1) * sizeof(int)));
}

std::weak_ptr<const DeviceMemory>& arena_of(const Session& session, Lane lane) {
  return lane == Lane::beside ? session.beside.arena : session.arena;
}

/// Writes the launch's table, which will lie at `device`, to `host`.
void write_table(const KernelLaunch& launch, const ProgramMemory& memory, int slot, std::byte* host, CUdeviceptr device) {
  const TableLayout layout = layout_of(launch);
  const auto at = [&](std::int64_t offset) { return device + static_cast<CUdeviceptr>(offset); };
  const SegmentTable table{static_cast<int>(launch.segments.size()), static_cast<int>(launch.segments[0].buffers.size()),
                           at(layout.first_block), at(layout.extents), at(layout.pointers)};
  std::memcpy(host, &table, sizeof table);
  auto* first_block = reinterpret_cast<int*>(host + layout.first_block);
  auto* extents = reinterpret_cast<long long*>(host + layout.extents);
  auto* pointers = reinterpret_cast<CUdeviceptr*>(host + layout.pointers);
  std::int64_t blocks = 0;
  for (const Segment& segment : launch.segments) {
    *first_block++ = static_cast<int>(blocks);
    blocks += segment.tasks;
    *extents++ = segment.extent;
    for (const int buffer : segment.buffers) *pointers++ = memory.address(buffer, slot);
  }
  *first_block = static_cast<int>(blocks);
  check_internal(blocks == launch.grid.blocks, launch.origin, ": ", launch.grid.blocks, " blocks, its segments have ", blocks);
}

}  // namespace

bool uses_segment_table(const KernelLaunch& launch) { return !launch.segments.empty() && launch.segments[0].extent > 0; }

std::shared_ptr<const DeviceMemory> shared_arena(const Session& session, std::int64_t bytes, Lane lane) {
  std::shared_ptr<const DeviceMemory> arena = arena_of(session, lane).lock();
  return arena && arena->bytes() >= bytes ? arena : nullptr;
}

std::int64_t table_bytes(const Program& program) {
  std::int64_t bytes = flags_of(program);
  for (const Step& step : program.steps)
    if (const KernelLaunch* launch = tabled_launch(step)) bytes += kSlots * layout_of(*launch).end;
  return bytes;
}

ProgramMemory::ProgramMemory(const Session& session, const Program& program, const CudaStateMemory& states,
                             std::int64_t workspace_bytes, Lane lane) {
  const SharedContext& context = session.context;
  const auto of = [&](const char* what) { return concat(what, " of program '", program.name, "'"); };
  arena_ = shared_arena(session, program.arena_bytes, lane);
  if (!arena_) arena_of(session, lane) = arena_ = std::make_shared<DeviceMemory>(context, program.arena_bytes, of("the arena"));
  constants_ = DeviceMemory(context, program.constant_bytes, of("the constants"));
  for (DeviceMemory& io : io_) io = DeviceMemory(context, program.io_bytes, of("inputs and outputs"));
  workspace_ = DeviceMemory(context, workspace_bytes, of("the workspace"));
  tables_ = DeviceMemory(context, table_bytes(program), of("flags and tables"));
  fault_bytes_ = static_cast<std::int64_t>((program.steps.size() + 1) * sizeof(int));
  place_buffers(program, states);
  upload_constants(session, program);
  upload_tables(session, program);
}

void ProgramMemory::place_buffers(const Program& program, const CudaStateMemory& states) {
  const auto place = [](const DeviceMemory& block, const Buffer& buffer) {
    check_internal(buffer.offset >= 0 && buffer.offset + buffer.type.bytes() <= block.bytes(), "buffer '", buffer.name, "' of ",
                   buffer.type.bytes(), " bytes at ", buffer.offset, " leaves its space of ", block.bytes(), " bytes");
    return block.address() + static_cast<CUdeviceptr>(buffer.offset);
  };
  const StateBuffers held(program);
  const auto state_address = [&](const Buffer& buffer) {
    const Buffer* holder = held.holder(buffer);
    check_internal(holder, "buffer '", buffer.name, "' lies within no state");
    return states.address(holder->name) + static_cast<CUdeviceptr>(buffer.offset - holder->offset);
  };
  for (int slot = 0; slot < kSlots; ++slot) {
    for (const Buffer& buffer : program.buffers) {
      switch (buffer.space) {
        case Space::arena: addresses_[slot].push_back(place(*arena_, buffer)); break;
        case Space::state: addresses_[slot].push_back(state_address(buffer)); break;
        case Space::constant: addresses_[slot].push_back(place(constants_, buffer)); break;
        case Space::io: addresses_[slot].push_back(place(io_[slot], buffer)); break;
      }
    }
  }
}

CUdeviceptr ProgramMemory::address(int buffer, int slot) const {
  check_internal(buffer >= 0 && static_cast<std::size_t>(buffer) < addresses_[slot].size(), "buffer ", buffer, " of ",
                 addresses_[slot].size());
  return addresses_[slot][static_cast<std::size_t>(buffer)];
}

void ProgramMemory::upload_constants(const Session& session, const Program& program) {
  const CUstream stream = session.compute.get();
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.space != Space::constant || buffer.type.bytes() == 0) continue;
    check_internal(buffer.contents.type() == buffer.type, "constant '", buffer.name, "' is ", to_string(buffer.type),
                   ", its contents are ", to_string(buffer.contents.type()));
    GCOMP_CUDA(session.driver(), buffer.name, cuMemcpyHtoDAsync_v2, addresses_[0][i], buffer.contents.data(),
               static_cast<std::size_t>(buffer.type.bytes()), stream);
  }
  wait_for_stream(session, stream, "constants");
}

void ProgramMemory::upload_tables(const Session& session, const Program& program) {
  const std::int64_t flags = flags_of(program);
  std::vector<std::byte> host(static_cast<std::size_t>(tables_.bytes()));
  std::int64_t next = flags;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const KernelLaunch* launch = tabled_launch(program.steps[i]);
    if (!launch) continue;
    for (int slot = 0; slot < kSlots; ++slot) {
      const CUdeviceptr device = tables_.address() + static_cast<CUdeviceptr>(next);
      write_table(*launch, *this, slot, host.data() + next, device);
      segment_tables_[slot].emplace(i, device);
      next += layout_of(*launch).end;
    }
  }
  const CUstream stream = session.compute.get();
  GCOMP_CUDA(session.driver(), "tables", cuMemcpyHtoDAsync_v2, tables_.address(), host.data(), host.size(), stream);
  wait_for_stream(session, stream, "tables");
}

}  // namespace gcomp::runtime::cuda
