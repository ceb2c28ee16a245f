#include "runtime/cuda/matmul_timing.h"

#include <algorithm>

#include "ir/base/integers.h"
#include "runtime/cuda/kernel_set.h"

namespace gcomp::runtime::cuda {
namespace {

constexpr int kRuns = 5;  // of which the median counts
constexpr std::int64_t kAlignment = 256;
/// As many times the second-level cache is written over before each run: what is replaced there is not what was used longest ago
/// alone.
constexpr std::int64_t kCachesWritten = 2;

/// Bytes from a buffer's start to the end of a view of it.
std::int64_t end_of(const MatmulCall& call, const MatrixView& view, std::int64_t rows, std::int64_t columns) {
  std::int64_t last = view.offset + (rows - 1) * view.row_stride + (columns - 1) * view.column_stride;
  for (std::size_t d = 0; d < call.batch.size(); ++d) last += (call.batch[d] - 1) * view.batch_strides[d];
  return (last + 1) * static_cast<std::int64_t>(size_of(call.dtype));
}

/// Bytes of all buffers that the call may touch.
std::map<int, std::int64_t> extents_of(const Program& program, const MatmulCall& call) {
  std::map<int, std::int64_t> extents;
  const auto add = [&](int buffer, std::int64_t bytes = 0) {
    std::int64_t& extent = extents[buffer];
    extent = std::max({extent, bytes, program.buffers[static_cast<std::size_t>(buffer)].type.bytes()});
  };
  add(call.a.buffer, end_of(call, call.a, call.m, call.k));
  add(call.b.buffer, end_of(call, call.b, call.k, call.n));
  add(call.c.buffer, end_of(call, call.c, call.m, call.n));
  if (!call.epilogue) return extents;
  for (const Segment& segment : call.epilogue->after.segments)
    for (const int buffer : segment.buffers) add(buffer);
  if (!call.epilogue->library) return extents;
  for (const std::optional<int>& buffer : {call.epilogue->library->bias, call.epilogue->library->aux})
    if (buffer) add(*buffer);
  return extents;
}

/// Where each buffer lies in memory of `bytes` of their own, with its alignment in the program; those that overlap there do here.
struct Places {
  std::map<int, std::int64_t> offsets;
  std::int64_t bytes = 0;
};

Places places_of(const Program& program, const std::map<int, std::int64_t>& extents) {
  struct Range {
    int buffer, space_of;  // a state has a space of its own
    std::int64_t begin, end;
  };
  std::vector<Range> ranges;
  for (const auto& [buffer, bytes] : extents) {
    const Buffer& b = program.buffers[static_cast<std::size_t>(buffer)];
    const bool own = b.space == Space::state;
    const std::int64_t begin = own ? 0 : b.offset;
    ranges.push_back({buffer, own ? buffer : -1 - static_cast<int>(b.space), begin, begin + bytes});
  }
  std::ranges::sort(ranges, {}, [](const Range& r) { return std::tuple(r.space_of, r.begin, r.buffer); });
  Places places;
  int space = 0;
  std::int64_t shift = 0, end = -1;  // of the ranges that are together
  for (const Range& range : ranges) {
    if (places.offsets.empty() || range.space_of != space || range.begin >= end) {
      shift = round_up(places.bytes, kAlignment) - range.begin / kAlignment * kAlignment;
      space = range.space_of;
      end = range.end;
    }
    end = std::max(end, range.end);
    places.offsets[range.buffer] = range.begin + shift;
    places.bytes = std::max(places.bytes, end + shift);
  }
  return places;
}

}  // namespace

std::unique_ptr<MatmulTiming> MatmulTiming::make(const Session& session, const Program& program, const MatmulCall& call,
                                                 std::int64_t workspace_bytes, TrialNumbers& numbers) {
  const Places places = places_of(program, extents_of(program, call));
  const std::int64_t workspace = round_up(places.bytes, kAlignment), fault = round_up(workspace + workspace_bytes, kAlignment),
                     flushed = fault + kAlignment, all = flushed + kCachesWritten * session.context->gpu().cache_bytes;
  if (all > session.context->memory().free / 2) return nullptr;
  std::unique_ptr<MatmulTiming> timing(new MatmulTiming(session, call));
  timing->memory_ = DeviceMemory(session.context, all, "timing of a matrix product");
  const CUdeviceptr start = timing->memory_.address();
  for (const auto& [buffer, offset] : places.offsets) timing->addresses_[buffer] = start + static_cast<CUdeviceptr>(offset);
  timing->workspace_ = start + static_cast<CUdeviceptr>(workspace);
  timing->fault_ = start + static_cast<CUdeviceptr>(fault);
  timing->flushed_ = start + static_cast<CUdeviceptr>(flushed);
  timing->fill(program, numbers);
  return timing;
}

/// What the product reads is filled last, lest another buffer's numbers of another type lie in it.
void MatmulTiming::fill(const Program& program, TrialNumbers& numbers) const {
  const auto fill = [&](int buffer) {
    const TensorType& type = program.buffers[static_cast<std::size_t>(buffer)].type;
    numbers.fill(session_, addresses_.at(buffer), type.dtype, type.elements(), call_.origin);
  };
  for (const auto& [buffer, address] : addresses_)
    if (buffer != call_.a.buffer && buffer != call_.b.buffer) fill(buffer);
  fill(call_.a.buffer);
  fill(call_.b.buffer);
}

MatmulBuffers MatmulTiming::buffers(const CublasLtMatmul& matmul) const {
  MatmulBuffers buffers{addresses_.at(call_.a.buffer), addresses_.at(call_.b.buffer), addresses_.at(call_.c.buffer)};
  if (!matmul.has_epilogue()) return buffers;
  const LibraryEpilogue& epilogue = *call_.epilogue->library;
  if (epilogue.bias) buffers.bias = addresses_.at(*epilogue.bias);
  if (epilogue.aux) buffers.aux = addresses_.at(*epilogue.aux);
  return buffers;
}

void MatmulTiming::queue(const FollowingKernel& after) const {
  std::vector<CUdeviceptr> addresses;
  for (const int buffer : after.launch->segments[0].buffers) addresses.push_back(addresses_.at(buffer));
  addresses.push_back(fault_);
  std::vector<void*> parameters;
  for (CUdeviceptr& address : addresses) parameters.push_back(&address);
  queue_kernel(session_.driver(), after.function, after.grid, parameters, session_.compute.get(), after.launch->origin);
}

MatmulTiming::Outcome MatmulTiming::time(const CublasLtMatmul& matmul, const FollowingKernel* after) const {
  const Driver& driver = session_.driver();
  const CUstream stream = session_.compute.get();
  const Event begin = make_event(session_.context, CU_EVENT_DEFAULT), end = make_event(session_.context, CU_EVENT_DEFAULT);
  std::vector<float> times;
  for (int run = 0; run <= kRuns; ++run) {
    if (const int cache = session_.context->gpu().cache_bytes; cache > 0)
      GCOMP_CUDA(driver, call_.origin, cuMemsetD8Async, flushed_, 0, static_cast<std::size_t>(kCachesWritten * cache), stream);
    GCOMP_CUDA(driver, call_.origin, cuEventRecord, begin.get(), stream);
    if (const cublasStatus_t status = matmul.try_queue(call_, buffers(matmul), workspace_, stream); status != CUBLAS_STATUS_SUCCESS)
      return {.status = status};
    if (after) queue(*after);
    GCOMP_CUDA(driver, call_.origin, cuEventRecord, end.get(), stream);
    GCOMP_CUDA(driver, call_.origin, cuEventSynchronize, end.get());
    float milliseconds = 0;
    GCOMP_CUDA(driver, call_.origin, cuEventElapsedTime, &milliseconds, begin.get(), end.get());
    if (run > 0) times.push_back(milliseconds);  // the first one loads the library's kernels
  }
  std::ranges::nth_element(times, times.begin() + kRuns / 2);
  return {.milliseconds = times[kRuns / 2]};
}

}  // namespace gcomp::runtime::cuda
