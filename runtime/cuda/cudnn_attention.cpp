#include "runtime/cuda/cudnn_attention.h"

#include <limits>

#include "ir/base/integers.h"

namespace gcomp::runtime::cuda {
namespace {

using GraphTensor = CudnnGraph::Tensor;

constexpr std::int64_t kMostAttentionWorkspace = std::int64_t{1} << 30;  // bytes
constexpr std::int64_t kMostScores = 1 << 30;  // bytes of a gradient's scores, which the library stores where bits shall repeat
constexpr std::int64_t kDeltaAlignment = 256;
constexpr std::size_t kOldest = 91600;  // up to 9.15 NVIDIA's frontend works around gradients of keys that are no multiple of 128
constexpr std::int64_t kWidths = 8;     // what widths are multiples of

/// [b, h, rows, columns] as the library sees the batch.
struct AttentionSizes {
  std::int64_t b = 1, h = 1, queries = 0, keys = 0, width = 0, value_width = 0;

  CudnnExtents scores() const { return {b, h, queries, keys}; }
  CudnnExtents rows() const { return {b, h, queries, 1}; }
};

AttentionSizes sizes_of(const AttentionCall& call) {
  AttentionSizes sizes{.queries = call.queries, .keys = call.keys, .width = call.width, .value_width = call.value_width};
  if (!call.batch.empty()) sizes.b = call.batch.front();
  if (call.batch.size() > 1) sizes.h = call.batch[1];
  return sizes;
}

std::int64_t batch_stride(const MatrixView& view, std::size_t dimension) {
  return dimension < view.batch_strides.size() ? view.batch_strides[dimension] : 0;
}

/// As few parts as keep the scores of each within bounds.
std::int64_t rounds_of(const AttentionCall& call, const AttentionSizes& sizes) {
  constexpr std::int64_t kTile = 64;
  if (call.kind == AttentionKind::forward) return 1;
  const std::int64_t row = sizes.h * round_up(sizes.queries, kTile) * round_up(sizes.keys, kTile) * 2;
  std::int64_t rounds = 1;
  while (rounds < sizes.b && (sizes.b % rounds != 0 || sizes.b / rounds * row > kMostScores)) ++rounds;
  return rounds;
}

/// Whether the frontend lets such a call through without a workaround: what the library itself takes is more than what it computes.
bool is_known_good(const AttentionCall& call, std::size_t version) {
  return version >= kOldest && call.width % kWidths == 0 && call.value_width % kWidths == 0 && call.queries * call.keys > 1;
}

/// Builds the graph of one call.
class Pattern {
 public:
  Pattern(CudnnGraph& graph, const AttentionCall& call, const AttentionSizes& sizes, const AttentionBuffers& buffers)
      : graph_(graph), call_(call), sizes_(sizes), type_(*cudnn_type_of(call.dtype)) {
    tensors.q = matrix(call.q, sizes.queries, sizes.width, buffers.q);
    tensors.k = transposed(call.k, sizes.keys, sizes.width, buffers.k);
    tensors.top = graph.memory(CUDNN_DATA_FLOAT, sizes.rows(), row_major(sizes.rows()), buffers.top);
    scale = graph.scalar();
    if (call.causal) hidden = graph.scalar();
    if (call.kind == AttentionKind::forward) add_forward(buffers);
    else add_gradient(buffers);
  }

  AttentionTensors<GraphTensor> tensors;
  GraphTensor scale = 0, hidden = 0, one = 0;

 private:
  static CudnnExtents strides_of(const MatrixView& view) {
    return {batch_stride(view, 0), batch_stride(view, 1), view.row_stride, 1};
  }
  GraphTensor matrix(const MatrixView& view, std::int64_t rows, std::int64_t columns, CUdeviceptr address) {
    return graph_.memory(type_, {sizes_.b, sizes_.h, rows, columns}, strides_of(view), address);
  }
  GraphTensor transposed(const MatrixView& view, std::int64_t rows, std::int64_t columns, CUdeviceptr address) {
    CudnnExtents strides = strides_of(view);
    std::swap(strides[2], strides[3]);
    return graph_.memory(type_, {sizes_.b, sizes_.h, columns, rows}, strides, address);
  }

