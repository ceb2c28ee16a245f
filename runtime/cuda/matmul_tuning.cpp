#include "runtime/cuda/matmul_tuning.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "gcomp/version.h"
#include "runtime/files/hexadecimal.h"

namespace gcomp::runtime::cuda {
namespace {

constexpr int kRuns = 3;  // the shortest counts

std::filesystem::path cache_directory(const DeviceOptions& options) {
  if (options.tune == Tuning::off || !options.use_cache) return {};
  return cache_directory_of(options);
}

/// Words as numbers, their first digit first.
std::string hexadecimal(const cublasLtMatmulAlgo_t& algorithm) {
  std::vector<std::byte> bytes;
  for (const std::uint64_t word : algorithm.data)
    for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::byte>(word >> shift));
  return to_hexadecimal(bytes);
}

/// Bytes from a buffer's start to the end of a view of it.
std::int64_t bytes_of(const MatmulCall& call, const MatrixView& view, std::int64_t rows, std::int64_t columns) {
  std::int64_t last = view.offset + (rows - 1) * view.row_stride + (columns - 1) * view.column_stride;
  for (std::size_t d = 0; d < call.batch.size(); ++d) last += (call.batch[d] - 1) * view.batch_strides[d];
  return (last + 1) * static_cast<std::int64_t>(size_of(call.dtype));
}

/// Milliseconds of the shortest of some runs.
float time_of(const Session& session, const CublasLtMatmul& matmul, const MatmulCall& call, const MatmulBuffers& buffers,
              CUdeviceptr workspace) {
  const Driver& driver = session.driver();
  const CUstream stream = session.compute.get();
  const Event begin = make_event(session.context, CU_EVENT_DEFAULT), end = make_event(session.context, CU_EVENT_DEFAULT);
  float least = std::numeric_limits<float>::infinity();
  for (int run = 0; run <= kRuns; ++run) {
    GCOMP_CUDA(driver, call.origin, cuEventRecord, begin.get(), stream);
    matmul.queue(call, buffers, workspace, stream);
    GCOMP_CUDA(driver, call.origin, cuEventRecord, end.get(), stream);
    GCOMP_CUDA(driver, call.origin, cuEventSynchronize, end.get());
    float milliseconds = 0;
    GCOMP_CUDA(driver, call.origin, cuEventElapsedTime, &milliseconds, begin.get(), end.get());
    if (run > 0) least = std::min(least, milliseconds);  // the first one loads the library's kernels
  }
  return least;
}

}  // namespace

std::string shape_key(const MatmulCall& call, const LibraryEpilogue* epilogue) {
  std::string text = concat(name_of(call.dtype), " ", call.m, "x", call.n, "x", call.k);
  for (const std::int64_t extent : call.batch) text += concat(" of ", extent);
  for (const MatrixView* view : {&call.a, &call.b, &call.c}) {
    text += concat(" ", view->row_stride, ":", view->column_stride);
    for (const std::int64_t stride : view->batch_strides) text += concat(":", stride);
    text += concat("+", view->offset % 256);
  }
  if (epilogue)
    text += concat(" epilogue ", static_cast<int>(epilogue->kind), epilogue->bias ? " bias" : "", epilogue->aux ? " aux" : "");
  return text;
}

MatmulTuning::MatmulTuning(const Session& session, const DeviceOptions& options)
    : session_(session),
      wanted_(options.tune != Tuning::off && session.cublaslt),
      all_(options.tune == Tuning::all),
      log_(options.log),
      cache_(cache_directory(options)) {
  if (wanted_) read(options);
}

