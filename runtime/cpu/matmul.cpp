#include "runtime/cpu/matmul.h"

#include <utility>
#include <vector>

#include "ir/base/error.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/matrix_stack.h"

namespace gcomp::runtime::cpu {
namespace {

// Below this many multiplications a second thread costs more than it saves.
constexpr std::int64_t kTaskSize = 100'000;

// Threads pack A together where it repays one more meeting of theirs: each would pack all of it for its own columns of B.
constexpr std::int64_t kPackedRows = 96, kPackedColumns = 256, kPackedElements = 1 << 15;
constexpr std::int64_t kPackedBytes = 8 << 20;  // at once
// A slice of a deep product costs a sum of its own, in memory: it has so many multiplications for each element, and few elements.
constexpr std::int64_t kFewestDepth = 1024, kMostSlices = 16, kMostSliceElements = 1 << 17, kMostSliceRows = 2 * kGemmRows;

// Columns of the operand that is packed beside rows that are read where they lie.
constexpr std::int64_t kFewestBeside = 32, kMostBeside = 1024, kLargeElements = 1 << 19, kLargeProduct = 1 << 24;
constexpr std::int64_t kMostTurned = 512;  // rows of C that are turned
constexpr std::int64_t kTurnCost = 3;      // of an element of C, in what packing one of B takes
constexpr std::int64_t kSmallBatch = 8;    // times as many columns as rows, at least, where fewer are turned
constexpr std::int64_t kBandRows = 12;     // whole tiles of any instruction set

/// The stack of products as equal pieces of work: each matrix in `parts` bands of its columns or rows.
class BuiltinMatmul final : public LibraryCall {
 public:
  BuiltinMatmul(const ProductSize& size, const GemmFunction& gemm, MatrixStack a, MatrixStack b, MatrixStack c)
      : gemm_(gemm),
        matrices_(static_cast<std::int64_t>(c.offsets.size())),
        m_(size.m),
        n_(size.n),
        k_(size.k),
        element_(size.step_bytes),
        a_(std::move(a)),
        b_(std::move(b)),
        c_(std::move(c)) {
    if (m_ == 0 || n_ == 0) matrices_ = 0;
    if (c_.column != 1 && c_.row == 1) transpose();
    // Rows of A that lie in the order of k are read where they are, beside a smaller B.
    const bool beside_b = matrices_ == 1 && m_ >= kPackedRows && n_ >= kFewestBeside && n_ <= std::min(m_, kMostBeside) &&
                          (n_ * elements_deep() >= kPackedElements || m_ * n_ * elements_deep() >= kLargeProduct) &&
                          gemm_packed_b_bytes(n_, elements_deep(), element_) <= kPackedBytes;
    packs_b_ = beside_b && a_.column == 1;
    divide_depth();
    // Where those of B do, and A is the smaller one, B^T is what is read there.
    turns_slices_ = slices_ > 1 && is_turned_faster(k_ / slices_);
    if (slices_ == 1 && (m_ >= kPackedRows || is_small_batch()) && is_turned_faster(k_)) {
      transpose();
      packs_b_ = true;
    }
    // Where its columns do, and all of it packed would not stay in the second cache, each thread packs blocks of its rows as they
    // come.
    packs_b_ = packs_b_ || (beside_b && slices_ == 1 && a_.row == 1 && m_ * k_ >= kLargeElements);
    packs_ = !packs_b_ && slices_ == 1 && matrices_ == 1 && m_ >= kPackedRows && n_ >= kPackedColumns && m_ * k_ >= kPackedElements;
    // A band of columns reads all of A, a band of rows packs all of B.
    by_columns_ = packs_ || (!packs_b_ && n_ >= 64 && (n_ >= m_ || a_.column == 1));
    unit_ = by_columns_ ? 16 : packs_b_ ? kBandRows : 8;
    const std::int64_t extent = by_columns_ ? n_ : m_;
    const std::int64_t row_cost = std::max<std::int64_t>(1, (by_columns_ ? m_ : n_) * k_);
    unit_ *= std::max<std::int64_t>(1, (kTaskSize + unit_ * row_cost - 1) / (unit_ * row_cost));
    parts_ = std::max<std::int64_t>(1, extent / unit_);
    const std::int64_t whole = m_ * n_ * std::max<std::int64_t>(k_, 1);
    together_ = parts_ > 1 ? 1 : std::max<std::int64_t>(1, kTaskSize / std::max<std::int64_t>(whole, 1));
  }

