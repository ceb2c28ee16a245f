#include "runtime/cuda/convolution_proof.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <vector>

#include "gcomp/version.h"
#include "ir/base/integers.h"
#include "runtime/cuda/program_memory.h"

namespace gcomp::runtime::cuda {
namespace {

constexpr std::string_view kRepeats = "repeats", kVaries = "varies";
constexpr std::int64_t kPattern = 1 << 20;  // elements, after which the numbers come again

std::int64_t product_of(const std::vector<std::int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

/// Elements of input, weight and output.
std::array<std::int64_t, 3> sizes_of(const ConvolutionCall& call) {
  return {call.batch * call.input_channels * product_of(call.input_spatial),
          call.output_channels * (call.input_channels / call.groups) * product_of(call.kernel),
          call.batch * call.output_channels * product_of(call.output_spatial)};
}

std::size_t written_by(ConvolutionKind kind) {
  return kind == ConvolutionKind::forward ? 2 : kind == ConvolutionKind::input_gradient ? 0 : 1;
}

/// Numbers in [-1, 1) whose sums depend on their order.
Tensor numbers(DType dtype, std::int64_t count) {
  Tensor pattern(dtype, {count});
  std::uint64_t state = 0x9e3779b97f4a7c15;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    pattern.set(i, static_cast<double>(static_cast<std::int64_t>(state)) / 9223372036854775808.0);
  }
  return pattern;
}

}  // namespace

std::string shape_key(const ConvolutionCall& call) {
  std::string text = concat(static_cast<int>(call.kind), " ", name_of(call.dtype), call.channels_last ? " last " : " first ",
                            call.packing.launches.empty() ? "" : "packed ", call.batch, " ", call.input_channels, " ",
                            call.output_channels, " ", call.groups);
  for (const auto* list : {&call.input_spatial, &call.output_spatial, &call.kernel, &call.strides, &call.pads_begin, &call.pads_end,
                           &call.dilations}) {
    text += ' ';
    for (const std::int64_t value : *list) text += concat(":", value);
  }
  return text;
}

ConvolutionProof::ConvolutionProof(const Session& session, const DeviceOptions& options)
    : session_(session), log_(options.log), cache_(options.use_cache ? cache_directory_of(options) : std::filesystem::path()) {
  if (session.cudnn) read(options);
}

void ConvolutionProof::read(const DeviceOptions& options) {
  const bool fast = options.precision == MatmulPrecision::tf32;
  key_ = concat("repeated convolutions of gcomp ", version(), "\ncuDNN ", session_.cudnn->version(), fast ? " with TF32" : "", "\n",
                describe(session_.context->gpu()), ", driver ", session_.driver().version(), "\n");
  std::string damage;
  const auto bytes = cache_.find(key_, damage);
  if (!damage.empty() && log_)
    log_(concat("the file of repeated convolutions ", cache_.path_of(key_).string(), " is begun anew: ", damage));
  if (!bytes) return;
  std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    const std::string_view line = text.substr(0, end);
    if (const std::size_t tab = line.find('\t'); tab != line.npos)
      repeats_.emplace(std::string(line.substr(0, tab)), line.substr(tab + 1) == kRepeats);
  }
}

bool ConvolutionProof::prove(CudnnConvolution& convolution, const ConvolutionCall& call, std::string& reason) {
  do {
    switch (verdict_of(convolution, call, concat(shape_key(call), " plan ", convolution.name()))) {
      case Verdict::repeats: return true;
      case Verdict::varies:
        if (log_)
          log_(concat(call.origin, ": cuDNN's engine ", convolution.engine(), " does not repeat its bits and is passed over"));
        break;
      case Verdict::untried: reason = "there is no memory to try its plans"; return false;
    }
  } while (convolution.next());
  reason = "none of its plans repeats its bits";
  return false;
}

ConvolutionProof::Verdict ConvolutionProof::verdict_of(const CudnnConvolution& convolution, const ConvolutionCall& call,
                                                       const std::string& plan) {
  if (const auto known = repeats_.find(plan); known != repeats_.end()) return known->second ? Verdict::repeats : Verdict::varies;
  const Verdict verdict = replay(convolution, call);
  if (verdict == Verdict::untried) return verdict;
  repeats_[plan] = verdict == Verdict::repeats;
  changed_ = true;
  return verdict;
}

/// Somewhere to compute in: the arena of loaded programs, in which nothing lasts from run to run, or memory of its own. Null where
/// that would take more than half of what is left.
std::shared_ptr<const DeviceMemory> ConvolutionProof::scratch(std::int64_t bytes) const {
  if (auto arena = shared_arena(session_, bytes, Lane::main)) return arena;
  if (bytes > session_.context->memory().free / 2) return nullptr;
  return std::make_shared<DeviceMemory>(session_.context, bytes, "a convolution that is tried");
}

ConvolutionProof::Verdict ConvolutionProof::replay(const CudnnConvolution& convolution, const ConvolutionCall& call) const {
  const std::array<std::int64_t, 3> sizes = sizes_of(call);
  const auto width = static_cast<std::int64_t>(size_of(call.dtype));
  std::array<std::int64_t, 4> offsets = {};  // the last is the workspace's
  for (std::size_t i = 0; i < 3; ++i) offsets[i + 1] = round_up(offsets[i] + sizes[i] * width, 256);
  const auto memory = scratch(offsets[3] + convolution.workspace_bytes());
  if (!memory) return Verdict::untried;
  const auto address_of = [&](std::size_t which) { return memory->address() + static_cast<CUdeviceptr>(offsets[which]); };
  const CUstream stream = session_.compute.get();
  const Driver& driver = session_.driver();
  const Tensor pattern = numbers(call.dtype, std::min(kPattern, *std::max_element(sizes.begin(), sizes.end())));
  for (std::size_t i = 0; i < 3; ++i)
    for (std::int64_t done = 0; done < sizes[i]; done += pattern.elements())
      GCOMP_CUDA(driver, call.origin, cuMemcpyHtoDAsync_v2, address_of(i) + static_cast<CUdeviceptr>(done * width), pattern.data(),
                 static_cast<std::size_t>(std::min(pattern.elements(), sizes[i] - done) * width), stream);
  const std::size_t written = written_by(call.kind), bytes = static_cast<std::size_t>(sizes[written] * width);
  std::vector<std::byte> results[2] = {std::vector<std::byte>(bytes), std::vector<std::byte>(bytes)};
  for (std::vector<std::byte>& result : results) {
    convolution.queue(call, {address_of(0), address_of(1), address_of(2)}, address_of(3), stream);
    GCOMP_CUDA(driver, call.origin, cuMemcpyDtoHAsync_v2, result.data(), address_of(written), bytes, stream);
    GCOMP_CUDA(driver, call.origin, cuStreamSynchronize, stream);
  }
  return results[0] == results[1] ? Verdict::repeats : Verdict::varies;
}

void ConvolutionProof::save() {
  if (!changed_ || !cache_.unusable().empty()) return;
  std::string text;
  for (const auto& [plan, repeats] : repeats_) text += concat(plan, "\t", repeats ? kRepeats : kVaries, "\n");
  if (const std::string failure = cache_.store(key_, std::as_bytes(std::span(text))); !failure.empty() && log_)
    log_(concat("what was found of convolutions is not kept: ", failure));
  changed_ = false;
}

}  // namespace gcomp::runtime::cuda
