#include "runtime/cpu/onednn.h"

#include "ir/base/error.h"

namespace gcomp::runtime::cpu {

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

OneDnnExecution::OneDnnExecution(dnnl::primitive primitive, std::initializer_list<std::pair<int, dnnl::memory>> arguments)
    : primitive_(std::move(primitive)) {
  for (const auto& [index, memory] : arguments) {
    memories_.push_back(memory);
    arguments_.push_back({index, memory.get()});
  }
}

bool OneDnnExecution::run(const dnnl::stream& stream, const dnnl::memory& scratchpad) const noexcept {
  dnnl_exec_arg_t arguments[8];
  std::copy(arguments_.begin(), arguments_.end(), arguments);
  int count = static_cast<int>(arguments_.size());
  if (scratchpad) arguments[count++] = {DNNL_ARG_SCRATCHPAD, scratchpad.get()};
  return dnnl_primitive_execute(primitive_.get(), stream.get(), count, arguments) == dnnl_success;
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