  WorkspaceSize workspace() const override {
    const std::int64_t packed = packs_     ? gemm_packed_bytes(rows_packed(), k_, element_)
                                : packs_b_ ? gemm_packed_b_bytes(n_, k_, element_)
                                           : 0;
    const std::int64_t slice = turns_slices_ ? aligned_size(gemm_packed_b_bytes(m_, most_depth_of_slice(), element_)) : 0;
    return {aligned_size(slices_ > 1 ? slices_ * m_ * n_ * element_ : packed), gemm_scratch_bytes() + slice};
  }
  void bind(const Workspace& workspace, int) override { workspace_ = workspace; }

  void run(ThreadPool& pool) override {
    if (slices_ > 1) return run_slices(pool);
    if (packs_) return run_packed(pool);
    if (packs_b_) return run_packed_b(pool);
    const std::int64_t tasks = parts_ > 1 ? matrices_ * parts_ : (matrices_ + together_ - 1) / together_;
    const auto run = [this](std::int64_t first, std::int64_t last, int thread) {
      if (parts_ == 1) return run_range(first * together_, std::min(last * together_, matrices_), thread);
      run_range(first, last, thread);
    };
    // Each band of a matrix packs what all of them read.
    pool.run(tasks, run, parts_ > 1 && matrices_ == 1 ? tasks : 1);
  }

 private:
  /// A deep product of few elements, as a weight gradient over many positions, is a sum of such: this decides its bits.
  void divide_depth() {
    if (matrices_ != 1 || packs_b_ || c_.column != 1 || m_ > kMostSliceRows || m_ * n_ > kMostSliceElements ||
        elements_deep() < 2 * kFewestDepth)
      return;
    // A power of two: as many for each of two, four or eight threads.
    for (slices_ = kMostSlices; slices_ * kFewestDepth > elements_deep();) slices_ /= 2;
  }

  /// What decides of bits asks the number of elements, which is the same for pairs of them and for one at a time.
  std::int64_t elements_deep() const { return k_ * gemm_.elements; }

  /// Whether rows of B^T are read where they lie, beside A packed, of a product that is so deep.
  bool is_turned_faster(std::int64_t depth) const {
    return matrices_ == 1 && a_.column == 1 && b_.row == 1 && c_.column == 1 && m_ <= kMostTurned &&
           kTurnCost * m_ * n_ <= (n_ - m_) * depth && gemm_packed_b_bytes(m_, k_, element_) <= kPackedBytes;
  }

  /// Whether so few rows of A are worth turning: they fill panels as well as tiles, and C is many times as wide as it is high.
  bool is_small_batch() const {
    const auto padded = [this](std::int64_t to) { return (m_ + to - 1) / to * to; };
    return m_ >= kFewestBeside && n_ >= kSmallBatch * m_ && padded(gemm_.width) <= padded(gemm_.rows);
  }

  void transpose() {
    std::swap(m_, n_);
    std::swap(a_, b_);
    for (MatrixStack* stack : {&a_, &b_, &c_}) std::swap(stack->row, stack->column);
  }

  /// So many rows of A are packed at once that they stay in the last cache.
  std::int64_t rows_packed() const {
    const std::int64_t most = kPackedBytes / (k_ * element_) / kGemmRows * kGemmRows;
    return std::min(m_, std::max(most, kGemmRows));
  }

  /// Threads pack A together, then each multiplies its bands.
  void run_packed(ThreadPool& pool) const {
    GemmBlock rows{m_, n_, k_, a_.at(0), b_.at(0), c_.at(0), nullptr, workspace_.shared};
    const std::int64_t most = rows_packed();
    for (std::int64_t m = 0; m < m_; m += most) {
      rows.m = std::min(most, m_ - m);
      pool.run(gemm_pack_tasks(rows.m, k_, gemm_.depth), [&](std::int64_t first, std::int64_t last, int) {
        for (; first < last; ++first) gemm_.pack(rows, first);
      });
      pool.run(parts_, [&](std::int64_t first, std::int64_t last, int thread) { run_bands(rows, first, last, thread); });
      rows.a.data = moved(rows.a.data, rows.m * a_.row);
      rows.c.data = moved(rows.c.data, rows.m * c_.row);
    }
  }

  std::int64_t blocks() const { return (k_ + gemm_.depth - 1) / gemm_.depth; }
  std::int64_t most_depth_of_slice() const { return (blocks() + slices_ - 1) / slices_ * gemm_.depth; }

