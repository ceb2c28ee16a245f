// Memory and copies. A copy from or to memory that is not pinned waits, as CUDA's does, and counts as synchronising.
#include <algorithm>
#include <cstring>

#include "ir/base/error.h"
#include "tests/cuda/driver/exports.h"

namespace gcomp::emulated {
namespace {

std::byte* pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

bool device_holds(const Driver& d, const void* address, std::size_t bytes) {
  for (const auto& context : d.contexts)
    if (context->memory.holds(address, bytes)) return true;
  return false;
}

/// Checked again when the operation runs: memory may have been freed in between.
struct Range {
  const void* address;
  std::size_t bytes;
  bool pageable = false;

  bool alive() const { return pageable || gcompEmulatedHolds(address, bytes); }
};

Operation copy_operation(Context& context, Driver& d, std::byte* to, const std::byte* from, const Range& target,
                         const Range& source, std::shared_ptr<std::vector<std::byte>> kept) {
  return {"a copy", [&context, &d, to, from, target, source, kept] {
            if (const int error = d.calls.enter("copy")) return context.fail(static_cast<CUresult>(error), "an injected failure");
            d.calls.add("copied_bytes", static_cast<std::int64_t>(source.bytes));
            if (!target.alive() || !source.alive())
              return context.fail(CUDA_ERROR_ILLEGAL_ADDRESS,
                                  concat("a copy of ", source.bytes, " bytes uses memory that was freed"));
            std::memmove(to, from, source.bytes);
            return CUDA_SUCCESS;
          }};
}

enum class HostSide { pinned, pageable, invalid };

HostSide side_of(const Driver& d, const void* address, std::size_t bytes) {
  if (!d.host.block_of(address)) return HostSide::pageable;
  return d.host.holds(address, bytes) ? HostSide::pinned : HostSide::invalid;
}

/// `count` values, each at a multiple of its size.
template <class Value>
CUresult set_memory(const char* function, CUdeviceptr to, Value value, std::size_t count, CUstream stream) {
  return call(function, Needs::context, [&](Driver& d) {
    const auto target = d.stream(stream);
    if (!target) return CUDA_ERROR_INVALID_HANDLE;
    if (count == 0) return CUDA_SUCCESS;
    if (to % sizeof value != 0 || !device_holds(d, pointer(to), count * sizeof value)) return CUDA_ERROR_INVALID_VALUE;
    if (count * sizeof value > kSecondLevelCache) d.calls.add("memsets beyond the cache");
    Context& context = *target->context;
    return context.queue(target, {"a memset", [&context, to, value, count] {
                                    if (!context.memory.holds(pointer(to), count * sizeof value))
                                      return context.fail(CUDA_ERROR_ILLEGAL_ADDRESS, "a memset uses memory that was freed");
                                    std::fill_n(reinterpret_cast<Value*>(pointer(to)), count, value);
                                    return CUDA_SUCCESS;
                                  }});
  });
}

/// A capture cannot hold a copy from or to memory that is not pinned: it would have to wait for it.
bool refuses(Stream& stream, HostSide side) {
  if (side != HostSide::pageable || !stream.capture) return false;
  stream.capture->invalid = true;
  return true;
}

}  // namespace

CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call("cuMemGetInfo_v2", Needs::context, [&](Driver&) {
    const Memory& memory = current_context()->memory;
    *free = memory.limit() - memory.used();
    *total = memory.limit();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  return call("cuMemAlloc_v2", Needs::context, [&](Driver&) {
    Context& context = *current_context();
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (context.disturbs_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    std::byte* const made = context.memory.allocate(bytes);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = reinterpret_cast<CUdeviceptr>(made);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  return call("cuMemFree_v2", Needs::release, [&](Driver& d) {
    Context& context = *current_context();
    if (address == 0) return CUDA_SUCCESS;
    d.synchronising();
    if (context.disturbs_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    context.finish_all();
    std::string damage;
    if (!context.memory.release(pointer(address), damage)) return CUDA_ERROR_INVALID_VALUE;
    if (!damage.empty()) context.sticky = context.fail(CUDA_ERROR_ILLEGAL_ADDRESS, "cuMemFree: " + damage);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned) {
  return call("cuMemHostAlloc", Needs::context, [&](Driver& d) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (current_context()->disturbs_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *address = d.host.allocate(bytes);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

CUresult cuMemFreeHost(void* address) {
  return call("cuMemFreeHost", Needs::release, [&](Driver& d) {
    Context& context = *current_context();
    d.synchronising();
    if (context.disturbs_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    context.finish_all();
    std::string damage;
    if (!d.host.release(address, damage)) return CUDA_ERROR_INVALID_VALUE;
    if (!damage.empty()) context.sticky = context.fail(CUDA_ERROR_ILLEGAL_ADDRESS, "cuMemFreeHost: " + damage);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return call("cuMemcpyHtoDAsync_v2", Needs::context, [&](Driver& d) {
    const auto target = d.stream(stream);
    if (!target) return CUDA_ERROR_INVALID_HANDLE;
    if (bytes == 0) return CUDA_SUCCESS;
    const HostSide side = side_of(d, from, bytes);
    if (side == HostSide::invalid || !device_holds(d, pointer(to), bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (refuses(*target, side)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const std::byte* source = static_cast<const std::byte*>(from);
    std::shared_ptr<std::vector<std::byte>> kept;
    if (side == HostSide::pageable) {
      d.synchronising();
      kept = std::make_shared<std::vector<std::byte>>(source, source + bytes);
      source = kept->data();
    }
    return target->context->queue(target, copy_operation(*target->context, d, pointer(to), source, {pointer(to), bytes},
                                                         {from, bytes, side == HostSide::pageable}, kept));
  });
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return call("cuMemcpyDtoHAsync_v2", Needs::context, [&](Driver& d) {
    const auto source = d.stream(stream);
    if (!source) return CUDA_ERROR_INVALID_HANDLE;
    if (bytes == 0) return CUDA_SUCCESS;
    const HostSide side = side_of(d, to, bytes);
    if (side == HostSide::invalid || !device_holds(d, pointer(from), bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (refuses(*source, side)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    Context& context = *source->context;
    const CUresult result =
        context.queue(source, copy_operation(context, d, static_cast<std::byte*>(to), pointer(from),
                                             {to, bytes, side == HostSide::pageable}, {pointer(from), bytes}, nullptr));
    if (side == HostSide::pageable) {
      d.synchronising();
      context.finish(*source);
      return context.sticky;
    }
    return result;
  });
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return call("cuMemcpyDtoDAsync_v2", Needs::context, [&](Driver& d) {
    const auto target = d.stream(stream);
    if (!target) return CUDA_ERROR_INVALID_HANDLE;
    if (bytes == 0) return CUDA_SUCCESS;
    if (!device_holds(d, pointer(to), bytes) || !device_holds(d, pointer(from), bytes)) return CUDA_ERROR_INVALID_VALUE;
    return target->context->queue(target, copy_operation(*target->context, d, pointer(to), pointer(from), {pointer(to), bytes},
                                                         {pointer(from), bytes}, nullptr));
  });
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  return set_memory("cuMemsetD8Async", to, value, bytes, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t words, CUstream stream) {
  return set_memory("cuMemsetD32Async", to, value, words, stream);
}

}  // namespace gcomp::emulated
