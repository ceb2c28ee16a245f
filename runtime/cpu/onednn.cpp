#include "runtime/cpu/onednn.h"

#include "ir/base/error.h"
#include "runtime/cpu/onednn_calls.h"

namespace gcomp::runtime::cpu {
namespace {

void limit_onednn(InstructionSet set) {
  if (set == InstructionSet::avx512) return;
  const dnnl::cpu_isa limit = set == InstructionSet::avx2 ? dnnl::cpu_isa::avx2 : dnnl::cpu_isa::sse41;
  if (dnnl::set_max_cpu_isa(limit) == dnnl::status::success || dnnl::get_effective_cpu_isa() == limit) return;
  throw DeviceError(concat("the CPU cannot be opened with ", shown_name(set),
                           ": oneDNN has chosen its instructions in this process already; open every device with the same ones"),
                    ExitCode::no_device);
}

}  // namespace

const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::primitive_attr onednn_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory onednn_memory(const dnnl::memory::desc& desc, const void* data) {
  return dnnl::memory(desc, onednn_engine(), const_cast<void*>(data));
}

bool onednn_execute(const dnnl::primitive& primitive, const dnnl::stream& stream,
                    std::initializer_list<dnnl_exec_arg_t> arguments) noexcept {
  dnnl_exec_arg_t present[8];
  int count = 0;
  for (const dnnl_exec_arg_t& argument : arguments)
    if (argument.memory && count < 8) present[count++] = argument;
  return dnnl_primitive_execute(primitive.get(), stream.get(), count, present) == dnnl_success;
}

std::vector<dnnl::memory> onednn_thread_memories(const dnnl::memory::desc& desc, const Workspace& workspace, std::int64_t offset,
                                                 int threads) {
  std::vector<dnnl::memory> memories(static_cast<std::size_t>(threads));
  for (int thread = 0; thread < threads && desc.get_size() > 0; ++thread)
    memories[static_cast<std::size_t>(thread)] = onednn_memory(desc, workspace.of_thread(thread) + offset);
  return memories;
}

std::vector<dnnl::stream> onednn_streams(int threads) {
  std::vector<dnnl::stream> streams;
  for (int i = 0; i < threads; ++i) streams.emplace_back(onednn_engine());
  return streams;
}

void throw_onednn_error(const std::string& origin, const char* doing, const dnnl::error& error) {
  throw InternalError(
      concat(origin, ": oneDNN failed while ", doing, ": ", error.what(), " (status ", static_cast<int>(error.status), ")"));
}

}  // namespace gcomp::runtime::cpu

extern "C" const gcomp::runtime::cpu::OneDnnCalls gcomp_onednn_calls;
const gcomp::runtime::cpu::OneDnnCalls gcomp_onednn_calls{.convolution = gcomp::runtime::cpu::make_onednn_convolution,
                                                          .limit = gcomp::runtime::cpu::limit_onednn};
