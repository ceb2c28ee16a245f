// Convolution as matrix products over unfolded input ("im2col"): the patch under each output position becomes a column, in blocks
// of positions that stay in cache. One task is one group of one image; weight gradients go to a fixed number of partial sums.
#include <algorithm>
#include <cstring>

#include "ir/base/error.h"
#include "runtime/cpu/convolution.h"
#include "runtime/cpu/convolution_shape.h"
#include "runtime/cpu/gemm.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kBlockElements = 1 << 16;
constexpr std::int64_t kMaxPartials = 16;

/// Walks the patch matrix [group_inputs * taps, positions p0 .. p1) of one group of one image: calls visit(row, column, count,
/// offset) for each run of `count` neighbouring positions whose input lies inside, the first at element `offset`, the next ones
/// stride[2] positions on; and skip(row, column, count) for runs in the padding.
template <class Visit, class Skip>
void walk_patches(const ConvolutionShape& s, std::int64_t p0, std::int64_t p1, Visit visit, Skip skip) {
  const std::int64_t width = s.output[2];
  std::int64_t row = 0;
  for (std::int64_t channel = 0; channel < s.group_inputs; ++channel)
    for (std::int64_t kd = 0; kd < s.kernel[0]; ++kd)
      for (std::int64_t kh = 0; kh < s.kernel[1]; ++kh)
        for (std::int64_t kw = 0; kw < s.kernel[2]; ++kw, ++row)
          for (std::int64_t p = p0; p < p1;) {
            const std::int64_t w0 = p % width, count = std::min(width - w0, p1 - p), line = p / width;
            const std::int64_t d = line / s.output[1] * s.stride[0] + kd * s.dilation[0] - s.pad[0];
            const std::int64_t h = line % s.output[1] * s.stride[1] + kh * s.dilation[1] - s.pad[1];
            const bool inside = d >= 0 && d < s.input[0] && h >= 0 && h < s.input[1];
            const std::int64_t base = kw * s.dilation[2] - s.pad[2], step = s.stride[2];
            // Output columns [low, high) read inside the line.
            const std::int64_t low = base >= 0 ? 0 : (-base + step - 1) / step;
            const std::int64_t high = s.input[2] - 1 - base < 0 ? 0 : (s.input[2] - 1 - base) / step + 1;
            const std::int64_t begin = inside ? std::clamp(low, w0, w0 + count) : w0 + count;
            const std::int64_t end = inside ? std::clamp(high, begin, w0 + count) : w0 + count;
            const std::int64_t column = p - p0;
            if (begin > w0) skip(row, column, begin - w0);
            if (end > begin) {
              const std::int64_t position = (d * s.input[1] + h) * s.input[2] + base + begin * step;
              visit(row, column + begin - w0, end - begin, channel * s.input_strides.channel + position * s.input_strides.position);
            }
            if (end < w0 + count) skip(row, column + end - w0, w0 + count - end);
            p += count;
          }
}

template <class T>
class UnfoldedConvolution final : public LibraryCall {
 public:
  UnfoldedConvolution(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : kind_(call.kind),
        s_(shape_of(call)),
        gemm_(sizeof(T) == 8 ? operands.backend.gemm->f64 : operands.backend.gemm->f32),
        input_(reinterpret_cast<T*>(operands.input)),
        weight_(reinterpret_cast<T*>(operands.weight)),
        output_(reinterpret_cast<T*>(operands.output)) {
    rows_ = s_.group_inputs * s_.taps();
    block_ = std::clamp<std::int64_t>(kBlockElements / rows_ / 16 * 16, 16, std::max<std::int64_t>(16, s_.positions()));
    const std::int64_t images = (s_.batch + kMaxPartials - 1) / kMaxPartials;
    images_per_partial_ = std::max<std::int64_t>(images, 1);
    partials_ = (s_.batch + images_per_partial_ - 1) / images_per_partial_;
  }

  WorkspaceSize workspace() const override {
    const auto element = static_cast<std::int64_t>(sizeof(T));
    WorkspaceSize size{0, gemm_scratch_bytes() + aligned_size(rows_ * block_ * element)};
    if (kind_ == ConvolutionKind::weight_gradient) {
      size.shared = partials_ * s_.weights() * element;
      size.per_thread += aligned_size(s_.group_outputs * rows_ * element);
    }
    return size;
  }

  void bind(const Workspace& workspace, int) override { workspace_ = workspace; }

  void run(ThreadPool& pool) override {
    if (kind_ == ConvolutionKind::weight_gradient) return run_weight_gradient(pool);
    pool.run(s_.batch * s_.groups, [this](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t i = first; i < last; ++i) {
        if (kind_ == ConvolutionKind::forward) run_forward(i / s_.groups, i % s_.groups, thread);
        else run_input_gradient(i / s_.groups, i % s_.groups, thread);
      }
    });
  }