  GraphTensor score_like(cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor b = 0) {
    const GraphTensor y = graph_.between(CUDNN_DATA_FLOAT, sizes_.scores());
    graph_.pointwise(mode, x, b, y);
    return y;
  }
  GraphTensor row_like(cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor b = 0) {
    const GraphTensor y = graph_.between(CUDNN_DATA_FLOAT, sizes_.rows());
    graph_.pointwise(mode, x, b, y);
    return y;
  }
  GraphTensor reduced(cudnnReduceTensorOp_t operation, GraphTensor x) {
    const GraphTensor y = graph_.between(CUDNN_DATA_FLOAT, sizes_.rows());
    graph_.reduce(operation, x, y);
    return y;
  }
  GraphTensor scaled_scores() {
    const GraphTensor s = graph_.between(CUDNN_DATA_FLOAT, sizes_.scores());
    graph_.matmul(tensors.q, tensors.k, s);
    return score_like(CUDNN_POINTWISE_MUL, s, scale);
  }
  GraphTensor masked(GraphTensor scores) {
    if (!call_.causal) return scores;
    const GraphTensor row = graph_.between(CUDNN_DATA_INT32, sizes_.scores()),
                      column = graph_.between(CUDNN_DATA_INT32, sizes_.scores()),
                      open = graph_.between(CUDNN_DATA_BOOLEAN, sizes_.scores()),
                      y = graph_.between(CUDNN_DATA_FLOAT, sizes_.scores());
    graph_.index(2, scores, row);
    graph_.index(3, scores, column);
    graph_.pointwise(CUDNN_POINTWISE_CMP_GE, row, column, open);
    graph_.select(scores, hidden, open, y);
    return y;
  }

  void add_forward(const AttentionBuffers& buffers) {
    const GraphTensor scores = masked(scaled_scores());
    const GraphTensor top = reduced(CUDNN_REDUCE_TENSOR_MAX, scores);
    const GraphTensor weights = score_like(CUDNN_POINTWISE_EXP, score_like(CUDNN_POINTWISE_SUB, scores, top));
    const GraphTensor sum = reduced(CUDNN_REDUCE_TENSOR_ADD, weights);
    graph_.pointwise(CUDNN_POINTWISE_ADD, top, row_like(CUDNN_POINTWISE_LOG, sum), tensors.top);
    const GraphTensor p = graph_.between(type_, sizes_.scores());
    graph_.pointwise(CUDNN_POINTWISE_DIV, weights, sum, p);
    tensors.v = matrix(call_.v, sizes_.keys, sizes_.value_width, buffers.v);
    tensors.y = matrix(call_.y, sizes_.queries, sizes_.value_width, buffers.y);
    graph_.matmul(p, tensors.v, tensors.y);
  }

  /// x as its own transpose, in the operands' type.
  GraphTensor turned(GraphTensor x) {
    const GraphTensor y = graph_.between(type_, {sizes_.b, sizes_.h, sizes_.keys, sizes_.queries},
                                         {sizes_.h * sizes_.queries * sizes_.keys, sizes_.queries * sizes_.keys, 1, sizes_.keys});
    graph_.reshape(x, y);
    return y;
  }

  void add_gradient(const AttentionBuffers& buffers) {
    tensors.v = transposed(call_.v, sizes_.keys, sizes_.value_width, buffers.v);
    tensors.y = matrix(call_.y, sizes_.queries, sizes_.value_width, buffers.y);
    tensors.dy = matrix(call_.dy, sizes_.queries, sizes_.value_width, buffers.dy);
    tensors.dq = matrix(call_.dq, sizes_.queries, sizes_.width, buffers.dq);
    tensors.dk = matrix(call_.dk, sizes_.keys, sizes_.width, buffers.dk);
    tensors.dv = matrix(call_.dv, sizes_.keys, sizes_.value_width, buffers.dv);
    tensors.delta = graph_.memory(CUDNN_DATA_FLOAT, sizes_.rows(), row_major(sizes_.rows()), 0);
    one = graph_.scalar();
    const GraphTensor product = graph_.between(CUDNN_DATA_FLOAT, {sizes_.b, sizes_.h, sizes_.queries, sizes_.value_width});
    graph_.pointwise(CUDNN_POINTWISE_MUL, tensors.dy, tensors.y, product);
    graph_.pointwise(CUDNN_POINTWISE_MUL, reduced(CUDNN_REDUCE_TENSOR_ADD, product), one, tensors.delta);
    const GraphTensor p = score_like(CUDNN_POINTWISE_EXP, masked(score_like(CUDNN_POINTWISE_SUB, scaled_scores(), tensors.top)));
    graph_.matmul(turned(p), tensors.dy, tensors.dv);
    const GraphTensor dp = graph_.between(CUDNN_DATA_FLOAT, sizes_.scores());
    graph_.matmul(tensors.dy, tensors.v, dp);
    const GraphTensor ds = graph_.between(type_, sizes_.scores());
    graph_.pointwise(CUDNN_POINTWISE_MUL, score_like(CUDNN_POINTWISE_MUL, score_like(CUDNN_POINTWISE_SUB, dp, tensors.delta), p),
                     scale, ds);
    graph_.matmul(turned(ds), tensors.q, tensors.dk);
    const GraphTensor keys = graph_.between(type_, {sizes_.b, sizes_.h, sizes_.keys, sizes_.width}, strides_of(call_.k));
    graph_.reshape(tensors.k, keys);
    graph_.matmul(ds, keys, tensors.dq);
  }

