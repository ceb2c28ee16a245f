// oneDNN 2.6 and 3.x behind one face: primitives prepared at load, executed on one thread each, scratch given by the caller.
#pragma once

#include <dnnl.hpp>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cpu/library_call.h"
#include "runtime/instruction_set.h"

namespace gcomp::runtime::cpu {

const dnnl::engine& onednn_engine();
/// With the scratchpad given by the caller.
dnnl::primitive_attr onednn_attributes();

dnnl::memory onednn_memory(const dnnl::memory::desc& desc, const void* data);

/// Runs a primitive; arguments whose memory is null are left out. False where oneDNN fails; does not throw, so tasks may call it.
bool onednn_execute(const dnnl::primitive& primitive, const dnnl::stream& stream,
                    std::initializer_list<dnnl_exec_arg_t> arguments) noexcept;

/// The memory's handle, null for an empty one.
inline dnnl_memory_t handle_of(const dnnl::memory& memory) { return memory ? memory.get() : nullptr; }

/// For each thread the memory at `offset` of its scratch; empty memories where the descriptor is empty.
std::vector<dnnl::memory> onednn_thread_memories(const dnnl::memory::desc& desc, const Workspace& workspace, std::int64_t offset,
                                                 int threads);

/// Bytes of the descriptor's memory, aligned.
inline std::int64_t onednn_size(const dnnl::memory::desc& desc) { return aligned_size(static_cast<std::int64_t>(desc.get_size())); }

/// One stream for each thread of a pool.
std::vector<dnnl::stream> onednn_streams(int threads);

/// Rethrows the dnnl::error in flight as InternalError that names the step and what was being done.
[[noreturn]] void throw_onednn_error(const std::string& origin, const char* doing, const dnnl::error& error);

}  // namespace gcomp::runtime::cpu
