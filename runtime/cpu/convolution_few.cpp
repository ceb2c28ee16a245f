#include "runtime/cpu/convolution_few.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ir/base/integers.h"
#include "runtime/cpu/convolution_grid.h"
#include "runtime/cpu/convolution_panels.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kMostResults = 4, kFewestSummed = 32;
constexpr std::int64_t kBlockProducts = 1 << 16;  // elements of what taps make of some lines: they stay in the second cache
constexpr std::int64_t kTasksOfThread = 4;
constexpr std::int64_t kMostPartsOfLines = 16, kFewestPositionsOfPart = 2048;

/// What the kinds have in common: a source of channels, read by the taps of few results.
struct FewResults {
  FewResults(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : shape(shape_of(call)), grid(std::move(tap_grids(shape, call.kind).front())), gemm(operands.backend.gemm->f32) {
    const bool gradient = call.kind == ConvolutionKind::input_gradient;
    source = gradient ? shape.output : shape.input;
    result = gradient ? shape.input : shape.output;
    channels = gradient ? shape.group_outputs : shape.group_inputs;
    results = gradient ? shape.group_inputs : shape.group_outputs;
    taps = static_cast<std::int64_t>(grid.taps.size());
    order = {taps, shape.group_inputs * taps, taps};
    if (gradient) std::swap(order.result_step, order.channel_step);
    const auto [least, most] = std::ranges::minmax(grid.along[1]);
    first_line = least, last_line = most;
  }

  std::int64_t columns() const { return taps * results; }
  /// Lines of the source, or of the result, of all images.
  std::int64_t planes() const { return shape.batch * source[0]; }
  std::int64_t source_line() const { return source[2] * channels; }
  std::int64_t result_line() const { return result[2] * results; }
  /// Lines whose products are one block, about.
  std::int64_t block_lines() const { return std::clamp<std::int64_t>(kBlockProducts / (source[2] * columns()), 1, source[1]); }

  ConvolutionShape shape;
  TapGrid grid;
  GemmFunction gemm;
  ConvolutionShape::Triple source, result;
  std::int64_t channels, results, taps;
  WeightOrder order;
  std::int64_t first_line, last_line;  ///< that a line of the result reads, beside its own number
};

/// Places along a line, [first, end), at which a tap that reads `offset` further on reads within a source of such a width.
struct Within {
  std::int64_t first, end;
};
Within within(std::int64_t offset, std::int64_t width, std::int64_t source_width) {
  const std::int64_t first = std::clamp<std::int64_t>(-offset, 0, width);
  return {first, std::clamp(source_width - offset, first, width)};
}

class FewResultsConvolution final : public LibraryCall {
 public:
  FewResultsConvolution(const ConvolutionCall& call, const ConvolutionOperands& operands) : few_(call, operands) {
    const bool forward = call.kind == ConvolutionKind::forward;
    weight_ = reinterpret_cast<const float*>(operands.weight);
    input_ = reinterpret_cast<float*>(forward ? operands.input : operands.output);
    target_ = reinterpret_cast<float*>(forward ? operands.output : operands.input);
    lines_ = few_.block_lines();
  }

  WorkspaceSize workspace() const override {
    return {aligned_size(matrix_elements() * kElement) + gemm_packed_b_bytes(few_.columns(), few_.channels, kElement),
            gemm_scratch_bytes() + aligned_size(few_.columns() * most_positions() * kElement) +
                aligned_size(few_.result[2] * kElement)};
  }

  void bind(const Workspace& workspace, int threads) override {
    workspace_ = workspace;
    while (lines_ > 1 && few_.planes() * quotient_up(few_.result[1], lines_) < kTasksOfThread * threads) lines_ = (lines_ + 1) / 2;
  }

  void run(ThreadPool& pool) override {
    pool.run(few_.taps, [this](std::int64_t first, std::int64_t last, int) {
      for (; first < last; ++first) order_weights(first);
    });
    const GemmBlock weights = product(nullptr, 0, nullptr, 0);
    pool.run(gemm_pack_b_tasks(few_.columns(), few_.channels, few_.gemm.depth), [&](std::int64_t first, std::int64_t last, int) {
      for (; first < last; ++first) few_.gemm.pack_b(weights, first);
    });
    const std::int64_t bands = quotient_up(few_.result[1], lines_);
    pool.run(few_.planes() * bands, [&](std::int64_t first, std::int64_t last, int thread) {
      for (; first < last; ++first) run_band(first / bands, first % bands * lines_, thread);
    });
  }

 private:
  static constexpr std::int64_t kElement = sizeof(float);

  std::int64_t matrix_elements() const { return few_.channels * few_.columns(); }
  /// Of the source, for a block's lines.
  std::int64_t most_positions() const {
    return std::min(few_.source[1], few_.block_lines() + few_.last_line - few_.first_line) * few_.source[2];
  }