  /// C^T = B^T A^T, with A^T packed.
  void multiply_turned(GemmBlock block) const {
    std::swap(block.m, block.n);
    std::swap(block.a, block.b);
    for (StridedMatrix* matrix : {&block.a, &block.b, &block.c}) std::swap(matrix->row, matrix->column);
    block.packed_b = static_cast<std::byte*>(block.scratch) + gemm_scratch_bytes();
    for (std::int64_t task = gemm_pack_b_tasks(block.n, block.k, gemm_.depth); task-- > 0;) gemm_.pack_b(block, task);
    gemm_.multiply(block);
  }

  /// Each slice of k has a sum of its own; they are added in order.
  void run_slices(ThreadPool& pool) const {
    std::byte* sums = workspace_.shared;
    const std::int64_t bytes = m_ * n_ * element_;
    pool.run(slices_, [&](std::int64_t first, std::int64_t last, int thread) {
      for (; first < last; ++first) {
        const std::int64_t begin = blocks() * first / slices_ * gemm_.depth;
        const std::int64_t end = std::min(k_, blocks() * (first + 1) / slices_ * gemm_.depth);
        GemmBlock block{m_, n_, end - begin, a_.at(0), b_.at(0), {sums + first * bytes, n_, 1}, workspace_.of_thread(thread)};
        block.a.data = moved(block.a.data, begin * a_.column);
        block.b.data = moved(block.b.data, begin * b_.row);
        block.from_memory = true;
        if (turns_slices_) multiply_turned(block);
        else gemm_.multiply(block);
      }
    });
    pool.run(m_, [&](std::int64_t first, std::int64_t last, int) {
      for (; first < last; ++first) {
        if (element_ == 8) add_slices<double>(sums, first);
        else add_slices<float>(sums, first);
      }
    });
  }

  /// A row of C.
  template <class T>
  void add_slices(const std::byte* sums, std::int64_t row) const {
    T* to = static_cast<T*>(moved(c_.at(0).data, row * c_.row));
    const T* from = reinterpret_cast<const T*>(sums) + row * n_;
    for (std::int64_t j = 0; j < n_; ++j) to[j] = from[j] + from[m_ * n_ + j];
    for (std::int64_t slice = 2; slice < slices_; ++slice)
      for (std::int64_t j = 0; j < n_; ++j) to[j] += from[slice * m_ * n_ + j];
  }

  /// Threads pack B together, then each multiplies rows of A.
  void run_packed_b(ThreadPool& pool) const {
    const GemmBlock whole{m_, n_, k_, a_.at(0), b_.at(0), c_.at(0), nullptr, nullptr, workspace_.shared};
    pool.run(gemm_pack_b_tasks(n_, k_, gemm_.depth), [&](std::int64_t first, std::int64_t last, int) {
      for (; first < last; ++first) gemm_.pack_b(whole, first);
    });
    pool.run(parts_, [&](std::int64_t first, std::int64_t last, int thread) { run_bands(whole, first, last, thread); });
  }

  /// Tasks [first, last): adjacent bands of one matrix are one product.
  void run_range(std::int64_t first, std::int64_t last, int thread) const {
    while (first < last) {
      const std::int64_t matrix = first / parts_;
      const std::int64_t end = std::min(last, (matrix + 1) * parts_);
      run_bands({m_, n_, k_, a_.at(matrix), b_.at(matrix), c_.at(matrix)}, first - matrix * parts_, end - matrix * parts_, thread);
      first = end;
    }
  }

  void run_bands(GemmBlock block, std::int64_t first, std::int64_t last, int thread) const {
    block.scratch = workspace_.of_thread(thread);
    const std::int64_t extent = by_columns_ ? n_ : m_;
    const std::int64_t begin = first * unit_;
    const std::int64_t count = (last == parts_ ? extent : last * unit_) - begin;
    if (by_columns_) {
      block.n = count;
      block.b.data = moved(block.b.data, begin * b_.column);
      block.c.data = moved(block.c.data, begin * c_.column);
    } else {
      block.m = count;
      block.a.data = moved(block.a.data, begin * a_.row);
      block.c.data = moved(block.c.data, begin * c_.row);
    }
    gemm_.multiply(block);
  }

  void* moved(void* data, std::int64_t elements) const { return static_cast<std::byte*>(data) + elements * element_; }