 private:
  T* input_of(std::int64_t image, std::int64_t group) const {
    return input_ + image * s_.input_strides.image + group * s_.group_inputs * s_.input_strides.channel;
  }
  T* output_of(std::int64_t image, std::int64_t group) const {
    return output_ + image * s_.output_strides.image + group * s_.group_outputs * s_.output_strides.channel;
  }
  T* weight_of(std::int64_t group) const { return weight_ + group * s_.group_outputs * rows_; }
  T* patches_of(int thread) const { return reinterpret_cast<T*>(workspace_.of_thread(thread) + gemm_scratch_bytes()); }
  T* product_of(int thread) const {
    return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(patches_of(thread)) +
                                aligned_size(rows_ * block_ * static_cast<std::int64_t>(sizeof(T))));
  }

  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, StridedMatrix a, StridedMatrix b, StridedMatrix c,
                int thread) const {
    if (c.column != 1 && c.row == 1) {
      std::swap(m, n);
      std::swap(a, b);
      for (StridedMatrix* matrix : {&a, &b, &c}) std::swap(matrix->row, matrix->column);
    }
    gemm_.multiply({m, n, k, a, b, c, workspace_.of_thread(thread)});
  }

  void unfold(const T* image, std::int64_t p0, std::int64_t p1, T* patches) const {
    const std::int64_t step = s_.stride[2] * s_.input_strides.position, columns = p1 - p0;
    walk_patches(
        s_, p0, p1,
        [&](std::int64_t row, std::int64_t column, std::int64_t count, std::int64_t offset) {
          T* target = patches + row * columns + column;
          if (step == 1) std::memcpy(target, image + offset, static_cast<std::size_t>(count) * sizeof(T));
          else
            for (std::int64_t i = 0; i < count; ++i) target[i] = image[offset + i * step];
        },
        [&](std::int64_t row, std::int64_t column, std::int64_t count) {
          std::fill_n(patches + row * columns + column, count, T(0));
        });
  }

  void fold(const T* patches, std::int64_t p0, std::int64_t p1, T* image) const {
    const std::int64_t step = s_.stride[2] * s_.input_strides.position, columns = p1 - p0;
    walk_patches(
        s_, p0, p1,
        [&](std::int64_t row, std::int64_t column, std::int64_t count, std::int64_t offset) {
          const T* source = patches + row * columns + column;
          for (std::int64_t i = 0; i < count; ++i) image[offset + i * step] += source[i];
        },
        [](std::int64_t, std::int64_t, std::int64_t) {});
  }

  StridedMatrix output_block(std::int64_t image, std::int64_t group, std::int64_t p0) const {
    return {output_of(image, group) + p0 * s_.output_strides.position, s_.output_strides.channel, s_.output_strides.position};
  }

  void run_forward(std::int64_t image, std::int64_t group, int thread) const {
    T* patches = patches_of(thread);
    for (std::int64_t p0 = 0; p0 < s_.positions(); p0 += block_) {
      const std::int64_t count = std::min(block_, s_.positions() - p0);
      unfold(input_of(image, group), p0, p0 + count, patches);
      multiply(s_.group_outputs, count, rows_, {weight_of(group), rows_, 1}, {patches, count, 1}, output_block(image, group, p0),
               thread);
    }
  }

  void run_input_gradient(std::int64_t image, std::int64_t group, int thread) const {
    T* patches = patches_of(thread);
    T* target = input_of(image, group);
    for (std::int64_t channel = 0; channel < s_.group_inputs; ++channel)
      for (std::int64_t p = 0; p < s_.input_positions(); ++p)
        target[channel * s_.input_strides.channel + p * s_.input_strides.position] = T(0);
    for (std::int64_t p0 = 0; p0 < s_.positions(); p0 += block_) {
      const std::int64_t count = std::min(block_, s_.positions() - p0);
      multiply(rows_, count, s_.group_outputs, {weight_of(group), 1, rows_}, output_block(image, group, p0), {patches, count, 1},
               thread);
      fold(patches, p0, p0 + count, target);
    }
  }

  void add_weight_gradient(std::int64_t image, std::int64_t group, bool first, T* sum, int thread) const {
    T *patches = patches_of(thread), *product = product_of(thread);
    const std::int64_t weights = s_.group_outputs * rows_;
    for (std::int64_t p0 = 0; p0 < s_.positions(); p0 += block_) {
      const std::int64_t count = std::min(block_, s_.positions() - p0);
      unfold(input_of(image, group), p0, p0 + count, patches);
      multiply(s_.group_outputs, rows_, count, output_block(image, group, p0), {patches, 1, count}, {product, rows_, 1}, thread);
      if (first && p0 == 0) std::copy_n(product, weights, sum);
      else
        for (std::int64_t i = 0; i < weights; ++i) sum[i] += product[i];
    }
  }

  void run_weight_gradient(ThreadPool& pool) const {
    T* partials = partials_ == 1 ? weight_ : reinterpret_cast<T*>(workspace_.shared);
    pool.run(partials_ * s_.groups, [&](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t group = i % s_.groups, partial = i / s_.groups, begin = partial * images_per_partial_;
        T* sum = partials + partial * s_.weights() + group * s_.group_outputs * rows_;
        for (std::int64_t image = begin; image < std::min(s_.batch, begin + images_per_partial_); ++image)
          add_weight_gradient(image, group, image == begin, sum, thread);
      }
    });
    if (partials_ == 1) return;
    constexpr std::int64_t kTask = 4096;
    pool.run((s_.weights() + kTask - 1) / kTask, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first * kTask; i < std::min(last * kTask, s_.weights()); ++i) {
        double sum = 0;  // rounded once, at the end
        for (std::int64_t partial = 0; partial < partials_; ++partial)
          sum += static_cast<double>(partials[partial * s_.weights() + i]);
        weight_[i] = static_cast<T>(sum);
      }
    });
  }

  ConvolutionKind kind_;
  ConvolutionShape s_;
  GemmFunction gemm_;
  T *input_, *weight_, *output_;
  std::int64_t rows_ = 0, block_ = 0, images_per_partial_ = 1, partials_ = 1;
  Workspace workspace_;
};

}  // namespace

std::unique_ptr<LibraryCall> make_unfolded_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  if (call.dtype == DType::f64) return std::make_unique<UnfoldedConvolution<double>>(call, operands);
  check_internal(call.dtype == DType::f32, call.origin, ": no unfolded convolution of ", name_of(call.dtype));
  return std::make_unique<UnfoldedConvolution<float>>(call, operands);
}

}  // namespace gcomp::runtime::cpu