  float* matrix() const { return reinterpret_cast<float*>(workspace_.shared); }

  /// The weights of a tap as columns: [channel][tap][result].
  void order_weights(std::int64_t tap) const {
    for (std::int64_t c = 0; c < few_.channels; ++c)
      for (std::int64_t r = 0; r < few_.results; ++r)
        matrix()[c * few_.columns() + tap * few_.results + r] = weight_[r * few_.order.result_step + c * few_.order.channel_step +
                                                                        few_.grid.taps[static_cast<std::size_t>(tap)].weight];
  }

  /// Source positions by all columns, each of which goes to a line of `to`.
  GemmBlock product(const float* from, std::int64_t positions, float* to, std::int64_t line) const {
    GemmBlock block;
    block.m = positions, block.n = few_.columns(), block.k = few_.channels;
    block.a = {const_cast<float*>(from), few_.channels, 1};
    block.b = {matrix(), few_.columns(), 1};
    block.c = {to, 1, line};
    block.packed_b = workspace_.shared + aligned_size(matrix_elements() * kElement);
    return block;
  }

  void run_band(std::int64_t plane, std::int64_t line, int thread) const {
    const std::int64_t end = std::min(few_.result[1], line + lines_);
    const std::int64_t first = std::clamp<std::int64_t>(line + few_.first_line, 0, few_.source[1]);
    const std::int64_t last = std::clamp(end + few_.last_line, first, few_.source[1]);
    std::byte* const own = workspace_.of_thread(thread);
    auto* const products = reinterpret_cast<float*>(own + gemm_scratch_bytes());
    float* const sums = products + aligned_size(few_.columns() * most_positions() * kElement) / kElement;
    if (last > first) {
      GemmBlock block = product(input_ + (plane * few_.source[1] + first) * few_.source_line(), (last - first) * few_.source[2],
                                products, most_positions());
      block.scratch = own;
      few_.gemm.multiply(block);
    }
    for (; line < end; ++line)
      for (std::int64_t r = 0; r < few_.results; ++r) {
        add_taps(line, r, first, products, sums);
        float* const to = target_ + (plane * few_.result[1] + line) * few_.result_line() + r;
        for (std::int64_t w = 0; w < few_.result[2]; ++w) to[w * few_.results] = sums[w];
      }
  }

  /// One result of a line; `first` is the line of the source with which the products begin.
  void add_taps(std::int64_t line, std::int64_t r, std::int64_t first, const float* products, float* sums) const {
    std::fill_n(sums, few_.result[2], 0.0F);
    for (std::int64_t tap = 0; tap < few_.taps; ++tap) {
      const auto& offset = few_.grid.taps[static_cast<std::size_t>(tap)].offset;
      const std::int64_t read = line + offset[1];
      if (read < 0 || read >= few_.source[1]) continue;
      const Within places = within(offset[2], few_.result[2], few_.source[2]);
      const float* const from =
          products + (tap * few_.results + r) * most_positions() + (read - first) * few_.source[2] + offset[2];
      for (std::int64_t w = places.first; w < places.end; ++w) sums[w] += from[w];
    }
  }

  FewResults few_;
  const float *weight_, *input_;
  float* target_;
  std::int64_t lines_ = 1;  // of the result, of a task
  Workspace workspace_;
};

class FewResultsWeightGradient final : public LibraryCall {
 public:
  FewResultsWeightGradient(const ConvolutionCall& call, const ConvolutionOperands& operands)
      : few_(call, operands),
        input_(reinterpret_cast<const float*>(operands.input)),
        gradient_(reinterpret_cast<const float*>(operands.output)),
        weight_(reinterpret_cast<float*>(operands.weight)),
        blocks_of_plane_(quotient_up(few_.source[1], few_.block_lines())) {
    const std::int64_t blocks = few_.planes() * blocks_of_plane_, positions = few_.planes() * few_.source[1] * few_.source[2];
    parts_ = std::clamp<std::int64_t>(positions / kFewestPositionsOfPart, 1, std::min(kMostPartsOfLines, blocks));
  }

  WorkspaceSize workspace() const override {
    return {parts_ * sum_elements() * kElement, gemm_scratch_bytes() + aligned_size(few_.columns() * block_positions() * kElement) +
                                                    aligned_size(few_.result_line() * kElement)};
  }
  void bind(const Workspace& workspace, int) override { workspace_ = workspace; }

  void run(ThreadPool& pool) override {
    pool.run(parts_, [this](std::int64_t first, std::int64_t last, int thread) {
      for (; first < last; ++first) sum_part(first, thread);
    });
    for (std::int64_t tap = 0; tap < few_.taps; ++tap)
      for (std::int64_t r = 0; r < few_.results; ++r) write(tap, r);
  }

 private:
  static constexpr std::int64_t kElement = sizeof(float);

