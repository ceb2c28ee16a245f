#include <algorithm>
#include <utility>
#include <vector>

#include "ir/base/integers.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/matmul.h"
#include "runtime/cpu/matrix_stack.h"

namespace gcomp::runtime::cpu {
namespace {

// What a step along k takes of the memory that the kernel reads: an f32, or a pair of bf16.
constexpr std::int64_t kStepBytes = 4;
constexpr std::int64_t kPairElements = 2;
constexpr std::int64_t kFewestConverted = 1 << 14;  // elements of a thread's portion
constexpr std::int64_t kGathered = 256;             // elements at once, an even number

/// How 16 bits become what the kernel reads.
struct HalfForm {
  const HalfLines* lines = nullptr;
  bool bf16 = false, pairs = false;

  std::int64_t steps(std::int64_t elements) const {
    return pairs ? quotient_up(elements, kPairElements) : bf16 ? round_up(elements, kPairElements) : elements;
  }
  /// Elements along k.
  void convert(const std::uint16_t* from, void* to, std::int64_t count) const {
    if (pairs) {
      auto* const pair = static_cast<std::uint16_t*>(to);
      std::copy_n(from, count, pair);
      if (count % kPairElements != 0) pair[count] = 0;
    } else {
      (bf16 ? lines->widen_swapped_bf16 : lines->widen_f16)(from, static_cast<float*>(to), count);
    }
  }
};

/// One operand: `lines` rows of A or columns of B, each of `depth` elements along k.
class HalfOperand {
 public:
  HalfOperand(MatrixStack from, std::int64_t lines, std::int64_t depth, std::int64_t line, std::int64_t step, const HalfForm& form)
      : from_(std::move(from)), lines_(lines), depth_(depth), line_(line), step_(step), form_(form) {
    const auto& offsets = from_.offsets;
    matrices_ = static_cast<std::int64_t>(offsets.size());
    // A matrix that repeats is converted once.
    if (std::all_of(offsets.begin(), offsets.end(), [&](std::int64_t offset) { return offset == offsets[0]; }))
      matrices_ = std::min<std::int64_t>(matrices_, 1);
    across_ = step_ != 1 && line_ == 1;
    lies_ = form.pairs && step_ == 1 && depth_ % kPairElements == 0 && (line_ % kPairElements == 0 || lines_ == 1) &&
            std::all_of(offsets.begin(), offsets.end(), [](std::int64_t offset) { return offset % kStepBytes == 0; });
  }

  /// Of the copy; none where the kernel reads the operand itself.
  std::int64_t bytes() const { return lies_ ? 0 : aligned_size(matrices_ * matrix_bytes()); }
  /// The copy is at `memory`.
  void bind(std::byte* memory) { copy_ = memory; }

  /// As the kernel reads it, once it is bound; strides in steps along k. Rows are lines, unless it is transposed.
  MatrixStack stack(bool transposed) const {
    MatrixStack made{lies_ ? from_.base : copy_, from_.offsets,
                     lies_     ? line_ / kPairElements
                     : across_ ? 1
                               : form_.steps(depth_),
                     across_ ? lines_ : 1};
    if (transposed) std::swap(made.row, made.column);
    if (lies_) return made;
    for (std::size_t i = 0; i < made.offsets.size(); ++i)
      made.offsets[i] = matrices_ == 1 ? 0 : static_cast<std::int64_t>(i) * matrix_bytes();
    return made;
  }

  /// Pieces of the conversion, which threads share: lines, or steps of all lines where the lines lie side by side.
  std::int64_t pieces() const { return lies_ ? 0 : matrices_ * pieces_of_matrix(); }
  std::int64_t piece_elements() const { return across_ ? lines_ : depth_; }
  void convert(std::int64_t piece) const {
    const std::int64_t matrix = piece / pieces_of_matrix(), i = piece % pieces_of_matrix();
    const auto* const from = static_cast<const std::uint16_t*>(from_.at(matrix).data);
    std::byte* const to = copy_ + matrix * matrix_bytes() + i * (across_ ? lines_ : form_.steps(depth_)) * kStepBytes;
    if (across_) convert_step(from, i, to);
    else if (step_ == 1) form_.convert(from + i * line_, to, depth_);
    else gather(from + i * line_, to);
  }

 private:
  std::int64_t matrix_bytes() const { return lines_ * form_.steps(depth_) * kStepBytes; }
  std::int64_t pieces_of_matrix() const { return across_ ? form_.steps(depth_) : lines_; }

  void convert_step(const std::uint16_t* from, std::int64_t step, std::byte* to) const {
    const auto row = [&](std::int64_t k) { return k < depth_ ? from + k * step_ : nullptr; };
    if (form_.pairs) {
      form_.lines->interleave(row(kPairElements * step), row(kPairElements * step + 1), reinterpret_cast<std::uint32_t*>(to),
                              lines_);
      return;
    }
    auto* const wide = reinterpret_cast<float*>(to);
    const std::uint16_t* const source = row(form_.bf16 ? step ^ 1 : step);
    if (source) (form_.bf16 ? form_.lines->widen_bf16 : form_.lines->widen_f16)(source, wide, lines_);
    else std::fill_n(wide, lines_, 0.0F);
  }

