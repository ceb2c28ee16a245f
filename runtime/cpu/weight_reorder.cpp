#include "runtime/cpu/weight_reorder.h"

#include <atomic>

namespace gcomp::runtime::cpu {
namespace {

// No layout has blocks of more than 64 channels, so parts of that size begin at a block.
constexpr std::int64_t kChannelMultiple = 64;
constexpr std::size_t kPartBytes = 128 << 10;

dnnl::memory::dims dims_of(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  return desc.get_dims();
#else
  return desc.dims();
#endif
}

}  // namespace

WeightReorder::Part WeightReorder::make_part(const dnnl::memory::desc& from, const std::byte* source, const dnnl::memory::desc& to,
                                             std::byte* target) const {
  const dnnl::reorder::primitive_desc desc(onednn_engine(), from, onednn_engine(), to);
  return {dnnl::reorder(desc), onednn_memory(from, source), onednn_memory(to, target)};
}

WeightReorder::WeightReorder(const dnnl::memory::desc& from, const std::byte* source, const dnnl::memory::desc& to,
                             std::byte* target) {
  const dnnl::memory::dims dims = dims_of(from);
  const auto slices = static_cast<std::int64_t>(from.get_size() / kPartBytes) + 1;
  const std::int64_t even = (dims[0] + slices - 1) / slices;
  const std::int64_t channels = (even + kChannelMultiple - 1) / kChannelMultiple * kChannelMultiple;
  try {
    for (std::int64_t first = 0; channels < dims[0] && first < dims[0]; first += channels) {
      dnnl::memory::dims part = dims, offset(dims.size(), 0);
      part[0] = std::min(channels, dims[0] - first);
      offset[0] = first;
      parts_.push_back(make_part(from.submemory_desc(part, offset), source, to.submemory_desc(part, offset), target));
    }
  } catch (const dnnl::error&) {
    parts_.clear();  // a layout that cannot be cut here
  }
  if (parts_.empty()) parts_.push_back(make_part(from, source, to, target));
}

bool WeightReorder::run(ThreadPool& pool, const std::vector<dnnl::stream>& streams) const {
  std::atomic<bool> done{true};
  pool.run(static_cast<std::int64_t>(parts_.size()), [&](std::int64_t first, std::int64_t last, int thread) {
    for (std::int64_t i = first; i < last; ++i) {
      const Part& part = parts_[static_cast<std::size_t>(i)];
      if (!onednn_execute(part.primitive, streams[static_cast<std::size_t>(thread)],
                          {{DNNL_ARG_FROM, part.from.get()}, {DNNL_ARG_TO, part.to.get()}}))
        done = false;
    }
  });
  return done;
}

}  // namespace gcomp::runtime::cpu
