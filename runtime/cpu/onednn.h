// oneDNN 2.6 and 3.x behind one face: primitives prepared at load, executed on one thread each, scratch given by the caller.
#pragma once

#include <algorithm>
#include <dnnl.hpp>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cpu/library_call.h"

namespace gcomp::runtime::cpu {

const dnnl::engine& onednn_engine();
/// With the scratchpad given by the caller.
dnnl::primitive_attr onednn_attributes();

dnnl::memory onednn_memory(const dnnl::memory::desc& desc, const void* data);

/// A primitive with its arguments, all but the scratchpad.
class OneDnnExecution {
 public:
  OneDnnExecution(dnnl::primitive primitive, std::initializer_list<std::pair<int, dnnl::memory>> arguments);

  /// `scratchpad` may be empty. False where oneDNN fails; does not throw, so pool tasks may call it.
  bool run(const dnnl::stream& stream, const dnnl::memory& scratchpad) const noexcept;

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

/// One stream for each thread of a pool.
std::vector<dnnl::stream> onednn_streams(int threads);

/// Rethrows the dnnl::error in flight as InternalError that names the step and what was being done.
[[noreturn]] void throw_onednn_error(const std::string& origin, const char* doing, const dnnl::error& error);

}  // namespace gcomp::runtime::cpu