  CudnnGraph& graph_;
  const AttentionCall& call_;
  const AttentionSizes& sizes_;
  cudnnDataType_t type_;
};

}  // namespace

std::string shape_key(const AttentionCall& call) {
  std::string text = concat(name_of(call.kind), " ", gcomp::name_of(call.dtype), call.causal ? " causal" : "", " ", call.queries,
                            " ", call.keys, " ", call.width, " ", call.value_width, " ");
  for (const std::int64_t extent : call.batch) text += concat(":", extent);
  for (const AttentionMatrix& matrix : matrices_of(call)) {
    text += concat(" ", matrix.view->row_stride);
    for (const std::int64_t stride : matrix.view->batch_strides) text += concat(":", stride);
  }
  return text;
}

CudnnAttention::CudnnAttention(std::shared_ptr<const Cudnn> library)
    : graph_(library), plans_(std::move(library), /*may_round=*/true, kMostAttentionWorkspace) {}

std::unique_ptr<CudnnAttention> CudnnAttention::plan(std::shared_ptr<const Cudnn> library, const AttentionCall& call,
                                                     const AttentionBuffers& buffers) {
  if (!is_known_good(call, library->version_number())) return nullptr;
  std::unique_ptr<CudnnAttention> made(new CudnnAttention(std::move(library)));
  AttentionSizes sizes = sizes_of(call);
  made->rounds_ = rounds_of(call, sizes);
  sizes.b /= made->rounds_;
  const Pattern pattern(made->graph_, call, sizes, buffers);
  made->tensors_ = pattern.tensors;
  made->scale_ = pattern.scale;
  made->hidden_ = pattern.hidden;
  made->one_ = pattern.one;
  if (pattern.tensors.delta) made->delta_bytes_ = round_up(sizes.b * sizes.h * sizes.queries * 4, kDeltaAlignment);
  const bool accepted = made->graph_.accepted() && made->plans_.describe(made->graph_.operations());
  return accepted && made->plans_.next() ? std::move(made) : nullptr;
}

CudnnTrial CudnnAttention::trial(const AttentionCall& call) const {
  const AttentionSizes sizes = sizes_of(call);
  CudnnTrial trial{.shape = shape_key(call), .origin = call.origin, .blocks = {}, .own_workspace = delta_bytes_, .queue = {}};
  for (const AttentionMatrix& matrix : matrices_of(call)) {
    std::int64_t last = (matrix.rows - 1) * matrix.view->row_stride + matrix.columns - 1;
    for (std::size_t d = 0; d < call.batch.size(); ++d) last += (call.batch[d] - 1) * matrix.view->batch_strides[d];
    trial.blocks.push_back({call.dtype, last + 1, matrix.written});
  }
  trial.blocks.push_back({DType::f32, sizes.b * sizes.h * sizes.queries, call.kind == AttentionKind::forward});
  trial.queue = [this, &call](const std::vector<CUdeviceptr>& at, CUdeviceptr workspace, CUstream stream) {
    AttentionBuffers buffers{.q = at[0], .k = at[1], .v = at[2], .y = at[3], .top = at.back()};
    if (call.kind == AttentionKind::gradient) {
      buffers.dy = at[4];
      buffers.dq = at[5];
      buffers.dk = at[6];
      buffers.dv = at[7];
    }
    queue(call, buffers, workspace, stream);
  };
  return trial;
}

void CudnnAttention::queue(const AttentionCall& call, AttentionBuffers buffers, CUdeviceptr workspace, CUstream stream) const {
  const AttentionSizes sizes = sizes_of(call);
  const std::int64_t rows = sizes.b / rounds_;
  float scale = static_cast<float>(call.scale), one = 1, hidden = -std::numeric_limits<float>::infinity();
  buffers.delta = workspace;
  const auto width = static_cast<CUdeviceptr>(size_of(call.dtype));
  for (std::int64_t round = 0; round < rounds_; ++round) {
    CudnnBinding binding;
    const auto add_at = [&](GraphTensor tensor, CUdeviceptr address) {
      if (tensor) binding.add(tensor, address);
    };
    const auto add = [&](GraphTensor tensor, CUdeviceptr address, const MatrixView& view) {
      add_at(tensor, address + static_cast<CUdeviceptr>(round * rows * batch_stride(view, 0)) * width);
    };
    const auto add_value = [&](GraphTensor tensor, float& value) { add_at(tensor, reinterpret_cast<CUdeviceptr>(&value)); };
    add(tensors_.q, buffers.q, call.q);
    add(tensors_.k, buffers.k, call.k);
    add(tensors_.v, buffers.v, call.v);
    add(tensors_.y, buffers.y, call.y);
    add(tensors_.dy, buffers.dy, call.dy);
    add(tensors_.dq, buffers.dq, call.dq);
    add(tensors_.dk, buffers.dk, call.dk);
    add(tensors_.dv, buffers.dv, call.dv);
    add_at(tensors_.top, buffers.top + static_cast<CUdeviceptr>(round * rows * sizes.h * sizes.queries * 4));
    add_at(tensors_.delta, buffers.delta);
    add_value(scale_, scale);
    add_value(hidden_, hidden);
    add_value(one_, one);
    plans_.queue(binding, workspace + static_cast<CUdeviceptr>(delta_bytes_), stream, call.origin);
  }
}

}  // namespace gcomp::runtime::cuda
