// What cuDNN computes of one program: plans that repeat their bits, made once for each shape and alignment.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/cudnn_attention.h"
#include "runtime/cuda/cudnn_convolution.h"
#include "runtime/cuda/cudnn_proof.h"
#include "runtime/cuda/session.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace gcomp::runtime::cuda {

class CudnnChoices {
 public:
  /// Keeps references to all.
  CudnnChoices(const Session& session, const Program& program, const DeviceOptions& options);

  /// Null, with a line to the log, where generated kernels compute the convolution.
  std::shared_ptr<const CudnnConvolution> convolution(const ConvolutionCall& call);
  /// Of each step, likewise. Where the library computes no gradient that it is asked for, it leaves the forward pass too.
  std::vector<std::shared_ptr<const CudnnAttention>> attentions();
  /// Keeps what was found of the plans.
  void save() { proof_.save(); }

 private:
  template <class Planned, class Call, class Buffers>
  std::shared_ptr<Planned> make(const Call& call, const Buffers& buffers);
  std::shared_ptr<const CudnnAttention> attention(const AttentionCall& call);

  const Session& session_;
  const Program& program_;
  const DeviceOptions& options_;
  CudnnProof proof_;
  std::map<std::string, std::shared_ptr<const CudnnConvolution>> convolutions_;
  std::map<std::string, std::shared_ptr<const CudnnAttention>> attentions_;
};

/// The addresses of an attention's matrices and rows, where `address` gives those of buffers.
template <class AddressOf>
AttentionBuffers attention_buffers(const AttentionCall& call, const AddressOf& address_of) {
  const auto width = static_cast<CUdeviceptr>(size_of(call.dtype));
  const auto at = [&](const MatrixView& view) { return address_of(view.buffer) + static_cast<CUdeviceptr>(view.offset) * width; };
  AttentionBuffers buffers{.q = at(call.q), .k = at(call.k), .v = at(call.v), .y = at(call.y), .top = address_of(call.top)};
  if (call.kind == AttentionKind::forward) return buffers;
  buffers.dy = at(call.dy);
  buffers.dq = at(call.dq);
  buffers.dk = at(call.dk);
  buffers.dv = at(call.dv);
  return buffers;
}

/// An algorithm is chosen by alignment alone, and blocks of memory are aligned to more than any offset in them.
CUdeviceptr position_of(const Program& program, int buffer);

}  // namespace gcomp::runtime::cuda
