// Brings weights from one oneDNN layout to another, in parallel over their first dimension.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/cpu/onednn.h"

namespace gcomp::runtime::cpu {

class WeightReorder {
 public:
  WeightReorder(const dnnl::memory::desc& from, const std::byte* source, const dnnl::memory::desc& to, std::byte* target);

  /// False where oneDNN fails.
  bool run(ThreadPool& pool, const std::vector<dnnl::stream>& streams) const;

 private:
  struct Part {
    dnnl::primitive primitive;
    dnnl::memory from, to;
  };

  Part make_part(const dnnl::memory::desc& from, const std::byte* source, const dnnl::memory::desc& to, std::byte* target) const;

  std::vector<Part> parts_;
};

}  // namespace gcomp::runtime::cpu
