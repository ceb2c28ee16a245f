#include "runtime/cuda/cudnn_choices.h"

#include <set>

#include "runtime/shared_use.h"

namespace gcomp::runtime::cuda {
namespace {

/// Buffers of steps that know nothing of what a library leaves of an attention's rows.
std::set<int> read_by_kernels(const Program& program) {
  std::set<int> read;
  for (const Step& step : program.steps)
    if (!std::holds_alternative<AttentionCall>(step))
      for (const int buffer : buffers_of(step)) read.insert(buffer);
  return read;
}

/// Whose attention the library was measured to compute faster than generated kernels do; on others it ties with them, or wants
/// knobs of its own to repeat its bits.
bool gains_from_library_attention(const Gpu& gpu) { return gpu.architecture / 10 == 9; }

std::string alignments_of(const ConvolutionBuffers& b) {
  return concat(" +", b.input % 256, " +", b.weight % 256, " +", b.output % 256);
}

std::string alignments_of(const AttentionBuffers& b) {
  std::string text;
  for (const CUdeviceptr address : {b.q, b.k, b.v, b.y, b.dy, b.dq, b.dk, b.dv, b.top}) text += concat(" +", address % 256);
  return text;
}

std::unique_ptr<CudnnConvolution> first_plan(const Session& session, const ConvolutionCall& call, const ConvolutionBuffers& buffers,
                                             const DeviceOptions& options) {
  return CudnnConvolution::plan(session.cudnn, call, buffers, options.precision);
}

std::unique_ptr<CudnnAttention> first_plan(const Session& session, const AttentionCall& call, const AttentionBuffers& buffers,
                                           const DeviceOptions&) {
  return CudnnAttention::plan(session.cudnn, call, buffers);
}

}  // namespace

CUdeviceptr position_of(const Program& program, int buffer) {
  const Buffer& b = program.buffers[static_cast<std::size_t>(buffer)];
  return b.space == Space::state ? 0 : static_cast<CUdeviceptr>(b.offset);
}

CudnnChoices::CudnnChoices(const Session& session, const Program& program, const DeviceOptions& options)
    : session_(session), program_(program), options_(options), proof_(session, options) {}

template <class Planned, class Call, class Buffers>
std::shared_ptr<Planned> CudnnChoices::make(const Call& call, const Buffers& buffers) {
  std::string reason = "it has no plan for it";
  std::unique_ptr<Planned> planned = first_plan(session_, call, buffers, options_);
  if (planned && proof_.prove(planned->plans(), planned->trial(call), reason)) return planned;
  if (options_.log) options_.log(concat(call.origin, ": not by cuDNN, ", reason));
  return nullptr;
}

std::shared_ptr<const CudnnConvolution> CudnnChoices::convolution(const ConvolutionCall& call) {
  if (!session_.cudnn) return nullptr;
  ConvolutionBuffers buffers = {position_of(program_, call.input), position_of(program_, call.weight),
                                position_of(program_, call.output)};
  if (!call.packing.launches.empty()) buffers.weight = 0;  // the workspace's start
  const auto [known, added] = convolutions_.try_emplace(concat(shape_key(call), alignments_of(buffers)));
  if (added) known->second = make<CudnnConvolution>(call, buffers);
  return known->second;
}

std::shared_ptr<const CudnnAttention> CudnnChoices::attention(const AttentionCall& call) {
  const AttentionBuffers buffers = attention_buffers(call, [&](int buffer) { return position_of(program_, buffer); });
  const auto [known, added] = attentions_.try_emplace(concat(shape_key(call), alignments_of(buffers)));
  if (added) known->second = make<CudnnAttention>(call, buffers);
  return known->second;
}

std::vector<std::shared_ptr<const CudnnAttention>> CudnnChoices::attentions() {
  std::vector<std::shared_ptr<const CudnnAttention>> found(program_.steps.size());
  if (!session_.cudnn || !gains_from_library_attention(session_.context->gpu())) return found;
  const auto call_of = [&](std::size_t step) { return std::get_if<AttentionCall>(&program_.steps[step]); };
  const std::set<int> read = read_by_kernels(program_);  // as by the gradient of a batch that no two strides describe
  std::set<int> taken;                                   // rows that a forward call by the library leaves
  std::set<int> refused;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const AttentionCall* call = call_of(i);
    if (!call) continue;
    if (read.contains(call->top) || read.contains(call->sum)) continue;
    const bool ours = call->generated_is_faster && !options_.prefer_cudnn;
    if (call->kind == AttentionKind::gradient && (ours || !taken.contains(call->top))) continue;
    found[i] = attention(*call);
    if (call->kind == AttentionKind::forward && found[i]) taken.insert(call->top);
    if (call->kind == AttentionKind::gradient && !found[i]) refused.insert(call->top);
  }
  for (std::size_t i = 0; i < found.size(); ++i)
    if (const AttentionCall* call = call_of(i); call && refused.contains(call->top)) found[i] = nullptr;
  return found;
}

}  // namespace gcomp::runtime::cuda