  std::int64_t sum_elements() const { return few_.columns() * few_.channels; }
  std::int64_t block_positions() const { return few_.block_lines() * few_.source[2]; }
  float* sums_of(std::int64_t part) const { return reinterpret_cast<float*>(workspace_.shared) + part * sum_elements(); }

  /// Blocks of lines of the source, each a product that is added to those before it.
  void sum_part(std::int64_t part, int thread) const {
    const std::int64_t blocks = few_.planes() * blocks_of_plane_, first = blocks * part / parts_,
                       last = blocks * (part + 1) / parts_;
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t plane = block / blocks_of_plane_, line = block % blocks_of_plane_ * few_.block_lines(),
                         lines = std::min(few_.block_lines(), few_.source[1] - line);
      std::byte* const own = workspace_.of_thread(thread);
      auto* const read = reinterpret_cast<float*>(own + gemm_scratch_bytes());
      lay_out(plane, line, lines, read);
      GemmBlock product;
      product.m = few_.columns(), product.n = few_.channels, product.k = lines * few_.source[2];
      product.a = {read, block_positions(), 1};
      product.b = {const_cast<float*>(input_ + (plane * few_.source[1] + line) * few_.source_line()), few_.channels, 1};
      product.c = {sums_of(part), few_.channels, 1};
      product.scratch = own;
      product.add = block > first;
      few_.gemm.multiply(product);
    }
  }

  /// The gradient at the position of the result by which each tap reads a source position: [tap][result][position].
  void lay_out(std::int64_t plane, std::int64_t line, std::int64_t lines, float* to) const {
    const std::int64_t width = few_.source[2], row = block_positions();
    float* const apart = to + aligned_size(few_.columns() * row * kElement) / kElement;
    std::fill_n(to, few_.columns() * row, 0.0F);
    const std::int64_t begin = std::clamp<std::int64_t>(line - few_.last_line, 0, few_.result[1]);
    const std::int64_t end = std::clamp(line + lines - few_.first_line, begin, few_.result[1]);
    for (std::int64_t from = begin; from < end; ++from) {
      const float* const gradient = gradient_ + (plane * few_.result[1] + from) * few_.result_line();
      for (std::int64_t w = 0; w < few_.result[2]; ++w)
        for (std::int64_t r = 0; r < few_.results; ++r) apart[r * few_.result[2] + w] = gradient[w * few_.results + r];
      for (std::int64_t tap = 0; tap < few_.taps; ++tap) {
        const auto& offset = few_.grid.taps[static_cast<std::size_t>(tap)].offset;
        const std::int64_t read = from + offset[1] - line;
        if (read < 0 || read >= lines) continue;
        const Within places = within(offset[2], few_.result[2], width);
        for (std::int64_t r = 0; r < few_.results; ++r)
          std::copy(apart + r * few_.result[2] + places.first, apart + r * few_.result[2] + places.end,
                    to + (tap * few_.results + r) * row + read * width + offset[2] + places.first);
      }
    }
  }

  void write(std::int64_t tap, std::int64_t r) const {
    float* const to = weight_ + r * few_.order.result_step + few_.grid.taps[static_cast<std::size_t>(tap)].weight;
    const float* const from = sums_of(0) + (tap * few_.results + r) * few_.channels;
    for (std::int64_t c = 0; c < few_.channels; ++c) {
      float sum = from[c];
      for (std::int64_t part = 1; part < parts_; ++part) sum += from[part * sum_elements() + c];
      to[c * few_.order.channel_step] = sum;
    }
  }

  FewResults few_;
  const float *input_, *gradient_;
  float* weight_;
  std::int64_t blocks_of_plane_, parts_ = 1;
  Workspace workspace_;
};

}  // namespace

bool takes_few_results(const ConvolutionCall& call) {
  if (call.dtype != DType::f32 || !call.channels_last || call.groups != 1) return false;
  const ConvolutionShape shape = shape_of(call);
  const bool gradient = call.kind == ConvolutionKind::input_gradient;
  const std::int64_t results = gradient ? shape.group_inputs : shape.group_outputs,
                     channels = gradient ? shape.group_outputs : shape.group_inputs;
  return results <= kMostResults && channels >= kFewestSummed && shape.taps() > 1 && shape.kernel[0] == 1 && shape.pad[0] == 0 &&
         shape.input[0] == shape.output[0] && shape.stride == ConvolutionShape::Triple{1, 1, 1};
}

std::unique_ptr<LibraryCall> make_few_results_convolution(const ConvolutionCall& call, const ConvolutionOperands& operands) {
  if (call.kind == ConvolutionKind::weight_gradient) return std::make_unique<FewResultsWeightGradient>(call, operands);
  return std::make_unique<FewResultsConvolution>(call, operands);
}

}  // namespace gcomp::runtime::cpu