  GemmFunction gemm_;
  std::int64_t matrices_, m_, n_, k_, element_;
  MatrixStack a_, b_, c_;
  bool packs_ = false, packs_b_ = false, by_columns_ = false, turns_slices_ = false;
  std::int64_t unit_ = 1, parts_ = 1, together_ = 1, slices_ = 1;
  Workspace workspace_;
};

/// Integers of T wrap; signedness does not change the bits of a product's low half, so T is unsigned.
template <class T>
class IntegerMatmul final : public LibraryCall {
 public:
  IntegerMatmul(const MatmulCall& call, const MatmulOperands& operands)
      : matrices_(element_count(call.batch)),
        m_(call.m),
        n_(call.n),
        k_(call.k),
        a_(make_matrix_stack(call, call.a, operands.a)),
        b_(make_matrix_stack(call, call.b, operands.b)),
        c_(make_matrix_stack(call, call.c, operands.c)) {}

  WorkspaceSize workspace() const override { return {}; }
  void bind(const Workspace&, int) override {}

  void run(ThreadPool& pool) override {
    const std::int64_t rows = matrices_ * m_;
    const std::int64_t group = std::max<std::int64_t>(1, kTaskSize / std::max<std::int64_t>(n_ * k_, 1));
    pool.run((rows + group - 1) / group, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first * group; i < std::min(last * group, rows); ++i) multiply_row(i / m_, i % m_);
    });
  }

 private:
  void multiply_row(std::int64_t matrix, std::int64_t i) const {
    const T* a = static_cast<const T*>(a_.at(matrix).data) + i * a_.row;
    const T* b = static_cast<const T*>(b_.at(matrix).data);
    T* c = static_cast<T*>(c_.at(matrix).data) + i * c_.row;
    for (std::int64_t j = 0; j < n_; ++j) c[j * c_.column] = 0;
    for (std::int64_t p = 0; p < k_; ++p) {
      // Through 64 bits: a product of two u16 would be a signed int and may overflow.
      const std::uint64_t factor = a[p * a_.column];
      const T* row = b + p * b_.row;
      for (std::int64_t j = 0; j < n_; ++j) c[j * c_.column] = static_cast<T>(c[j * c_.column] + factor * row[j * b_.column]);
    }
  }

  std::int64_t matrices_, m_, n_, k_;
  MatrixStack a_, b_, c_;
};

}  // namespace

std::unique_ptr<LibraryCall> make_builtin_matmul(const MatmulCall& call, const MatmulOperands& operands) {
  const GemmFunctions& gemm = *operands.backend.gemm;
  return make_builtin_matmul({call.m, call.n, call.k, static_cast<std::int64_t>(size_of(call.dtype))},
                             call.dtype == DType::f64 ? gemm.f64 : gemm.f32, make_matrix_stack(call, call.a, operands.a),
                             make_matrix_stack(call, call.b, operands.b), make_matrix_stack(call, call.c, operands.c));
}

std::unique_ptr<LibraryCall> make_builtin_matmul(const ProductSize& size, const GemmFunction& gemm, MatrixStack a, MatrixStack b,
                                                 MatrixStack c) {
  return std::make_unique<BuiltinMatmul>(size, gemm, std::move(a), std::move(b), std::move(c));
}

std::unique_ptr<LibraryCall> make_integer_matmul(const MatmulCall& call, const MatmulOperands& operands) {
  switch (size_of(call.dtype)) {
    case 1: return std::make_unique<IntegerMatmul<std::uint8_t>>(call, operands);
    case 2: return std::make_unique<IntegerMatmul<std::uint16_t>>(call, operands);
    case 4: return std::make_unique<IntegerMatmul<std::uint32_t>>(call, operands);
    default: return std::make_unique<IntegerMatmul<std::uint64_t>>(call, operands);
  }
}

std::unique_ptr<LibraryCall> make_matmul(const MatmulCall& call, const MatmulOperands& operands) {
  check_internal(call.m >= 0 && call.n >= 0 && call.k >= 0, "matmul ", call.origin, ": a negative extent");
  check_internal(call.dtype != DType::boolean, "matmul ", call.origin, ": bool has no product");
  if (is_integer(call.dtype)) return make_integer_matmul(call, operands);
  if (call.dtype == DType::bf16 && operands.backend.tiles) return make_tile_matmul(call, operands);
  if (call.dtype == DType::f16 || call.dtype == DType::bf16) return make_half_matmul(call, operands);
  return make_builtin_matmul(call, operands);
}

}  // namespace gcomp::runtime::cpu
