// f32 convolutions through oneDNN. The batch is cut into chunks, each one single-threaded primitive with its activations brought
// into oneDNN's layout just before, in the thread's own scratch. Chunks come from the shape alone. A weight gradient has one
// partial sum for each chunk, added in order.
#include <array>
#include <atomic>
#include <cstring>
#include <optional>

#include "ir/base/error.h"
#include "runtime/cpu/convolution.h"
#include "runtime/cpu/convolution_shape.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/openmp.h"
#include "runtime/cpu/weight_reorder.h"

namespace gcomp::runtime::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
using Dims = dnnl::memory::dims;

constexpr std::int64_t kMaxChunks = 16;
// At least this many multiplications a chunk: the call and its reorders cost some microseconds.
constexpr std::int64_t kChunkSize = 2'000'000;
// A partial weight gradient costs, for each weight, as much time as this many multiplications.
constexpr std::int64_t kPartialCost = 50;

/// One primitive over some images, in the layouts that oneDNN wants.
struct Described {
  dnnl::primitive primitive;
  Desc input, weight, output, scratchpad;
  bool reference = false;  // oneDNN has no fast form
};

template <class PrimitiveDesc>
bool is_reference(const PrimitiveDesc& desc) {
  return std::strncmp(desc.impl_info_str(), "ref", 3) == 0;
}

dnnl::convolution_forward::primitive_desc describe_forward(const ConvolutionCall& call, const Desc& x, const Desc& w,
                                                           const Desc& y) {
  Dims dilations = call.dilations;
  for (auto& dilation : dilations) --dilation;
  const auto kind = dnnl::prop_kind::forward_training;
  const auto direct = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), kind, direct, x, w, y, call.strides, dilations, call.pads_begin, call.pads_end, onednn_attributes()};
#else
  return {dnnl::convolution_forward::desc(kind, direct, x, w, y, call.strides, dilations, call.pads_begin, call.pads_end),
          onednn_attributes(), onednn_engine()};
#endif
}

Described describe_input_gradient(const ConvolutionCall& call, const Desc& x, const Desc& w, const Desc& y) {
  Dims dilations = call.dilations;
  for (auto& dilation : dilations) --dilation;
  const auto direct = dnnl::algorithm::convolution_direct;
  const auto hint = describe_forward(call, x, w, y);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::convolution_backward_data::primitive_desc desc(onednn_engine(), direct, x, w, y, call.strides, dilations,
                                                             call.pads_begin, call.pads_end, hint, onednn_attributes());
#else
  const dnnl::convolution_backward_data::primitive_desc desc(
      dnnl::convolution_backward_data::desc(direct, x, w, y, call.strides, dilations, call.pads_begin, call.pads_end),
      onednn_attributes(), onednn_engine(), hint);
#endif
  return {dnnl::convolution_backward_data(desc),
          desc.diff_src_desc(),
          desc.weights_desc(),
          desc.diff_dst_desc(),
          desc.scratchpad_desc(),
          is_reference(desc)};
}

Described describe_weight_gradient(const ConvolutionCall& call, const Desc& x, const Desc& w, const Desc& y) {
  Dims dilations = call.dilations;
  for (auto& dilation : dilations) --dilation;
  const auto direct = dnnl::algorithm::convolution_direct;
  const auto hint = describe_forward(call, x, w, y);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::convolution_backward_weights::primitive_desc desc(onednn_engine(), direct, x, w, y, call.strides, dilations,
                                                                call.pads_begin, call.pads_end, hint, onednn_attributes());
#else
  const dnnl::convolution_backward_weights::primitive_desc desc(
      dnnl::convolution_backward_weights::desc(direct, x, w, y, call.strides, dilations, call.pads_begin, call.pads_end),
      onednn_attributes(), onednn_engine(), hint);
#endif
  return {dnnl::convolution_backward_weights(desc),
          desc.src_desc(),
          desc.diff_weights_desc(),
          desc.diff_dst_desc(),
          desc.scratchpad_desc(),
          is_reference(desc)};
}

Described describe(const ConvolutionCall& call, const Desc& x, const Desc& w, const Desc& y) {
  switch (call.kind) {
    case ConvolutionKind::input_gradient: return describe_input_gradient(call, x, w, y);
    case ConvolutionKind::weight_gradient: return describe_weight_gradient(call, x, w, y);
    case ConvolutionKind::forward: break;
  }
  const auto desc = describe_forward(call, x, w, y);
  return {dnnl::convolution_forward(desc), desc.src_desc(),   desc.weights_desc(), desc.dst_desc(),
          desc.scratchpad_desc(),          is_reference(desc)};
}

