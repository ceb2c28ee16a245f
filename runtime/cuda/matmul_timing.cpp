#include "runtime/cuda/matmul_timing.h"

#include <algorithm>
#include <cmath>

#include "ir/base/integers.h"
#include "runtime/cuda/kernel_set.h"

namespace gcomp::runtime::cuda {
namespace {

constexpr int kRuns = 5;  // of which the median counts
constexpr std::int64_t kAlignment = 256;
/// As many times the second-level cache is written over before each run: what is replaced there is not what was used longest ago
/// alone.
constexpr std::int64_t kCachesWritten = 2;
/// Results that are to differ, by expectation, before two algorithms count as one: of a matrix more, as a kernel may cut k for the
/// tiles of its last wave alone. Of sums in f32 whose order is another a share differs: about a quarter in f32, and in 16 bits,
/// whose steps are 2^16 times as wide, about sqrt(k) * 2^-20 (sums of k products of numbers of 8 bits, most of which f32 adds
/// exactly).
constexpr double kTellingElements = 128, kTellingSums = 16;
/// Each set of numbers is the last one moved by an alignment.
constexpr int kMostRuns = 256;
constexpr std::int64_t kSlack = kMostRuns * kAlignment;
/// Of larger results one line in so many is compared: kernels compute tiles of 64 lines or more.
constexpr std::int64_t kAllCompared = std::int64_t{64} << 20, kLinesApart = 32, kShortestLine = 4096;

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
      const std::int64_t behind = places.offsets.empty() ? 0 : places.bytes + kSlack;
      shift = round_up(behind, kAlignment) - range.begin / kAlignment * kAlignment;
      space = range.space_of;
      end = range.end;
    }
    end = std::max(end, range.end);
    places.offsets[range.buffer] = range.begin + shift;
    places.bytes = std::max(places.bytes, end + shift);
  }
  places.bytes += kSlack;
  return places;
}

/// Of results that differ where sums are in another order.
double share_that_differs(DType dtype, std::int64_t depth) {
  return size_of(dtype) == 2 ? std::sqrt(static_cast<double>(depth)) / (1 << 20) : 0.25;
}

std::int64_t elements_of(const MatmulCall& call) {
  std::int64_t elements = call.m * call.n;
  for (const std::int64_t extent : call.batch) elements *= extent;
  return elements;
}

}  // namespace

std::optional<TellingRuns> runs_to_tell_apart(const Program& program, const MatmulCall& call, const LibraryEpilogue* epilogue) {
  const auto runs = [&](double wanted, std::int64_t elements, DType dtype) {
    const double count = std::ceil(wanted / (static_cast<double>(elements) * share_that_differs(dtype, call.k)));
    return static_cast<int>(std::min(count, kMostRuns + 1.0));
  };
  const std::int64_t elements = elements_of(call);
  const bool all = elements * static_cast<std::int64_t>(size_of(call.dtype)) <= kAllCompared;
  TellingRuns telling{.of_matrix = runs(kTellingElements, all ? elements : elements / kLinesApart, call.dtype)};
  if (epilogue && is_bias_gradient(epilogue->kind)) {
    const TensorType& sums = program.buffers[static_cast<std::size_t>(*epilogue->bias)].type;
    telling.of_sums = runs(kTellingSums, sums.elements(), sums.dtype);
  }
  return std::max(telling.of_matrix, telling.of_sums) <= kMostRuns ? std::optional(telling) : std::nullopt;
}

std::unique_ptr<MatmulTiming> MatmulTiming::make(const Session& session, const Program& program, const MatmulCall& call,
                                                 std::int64_t workspace_bytes, TrialNumbers& numbers) {
  const std::map<int, std::int64_t> extents = extents_of(program, call);
  const Places places = places_of(program, extents);
  const std::int64_t workspace = round_up(places.bytes, kAlignment), fault = round_up(workspace + workspace_bytes, kAlignment),
                     flushed = fault + kAlignment, all = flushed + kCachesWritten * session.context->gpu().cache_bytes;
  if (all > session.context->memory().free / 2) return nullptr;
  std::unique_ptr<MatmulTiming> timing(new MatmulTiming(session, call));
  timing->memory_ = DeviceMemory(session.context, all, "timing of a matrix product");
  const CUdeviceptr start = timing->memory_.address();
  for (const auto& [buffer, offset] : places.offsets)
    timing->blocks_[buffer] = {start + static_cast<CUdeviceptr>(offset), extents.at(buffer)};
  timing->workspace_ = start + static_cast<CUdeviceptr>(workspace);
  timing->fault_ = start + static_cast<CUdeviceptr>(fault);
  timing->flushed_ = start + static_cast<CUdeviceptr>(flushed);
  timing->fill(program, numbers);
  return timing;
}

/// What the product reads is filled last, lest another buffer's numbers of another type lie in it.
void MatmulTiming::fill(const Program& program, TrialNumbers& numbers) const {
  const auto fill = [&](int buffer, std::int64_t more) {
    const TensorType& type = program.buffers[static_cast<std::size_t>(buffer)].type;
    const std::int64_t elements = type.elements() + more / static_cast<std::int64_t>(size_of(type.dtype));
    numbers.fill(session_, blocks_.at(buffer).address, type.dtype, elements, call_.origin);
  };
  for (const auto& [buffer, block] : blocks_)
    if (buffer != call_.a.buffer && buffer != call_.b.buffer) fill(buffer, 0);
  fill(call_.a.buffer, kSlack);
  fill(call_.b.buffer, kSlack);
}