void MatmulTuning::read(const DeviceOptions& options) {
  const bool fast = options.precision == MatmulPrecision::tf32;
  key_ = concat("matmul algorithms of gcomp ", version(), "\ncuBLASLt ", session_.cublaslt->version(), fast ? " with TF32" : "",
                "\n", describe(session_.context->gpu()), ", driver ", session_.driver().version(), "\n");
  std::string damage;
  const auto bytes = cache_.find(key_, damage);
  if (!damage.empty() && log_) log_(concat("the tuning file ", cache_.path_of(key_).string(), " is begun anew: ", damage));
  if (!bytes) return;
  std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    const std::string_view line = text.substr(0, end);
    if (const std::size_t tab = line.find('\t'); tab != line.npos)
      chosen_.emplace(std::string(line.substr(0, tab)), std::string(line.substr(tab + 1)));
  }
}

void MatmulTuning::tune(CublasLtMatmul& matmul, const MatmulCall& call) {
  if (!wanted_ || matmul.candidates().size() < 2) return;
  const std::string shape =
      concat(shape_key(call, matmul.has_epilogue() ? &*call.epilogue->library : nullptr), all_ ? " of all" : "");
  if (const auto known = chosen_.find(shape); known != chosen_.end())
    for (const MatmulAlgorithm& candidate : matmul.candidates())
      if (hexadecimal(candidate.algorithm) == known->second) return matmul.choose(candidate);
  const MatmulAlgorithm* best = fastest(matmul, call);
  if (!best) return;
  matmul.choose(*best);
  chosen_[shape] = hexadecimal(best->algorithm);
  changed_ = true;
}

const MatmulAlgorithm* MatmulTuning::fastest(CublasLtMatmul& matmul, const MatmulCall& call) const {
  const LibraryEpilogue* epilogue = matmul.has_epilogue() ? &*call.epilogue->library : nullptr;
  const std::int64_t results = bytes_of(call, call.c, call.m, call.n);
  const std::int64_t bytes[] = {
      bytes_of(call, call.a, call.m, call.k), bytes_of(call, call.b, call.k, call.n), results,
      epilogue && epilogue->bias ? bias_elements(call, epilogue->kind) * static_cast<std::int64_t>(size_of(call.dtype)) : 0,
      epilogue && epilogue->aux ? results : 0};
  std::int64_t workspace_bytes = 0;
  for (const MatmulAlgorithm& candidate : matmul.candidates())
    workspace_bytes = std::max(workspace_bytes, static_cast<std::int64_t>(candidate.workspace_bytes));
  if (std::accumulate(std::begin(bytes), std::end(bytes), workspace_bytes) > session_.context->memory().free / 2) return nullptr;
  DeviceMemory memory[5];
  MatmulBuffers buffers;
  CUdeviceptr* const addresses[] = {&buffers.a, &buffers.b, &buffers.c, &buffers.bias, &buffers.aux};
  for (int i = 0; i < 5; ++i) {
    if (bytes[i] == 0) continue;
    memory[i] = DeviceMemory(session_.context, bytes[i], "timing of a matrix product");
    *addresses[i] = memory[i].address();
    // Small positive numbers in every float type.
    GCOMP_CUDA(session_.driver(), call.origin, cuMemsetD8Async, *addresses[i], 0x3c, static_cast<std::size_t>(bytes[i]),
               session_.compute.get());
  }
  const DeviceMemory workspace(session_.context, workspace_bytes, "timing of a matrix product");
  const MatmulAlgorithm* best = nullptr;
  float least = std::numeric_limits<float>::infinity();
  for (const MatmulAlgorithm& candidate : matmul.candidates()) {
    matmul.choose(candidate);
    if (const float time = time_of(session_, matmul, call, buffers, workspace.address()); time < least)
      best = &candidate, least = time;
  }
  return best;
}

void MatmulTuning::save() {
  if (!changed_ || !cache_.unusable().empty()) return;
  std::string text;
  for (const auto& [shape, algorithm] : chosen_) text += concat(shape, "\t", algorithm, "\n");
  if (const std::string failure = cache_.store(key_, std::as_bytes(std::span(text))); !failure.empty() && log_)
    log_(concat("the timings of matrix products are not kept: ", failure));
  changed_ = false;
}

}  // namespace gcomp::runtime::cuda