Tag plain_tag(const ConvolutionCall& call) {
  static constexpr Tag kChannelsFirst[] = {Tag::ncw, Tag::nchw, Tag::ncdhw}, kChannelsLast[] = {Tag::nwc, Tag::nhwc, Tag::ndhwc};
  const std::size_t index = call.input_spatial.size() - 1;
  return call.channels_last ? kChannelsLast[index] : kChannelsFirst[index];
}

Desc activation_desc(std::int64_t images, std::int64_t channels, const std::vector<std::int64_t>& spatial, Tag tag) {
  Dims dims = {images, channels};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  return {dims, dnnl::memory::data_type::f32, tag};
}

Desc weight_desc(const ConvolutionCall& call, Tag tag) {
  Dims dims = {call.output_channels / call.groups, call.input_channels / call.groups};
  if (call.groups > 1) dims.insert(dims.begin(), call.groups);
  dims.insert(dims.end(), call.kernel.begin(), call.kernel.end());
  static constexpr Tag kPlain[] = {Tag::undef, Tag::a, Tag::ab, Tag::abc, Tag::abcd, Tag::abcde, Tag::abcdef};
  return {dims, dnnl::memory::data_type::f32, tag == Tag::any ? tag : kPlain[dims.size()]};
}

/// Measured (bench of single-threaded oneDNN 2.6, AVX-512): with channels last, oneDNN's kernels work in place; with channels
/// first, going through its blocked layout wins, except for 1x1 kernels, which are a plain matrix product.
Tag layout_for(const ConvolutionCall& call) {
  if (call.channels_last) return plain_tag(call);
  const auto all = [](const std::vector<std::int64_t>& values, std::int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [wanted](std::int64_t value) { return value == wanted; });
  };
  const bool product =
      call.groups == 1 && all(call.kernel, 1) && all(call.strides, 1) && all(call.pads_begin, 0) && all(call.pads_end, 0);
  return product && call.kind != ConvolutionKind::weight_gradient ? plain_tag(call) : Tag::any;
}

/// oneDNN computes a gradient for few input channels as for sixteen; the matrix product does not.
bool wastes_channels(const ConvolutionCall& call) {
  return call.kind == ConvolutionKind::input_gradient && call.groups == 1 && call.input_channels <= 4;
}

std::int64_t chunk_count(const ConvolutionCall& call) {
  const ConvolutionShape shape = shape_of(call);
  std::int64_t chunks = std::clamp<std::int64_t>(shape.multiplications() / kChunkSize, 1, std::min(call.batch, kMaxChunks));
  if (call.kind == ConvolutionKind::weight_gradient)
    // At most a tenth of the time for partial sums, but two chunks at least where there is work for them.
    while (chunks > 2 && chunks * shape.weights() * kPartialCost * 10 > shape.multiplications()) chunks /= 2;
  return chunks;
}