  /// A line whose elements are apart.
  void gather(const std::uint16_t* from, std::byte* to) const {
    std::uint16_t some[kGathered];
    for (std::int64_t k = 0; k < depth_; k += kGathered) {
      const std::int64_t count = std::min(kGathered, depth_ - k);
      for (std::int64_t i = 0; i < count; ++i) some[i] = from[(k + i) * step_];
      form_.convert(some, to + form_.steps(k) * kStepBytes, count);
    }
  }

  MatrixStack from_;
  std::int64_t lines_, depth_, line_, step_, matrices_ = 0;  // strides in elements
  HalfForm form_;
  bool across_ = false;  // lines lie side by side: a piece is a step of all
  bool lies_ = false;    // as the kernel reads it
  std::byte* copy_ = nullptr;
};

/// f16 and bf16: operands in the form that the kernel reads, sums in f32, which are rounded once.
class HalfMatmul final : public LibraryCall {
 public:
  HalfMatmul(const MatmulCall& call, const MatmulOperands& operands)
      : gemm_(*operands.backend.gemm),
        form_{&gemm_.half, call.dtype == DType::bf16, call.dtype == DType::bf16 && gemm_.bf16.elements == kPairElements},
        matrices_(element_count(call.batch)),
        m_(call.m),
        n_(call.n),
        steps_(form_.steps(call.k)),
        a_(make_matrix_stack(call, call.a, operands.a), m_, call.k, call.a.row_stride, call.a.column_stride, form_),
        b_(make_matrix_stack(call, call.b, operands.b), n_, call.k, call.b.column_stride, call.b.row_stride, form_),
        c_(make_matrix_stack(call, call.c, operands.c)) {
    in_columns_ = c_.column != 1 && c_.row == 1;
  }

  WorkspaceSize workspace() const override {
    WorkspaceSize size = make_product(nullptr)->workspace();
    size.shared += a_.bytes() + b_.bytes() + sum_bytes();
    return size;
  }

  void bind(const Workspace& workspace, int threads) override {
    std::byte* next = workspace.shared;
    a_.bind(std::exchange(next, next + a_.bytes()));
    b_.bind(std::exchange(next, next + b_.bytes()));
    sums_ = reinterpret_cast<float*>(std::exchange(next, next + sum_bytes()));
    call_ = make_product(sums_);
    Workspace of_product = workspace;
    of_product.shared = next;
    call_->bind(of_product, threads);
  }

  void run(ThreadPool& pool) override {
    const std::int64_t of_a = a_.pieces();
    const std::int64_t wider = std::max<std::int64_t>({a_.piece_elements(), b_.piece_elements(), 1});
    pool.run(
        of_a + b_.pieces(),
        [&](std::int64_t first, std::int64_t last, int) {
          for (; first < last; ++first) {
            if (first < of_a) a_.convert(first);
            else b_.convert(first - of_a);
          }
        },
        quotient_up(kFewestConverted, wider));
    call_->run(pool);
    const std::int64_t lines = in_columns_ ? n_ : m_, length = in_columns_ ? m_ : n_;
    pool.run(
        matrices_ * lines,
        [&](std::int64_t first, std::int64_t last, int) {
          for (; first < last; ++first) round_line(first / lines, first % lines, sums_ + first * length, length);
        },
        quotient_up(kFewestConverted, std::max<std::int64_t>(length, 1)));
  }

 private:
  std::int64_t sum_bytes() const { return aligned_size(matrices_ * m_ * n_ * kStepBytes); }

  std::unique_ptr<LibraryCall> make_product(float* sums) const {
    MatrixStack c{reinterpret_cast<std::byte*>(sums), {}, in_columns_ ? 1 : n_, in_columns_ ? m_ : 1};
    for (std::int64_t i = 0; i < matrices_; ++i) c.offsets.push_back(i * m_ * n_ * kStepBytes);
    return make_builtin_matmul({m_, n_, steps_, kStepBytes}, form_.bf16 ? gemm_.bf16 : gemm_.f32, a_.stack(false), b_.stack(true),
                               std::move(c));
  }

  void round_line(std::int64_t matrix, std::int64_t line, const float* sums, std::int64_t length) const {
    const StridedMatrix c = c_.at(matrix);
    const std::int64_t apart = in_columns_ ? c.column : c.row, step = in_columns_ ? c.row : c.column;
    auto* const to = static_cast<std::uint16_t*>(c.data) + line * apart;
    const auto narrow = form_.bf16 ? form_.lines->narrow_bf16 : form_.lines->narrow_f16;
    if (step == 1) return narrow(sums, to, length);
    std::uint16_t some[kGathered];
    for (std::int64_t j = 0; j < length; j += kGathered) {
      const std::int64_t count = std::min(kGathered, length - j);
      narrow(sums + j, some, count);
      for (std::int64_t i = 0; i < count; ++i) to[(j + i) * step] = some[i];
    }
  }

  const GemmFunctions& gemm_;
  HalfForm form_;
  std::int64_t matrices_, m_, n_, steps_;
  HalfOperand a_, b_;
  MatrixStack c_;
  bool in_columns_ = false;  // C's columns are contiguous
  float* sums_ = nullptr;
  std::unique_ptr<LibraryCall> call_;
};

}  // namespace

std::unique_ptr<LibraryCall> make_half_matmul(const MatmulCall& call, const MatmulOperands& operands) {
  return std::make_unique<HalfMatmul>(call, operands);
}

}  // namespace gcomp::runtime::cpu