MatmulBuffers MatmulTiming::buffers(const CublasLtMatmul& matmul) const {
  const auto address = [&](int buffer) { return blocks_.at(buffer).address; };
  MatmulBuffers buffers{address(call_.a.buffer), address(call_.b.buffer), address(call_.c.buffer)};
  if (!matmul.has_epilogue()) return buffers;
  const LibraryEpilogue& epilogue = *call_.epilogue->library;
  if (epilogue.bias) buffers.bias = address(*epilogue.bias);
  if (epilogue.aux) buffers.aux = address(*epilogue.aux);
  return buffers;
}

/// Of the buffers that it writes those of c's extents.
std::vector<int> MatmulTiming::matrices(const CublasLtMatmul& matmul) const {
  const LibraryEpilogue* epilogue = matmul.has_epilogue() ? &*call_.epilogue->library : nullptr;
  if (epilogue && epilogue->aux && epilogue->kind == EpilogueKind::gelu) return {call_.c.buffer, *epilogue->aux};
  return {call_.c.buffer};
}

/// And those of a bias gradient.
std::vector<int> MatmulTiming::sums(const CublasLtMatmul& matmul) const {
  const LibraryEpilogue* epilogue = matmul.has_epilogue() ? &*call_.epilogue->library : nullptr;
  return epilogue && is_bias_gradient(epilogue->kind) ? std::vector{*epilogue->bias} : std::vector<int>{};
}

bool MatmulTiming::lies_over_operand(int result) const {
  std::vector<int> operands{call_.a.buffer, call_.b.buffer};
  if (call_.epilogue && call_.epilogue->library)
    for (const std::optional<int>& buffer : {call_.epilogue->library->bias, call_.epilogue->library->aux})
      if (buffer && *buffer != result) operands.push_back(*buffer);
  const Block& r = blocks_.at(result);
  return std::ranges::any_of(operands, [&](int operand) {
    const Block& o = blocks_.at(operand);
    return r.address < o.address + static_cast<CUdeviceptr>(o.bytes) && o.address < r.address + static_cast<CUdeviceptr>(r.bytes);
  });
}

/// Those results that the algorithm in use makes of the numbers of a run; nothing where it fails.
std::vector<std::byte> MatmulTiming::compute(const CublasLtMatmul& matmul, int run, const std::vector<int>& results) const {
  const Driver& driver = session_.driver();
  const CUstream stream = session_.compute.get();
  for (const int buffer : results) {
    const Block& block = blocks_.at(buffer);
    GCOMP_CUDA(driver, call_.origin, cuMemsetD8Async, block.address, 0xff, static_cast<std::size_t>(block.bytes), stream);
  }
  MatmulBuffers moved = buffers(matmul);
  moved.a += static_cast<CUdeviceptr>(run * kAlignment);
  moved.b += static_cast<CUdeviceptr>(run * kAlignment);
  if (matmul.try_queue(call_, moved, workspace_, stream) != CUBLAS_STATUS_SUCCESS) return {};
  std::vector<std::byte> bytes;
  for (const int buffer : results) {
    const Block& block = blocks_.at(buffer);
    const std::int64_t line = std::max(
        std::max(call_.c.row_stride, call_.c.column_stride) * static_cast<std::int64_t>(size_of(call_.dtype)), kShortestLine);
    const bool all = block.bytes <= kAllCompared;
    const std::int64_t piece = all ? block.bytes : line, apart = all ? block.bytes : line * kLinesApart;
    for (std::int64_t at = 0; at < block.bytes; at += apart) {
      const std::int64_t count = std::min(piece, block.bytes - at);
      bytes.resize(bytes.size() + static_cast<std::size_t>(count));
      GCOMP_CUDA(driver, call_.origin, cuMemcpyDtoHAsync_v2, bytes.data() + bytes.size() - count,
                 block.address + static_cast<CUdeviceptr>(at), static_cast<std::size_t>(count), stream);
      GCOMP_CUDA(driver, call_.origin, cuStreamSynchronize, stream);
    }
  }
  return bytes;
}

bool MatmulTiming::are_alike(CublasLtMatmul& matmul, const MatmulAlgorithm& one, const MatmulAlgorithm& other,
                             const TellingRuns& runs) const {
  const auto alike = [&](const std::vector<int>& results, int count) {
    if (std::ranges::any_of(results, [&](int result) { return lies_over_operand(result); })) return false;
    for (int run = 0; run < count; ++run) {
      matmul.choose(one);
      const std::vector<std::byte> wanted = compute(matmul, run, results);
      matmul.choose(other);
      if (wanted.empty() || compute(matmul, run, results) != wanted) return false;
    }
    return true;
  };
  return alike(matrices(matmul), runs.of_matrix) && alike(sums(matmul), runs.of_sums);
}

void MatmulTiming::queue(const FollowingKernel& after) const {
  std::vector<CUdeviceptr> addresses;
  for (const int buffer : after.launch->segments[0].buffers) addresses.push_back(blocks_.at(buffer).address);
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