class OneDnnConvolution final : public LibraryCall {
 public:
  OneDnnConvolution(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : kind_(call.kind), origin_(call.origin), plain_weight_(weight_desc(call, Tag::undef)), weight_(operands.weight) {
    const std::int64_t chunks = chunk_count(call);
    const std::int64_t images = (call.batch + chunks - 1) / chunks;
    add_piece(call, images, weight_desc(call, Tag::any));
    internal_weight_ = pieces_[0].described.weight;
    if (call.batch % images) add_piece(call, call.batch % images, internal_weight_);
    for (std::int64_t first = 0; first < call.batch; first += images) {
      const Piece& piece = first + images <= call.batch ? pieces_[0] : pieces_[1];
      const auto offset = [&](const Desc& desc) { return first * static_cast<std::int64_t>(desc.get_size()) / piece.images; };
      chunks_.push_back({&piece == &pieces_[0] ? 0u : 1u,
                         onednn_memory(piece.plain_input, operands.input + offset(piece.plain_input)),
                         onednn_memory(piece.plain_output, operands.output + offset(piece.plain_output)),
                         {}});
    }
    reorders_weight_ = internal_weight_ != plain_weight_;
  }

  /// False where the unfolded form is faster.
  bool is_fast() const {
    return std::none_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.described.reference; });
  }

  WorkspaceSize workspace() const override {
    const bool partials = kind_ == ConvolutionKind::weight_gradient && (chunks_.size() > 1 || reorders_weight_);
    WorkspaceSize size;
    if (partials) size.shared = static_cast<std::int64_t>(chunks_.size()) * onednn_size(internal_weight_);
    else if (reorders_weight_) size.shared = onednn_size(internal_weight_);
    for (const Piece& piece : pieces_)
      size.per_thread = std::max(size.per_thread, piece.input_bytes() + piece.output_bytes() + piece.scratchpad_bytes());
    return size;
  }

  void bind(const Workspace& workspace, int threads) override {
    streams_ = onednn_streams(threads);
    for (Piece& piece : pieces_) {
      if (piece.reorders_input) piece.inputs = onednn_thread_memories(piece.described.input, workspace, 0, threads);
      if (piece.reorders_output)
        piece.outputs = onednn_thread_memories(piece.described.output, workspace, piece.input_bytes(), threads);
      piece.scratchpads =
          onednn_thread_memories(piece.described.scratchpad, workspace, piece.input_bytes() + piece.output_bytes(), threads);
    }
    const bool partials = kind_ == ConvolutionKind::weight_gradient && (chunks_.size() > 1 || reorders_weight_);
    partials_ = partials || reorders_weight_ ? workspace.shared : weight_;
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      const auto offset = partials ? static_cast<std::int64_t>(i) * onednn_size(internal_weight_) : 0;
      chunks_[i].weight = onednn_memory(internal_weight_, partials_ + offset);
    }
    if (!reorders_weight_) return;
    if (kind_ == ConvolutionKind::weight_gradient) weight_reorder_.emplace(internal_weight_, partials_, plain_weight_, weight_);
    else weight_reorder_.emplace(plain_weight_, weight_, internal_weight_, partials_);
  }

  void run(ThreadPool& pool) override {
    bool done = true;
    if (reorders_weight_ && kind_ != ConvolutionKind::weight_gradient) done = weight_reorder_->run(pool, streams_);
    pool.run(static_cast<std::int64_t>(chunks_.size()), [this](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t i = first; i < last; ++i)
        if (!run_chunk(chunks_[static_cast<std::size_t>(i)], static_cast<std::size_t>(thread))) failed_ = true;
    });
    if (kind_ == ConvolutionKind::weight_gradient) {
      if (chunks_.size() > 1) add_partials(pool);
      if (reorders_weight_) done = weight_reorder_->run(pool, streams_);
    }
    if (failed_.exchange(false) || !done) throw InternalError(concat(origin_, ": oneDNN failed to run a convolution"));
  }

 private:
  struct Piece {
    std::int64_t images;
    Desc plain_input, plain_output;  // as the program holds them
    Described described;
    bool reorders_input, reorders_output;
    dnnl::primitive input_reorder, output_reorder;
    std::vector<dnnl::memory> inputs, outputs, scratchpads;  // of each thread

    std::int64_t input_bytes() const { return reorders_input ? onednn_size(described.input) : 0; }
    std::int64_t output_bytes() const { return reorders_output ? onednn_size(described.output) : 0; }
    std::int64_t scratchpad_bytes() const { return onednn_size(described.scratchpad); }
  };
  struct Chunk {
    std::size_t piece;
    dnnl::memory input, output;  // the program's
    dnnl::memory weight;         // internal
  };

  void add_piece(const ConvolutionCall& call, std::int64_t images, const Desc& weight) {
    const Tag layout = layout_for(call);
    Piece piece{};
    piece.images = images;
    piece.plain_input = activation_desc(images, call.input_channels, call.input_spatial, plain_tag(call));
    piece.plain_output = activation_desc(images, call.output_channels, call.output_spatial, plain_tag(call));
    piece.described = describe(call, activation_desc(images, call.input_channels, call.input_spatial, layout), weight,
                               activation_desc(images, call.output_channels, call.output_spatial, layout));
    piece.reorders_input = piece.described.input != piece.plain_input;
    piece.reorders_output = piece.described.output != piece.plain_output;
    const bool writes_input = kind_ == ConvolutionKind::input_gradient, writes_output = kind_ == ConvolutionKind::forward;
    if (piece.reorders_input) piece.input_reorder = make_reorder(piece.plain_input, piece.described.input, writes_input);
    if (piece.reorders_output) piece.output_reorder = make_reorder(piece.plain_output, piece.described.output, writes_output);
    pieces_.push_back(std::move(piece));
  }

  static dnnl::primitive make_reorder(const Desc& plain, const Desc& internal, bool outwards) {
    const Desc &from = outwards ? internal : plain, &to = outwards ? plain : internal;
    return dnnl::reorder(dnnl::reorder::primitive_desc(onednn_engine(), from, onednn_engine(), to));
  }

  bool run_reorder(const dnnl::primitive& reorder, const dnnl::memory& from, const dnnl::memory& to, std::size_t thread) const {
    return onednn_execute(reorder, streams_[thread], {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}});
  }

  bool run_chunk(const Chunk& chunk, std::size_t thread) const {
    const Piece& piece = pieces_[chunk.piece];
    const dnnl::memory& input = piece.reorders_input ? piece.inputs[thread] : chunk.input;
    const dnnl::memory& output = piece.reorders_output ? piece.outputs[thread] : chunk.output;
    const bool writes_input = kind_ == ConvolutionKind::input_gradient, writes_output = kind_ == ConvolutionKind::forward;
    bool done = true;
    if (piece.reorders_input && !writes_input) done = run_reorder(piece.input_reorder, chunk.input, input, thread);
    if (piece.reorders_output && !writes_output) done = done && run_reorder(piece.output_reorder, chunk.output, output, thread);
    const bool writes_weight = kind_ == ConvolutionKind::weight_gradient;
    done = done && onednn_execute(piece.described.primitive, streams_[thread],
                                  {{writes_input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, input.get()},
                                   {writes_weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, chunk.weight.get()},
                                   {writes_output ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, output.get()},
                                   {DNNL_ARG_SCRATCHPAD, handle_of(piece.scratchpads[thread])}});
    if (piece.reorders_input && writes_input) done = done && run_reorder(piece.input_reorder, input, chunk.input, thread);
    if (piece.reorders_output && writes_output) done = done && run_reorder(piece.output_reorder, output, chunk.output, thread);
    return done;
  }

  /// Into the first partial sum, or straight into the result where its layout is the same. Sums are rounded once, at the end.
  void add_partials(ThreadPool& pool) const {
    const auto count = static_cast<std::int64_t>(internal_weight_.get_size() / sizeof(float));
    const std::int64_t stride = onednn_size(internal_weight_) / static_cast<std::int64_t>(sizeof(float));
    const auto* partials = reinterpret_cast<const float*>(partials_);
    auto* sum = reinterpret_cast<float*>(reorders_weight_ ? partials_ : weight_);
    constexpr std::int64_t kTask = 4096, kBlock = 64;
    pool.run((count + kTask - 1) / kTask, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t begin = first * kTask; begin < std::min(last * kTask, count); begin += kBlock) {
        const std::int64_t size = std::min(kBlock, count - begin);
        std::array<double, kBlock> total{};
        for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
          const float* partial = partials + static_cast<std::int64_t>(chunk) * stride + begin;
          for (std::int64_t i = 0; i < size; ++i) total[static_cast<std::size_t>(i)] += static_cast<double>(partial[i]);
        }
        for (std::int64_t i = 0; i < size; ++i) sum[begin + i] = static_cast<float>(total[static_cast<std::size_t>(i)]);
      }
    });
  }

  ConvolutionKind kind_;
  std::string origin_;
  Desc plain_weight_, internal_weight_;
  std::byte* weight_;
  bool reorders_weight_ = false;
  std::vector<Piece> pieces_;  // of the usual number of images, and of the rest of the batch
  std::vector<Chunk> chunks_;
  std::byte* partials_ = nullptr;
  std::optional<WeightReorder> weight_reorder_;
  std::vector<dnnl::stream> streams_;
  std::atomic<bool> failed_{false};
};

}  // namespace

std::unique_ptr<LibraryCall> make_onednn_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  if (wastes_channels(call)) return nullptr;
  const SingleThreadedOpenMp single_threaded;
  try {
    auto convolution = std::make_unique<OneDnnConvolution>(call, operands);
    if (!convolution->is_fast()) return nullptr;
    return convolution;
  } catch (const dnnl::error& error) {
    // oneDNN does not know negative pads, nor an input that ends behind the last window by a whole stride.
    if (error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments) return nullptr;
    throw_onednn_error(call.origin, "preparing a convolution", error);
  }
}

}  // namespace gcomp::runtime::cpu
