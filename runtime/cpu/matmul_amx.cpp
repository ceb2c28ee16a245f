#include <algorithm>
#include <utility>

#include "ir/base/integers.h"
#include "runtime/cpu/amx.h"
#include "runtime/cpu/amx_operand.h"
#include "runtime/cpu/matmul.h"
#include "runtime/cpu/matrix_stack.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kStepsOfSlab = 16;  // steps along k of a panel of A that stays in the first cache
constexpr std::int64_t kSumBytes = kPanelSums * 4;
// Panels of B that stay in the second cache for the rows of a task; where sums have to wait for the next slab, they do too.
constexpr std::int64_t kLot = 32, kLotOfSums = 8, kRowsOfSums = 16;
// A slice of a deep product costs a sum of its own, in memory: it has so many multiplications for each element, and few elements.
constexpr std::int64_t kFewestDepthOfSlice = 1024, kMostSlicesOfTiles = 16, kMostSliceSums = 1 << 17;
// An operand of so many bytes that one task alone reads is packed by it, a slab at a time, and not by all threads before.
constexpr std::int64_t kOwnBytes = 1 << 18;
// Packing an element, as B or as A whose k is not along its lines, in what its copy takes, and turning one of C.
constexpr std::int64_t kPackCost = 3, kTurnedCost = 2;
// Matrices of a stack of so many that one thread packs and multiplies each.
constexpr std::int64_t kManyMatrices = 8, kLargestMatrix = 1 << 19;
constexpr std::int64_t kPartsOfThread = 4;

/// bf16 by tiles, rounded once.
class TileMatmul final : public LibraryCall {
 public:
  TileMatmul(const MatmulCall& call, MatrixStack a, MatrixStack b, MatrixStack c, const TileFunctions& tiles)
      : tiles_(tiles),
        matrices_(static_cast<std::int64_t>(c.offsets.size())),
        m_(call.m),
        n_(call.n),
        steps_(quotient_up(call.k, kTileDepth)),
        a_(a, m_, call.k, a.row, a.column, TileOperand::Role::a, tiles),
        b_(b, n_, call.k, b.column, b.row, TileOperand::Role::b, tiles),
        c_(std::move(c)) {
    if (m_ == 0 || n_ == 0) matrices_ = 0;
    if (matrices_ == 1 && m_ * n_ <= kMostSliceSums && call.k >= 2 * kFewestDepthOfSlice)
      for (slices_ = kMostSlicesOfTiles; slices_ * kFewestDepthOfSlice > call.k;) slices_ /= 2;
    by_matrix_ = matrices_ >= kManyMatrices && a_.matrix_bytes() + b_.matrix_bytes() <= kLargestMatrix;
    lot_ = std::max<std::int64_t>(1, std::min(b_.panels(), waits() ? kLotOfSums : kLot));
    const bool single = matrices_ == 1 && slices_ == 1;
    owns_b_ = single && a_.panels() <= kRowsOfSums && b_.bytes() > std::max(kOwnBytes, a_.bytes());
    owns_a_ = single && !owns_b_ && !a_.lies() && b_.panels() <= lot_ && a_.bytes() > kOwnBytes;
    if (slices_ > 1) owns_a_ = !a_.lies(), owns_b_ = true;  // a slice is read by few tasks
    group_ = std::max<std::int64_t>(1, std::min(a_.panels(), waits() ? kRowsOfSums : a_.panels()));
  }

  WorkspaceSize workspace() const override {
    const std::int64_t sums = waits() ? group_ * lot_ * kSumBytes : 0, line = writes_lines() ? 0 : row_bytes();
    if (owns_a_ || owns_b_)
      return {copies() + (slices_ > 1 ? slices_ * slice_sums() * kSumBytes : 0),
              sums + line + (owns_b_ ? lot_ : 0) * slab_bytes() + (owns_a_ ? slab_bytes() : 0)};
    if (by_matrix_) return {0, sums + line + aligned_size(a_.matrix_bytes()) + aligned_size(b_.matrix_bytes())};
    return {copies(), sums + line};
  }

  void bind(const Workspace& workspace, int threads) override {
    workspace_ = workspace;
    packed_a_ = workspace.shared;
    packed_b_ = packed_a_ + (owns_a_ ? 0 : aligned_size(a_.bytes()));
    slice_sums_ = reinterpret_cast<float*>(workspace.shared + copies());
    // Enough parts of C for all threads.
    const std::int64_t wanted = by_matrix_ ? 1 : kPartsOfThread * threads;
    while (parts() < (owns_b_ ? threads : wanted) && group_ > 1) group_ = (group_ + 1) / 2;
    while (parts() < (owns_a_ ? threads : wanted) && lot_ > 2) lot_ = (lot_ + 1) / 2;
  }

  void run(ThreadPool& pool) override {
    if (by_matrix_) return run_by_matrix(pool);
    const std::int64_t of_a = owns_a_ ? 0 : a_.parts(), of_b = owns_b_ ? 0 : b_.parts();
    pool.run(of_a + of_b, [&](std::int64_t first, std::int64_t last, int) {
      for (; first < last; ++first) {
        if (first < of_a) a_.pack(first, packed_a_);
        else b_.pack(first - of_a, packed_b_);
      }
    });
    pool.run(parts(), [&](std::int64_t first, std::int64_t last, int thread) {
      tiles_.begin();
      for (; first < last; ++first) {
        const std::int64_t parts = parts_of_matrix(), matrix = first / (parts * slices_);
        multiply_part({matrix, first / parts % slices_, first % parts, a_.copy_of(matrix, packed_a_), b_.copy_of(matrix, packed_b_),
                       workspace_.of_thread(thread)});
      }
      tiles_.end();
    });
    if (slices_ > 1)
      pool.run(slice_sums(), [&](std::int64_t first, std::int64_t last, int) {
        for (; first < last; ++first) add_slices(first);
      });
  }

 private:
  /// Whether what a tile's rows or columns become is contiguous in C.
  bool writes_lines() const { return c_.column == 1 || c_.row == 1; }
  /// Of what all threads pack.
  std::int64_t copies() const { return (owns_a_ ? 0 : aligned_size(a_.bytes())) + (owns_b_ ? 0 : aligned_size(b_.bytes())); }
  std::int64_t slab_bytes() const { return std::min(steps_, kStepsOfSlab) * kPanelStep * 2; }
  /// Whether sums wait for later steps in memory.
  bool waits() const { return steps_ > kStepsOfSlab && slices_ == 1; }
  std::int64_t parts_of_matrix() const { return quotient_up(a_.panels(), group_) * quotient_up(b_.panels(), lot_); }
  std::int64_t parts() const { return matrices_ * slices_ * parts_of_matrix(); }
  std::int64_t slice_sums() const { return a_.panels() * b_.panels(); }
  /// Rows of a panel of C whose columns are apart, on their way to it.
  std::int64_t row_bytes() const { return kTilePanel * lot_ * kTilePanel * 2; }

  void run_by_matrix(ThreadPool& pool) {
    pool.run(matrices_, [&](std::int64_t matrix, std::int64_t last, int thread) {
      std::byte* const copy_a = workspace_.of_thread(thread);
      std::byte* const copy_b = copy_a + aligned_size(a_.matrix_bytes());
      tiles_.begin();
      for (; matrix < last; ++matrix) {
        for (std::int64_t part = 0; part < a_.parts_of_matrix(); ++part) a_.pack_of(matrix, part, copy_a);
        for (std::int64_t part = 0; part < b_.parts_of_matrix(); ++part) b_.pack_of(matrix, part, copy_b);
        for (std::int64_t part = 0; part < parts_of_matrix(); ++part)
          multiply_part({matrix, 0, part, copy_a, copy_b, copy_b + aligned_size(b_.matrix_bytes())});
      }
      tiles_.end();
    });
  }

  struct Part {
    std::int64_t matrix, slice, place;
    const std::byte *copy_a, *copy_b;
    std::byte* own;  ///< the thread's memory
  };

  /// group_ panels of rows by lot_ panels of columns.
  void multiply_part(const Part& part) const {
    const std::int64_t lots = quotient_up(b_.panels(), lot_);
    const std::int64_t row = part.place / lots * group_, last_row = std::min(row + group_, a_.panels());
    const std::int64_t column = part.place % lots * lot_;
    const std::int64_t first = steps_ * part.slice / slices_, last = steps_ * (part.slice + 1) / slices_;
    const StridedMatrix c = c_.at(part.matrix);
    TileBlock block;
    block.panels = std::min(lot_, b_.panels() - column);
    block.columns = std::min(n_ - column * kTilePanel, block.panels * kTilePanel);
    block.turned = c.column != 1 && c.row == 1;
    float* const own_sums = reinterpret_cast<float*>(part.own);
    auto* const apart = reinterpret_cast<std::uint16_t*>(part.own + (waits() ? group_ * lot_ * kSumBytes : 0));
    std::byte* const slab = reinterpret_cast<std::byte*>(apart) + (writes_lines() ? 0 : row_bytes());
    std::byte* const slab_a = slab + (owns_b_ ? lot_ : 0) * slab_bytes();
    for (std::int64_t step = first, steps; step == first || step < last; step += steps) {
      steps = std::min(kStepsOfSlab, last - step);
      block.steps = steps;
      block.add = step > first;
      const bool ends = step + steps == last && slices_ == 1;
      if (owns_b_) {
        block.b = slab, block.b_panel = steps * kPanelStep * 2;
        for (std::int64_t i = 0; i < block.panels; ++i)
          b_.pack_steps(part.matrix, column + i, step, steps, slab + i * block.b_panel);
      } else {
        b_.set_b(block, column, step, part.copy_b);
      }
      for (std::int64_t panel = row; panel < last_row; ++panel) {
        if (owns_a_) {
          a_.pack_steps(part.matrix, panel, step, steps, slab_a);
          a_.set_packed(block, panel, slab_a);
        } else {
          a_.set_a(block, part.matrix, panel, step, part.copy_a);
        }
        if (slices_ > 1) block.sums = slice_sums_ + (part.slice * slice_sums() + panel * b_.panels() + column) * kPanelSums;
        else if (waits()) block.sums = own_sums + (panel - row) * lot_ * kPanelSums;
        auto* const to = static_cast<std::uint16_t*>(c.data) + panel * kTilePanel * c.row + column * kTilePanel * c.column;
        block.c = !ends ? nullptr : writes_lines() ? to : apart;
        block.c_row = c.column == 1 ? c.row : block.turned ? c.column : block.columns;
        tiles_.multiply(block);
        if (ends && !writes_lines()) scatter(apart, block.rows, block.columns, c, to);
      }
      if (steps == 0) break;
    }
  }

  static void scatter(const std::uint16_t* from, std::int64_t rows, std::int64_t columns, const StridedMatrix& c,
                      std::uint16_t* to) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) to[i * c.row + j * c.column] = from[i * columns + j];
  }

  /// Of one panel of rows by one of columns.
  void add_slices(std::int64_t place) const {
    float* const sums = slice_sums_ + place * kPanelSums;
    const std::int64_t apart = slice_sums() * kPanelSums, row = place / b_.panels() * kTilePanel,
                       column = place % b_.panels() * kTilePanel;
    for (std::int64_t slice = 1; slice < slices_; ++slice)
      for (std::int64_t i = 0; i < kPanelSums; ++i) sums[i] += sums[slice * apart + i];
    const StridedMatrix c = c_.at(0);
    const std::int64_t rows = std::min(m_ - row, kTilePanel), columns = std::min(n_ - column, kTilePanel);
    auto* const to = static_cast<std::uint16_t*>(c.data) + row * c.row + column * c.column;
    std::uint16_t line[kTilePanel];
    for (std::int64_t i = 0; i < rows; ++i) {
      tiles_.narrow(sums + i * kTilePanel, c.column == 1 ? to + i * c.row : line, columns);
      if (c.column != 1) scatter(line, 1, columns, c, to + i * c.row);
    }
  }

  const TileFunctions& tiles_;
  std::int64_t matrices_, m_, n_, steps_, slices_ = 1;
  TileOperand a_, b_;
  MatrixStack c_;
  bool by_matrix_ = false;
  bool owns_a_ = false, owns_b_ = false;  // a task packs what it reads
  std::int64_t lot_ = 1, group_ = 1;
  Workspace workspace_;
  std::byte *packed_a_ = nullptr, *packed_b_ = nullptr;
  float* slice_sums_ = nullptr;
};

/// What packing takes, of A in `lines` rows or of B in as many columns.
std::int64_t packing_cost(std::int64_t lines, std::int64_t depth, bool along, bool as_b) {
  return lines * depth * (along && !as_b ? 1 : kPackCost);
}

}  // namespace

std::unique_ptr<LibraryCall> make_tile_matmul(const MatmulCall& call, const MatmulOperands& operands) {
  MatrixStack a = make_matrix_stack(call, call.a, operands.a), b = make_matrix_stack(call, call.b, operands.b),
              c = make_matrix_stack(call, call.c, operands.c);
  const auto turning_cost = [&](bool turned) { return turned ? call.m * call.n * kTurnedCost : 0; };
  const std::int64_t as_is = packing_cost(call.m, call.k, a.column == 1, false) + packing_cost(call.n, call.k, b.row == 1, true) +
                             turning_cost(c.column != 1);
  const std::int64_t turned_cost = packing_cost(call.n, call.k, b.row == 1, false) +
                                   packing_cost(call.m, call.k, a.column == 1, true) + turning_cost(c.row != 1);
  if (as_is <= turned_cost)
    return std::make_unique<TileMatmul>(call, std::move(a), std::move(b), std::move(c), *operands.backend.tiles);
  // C^T = B^T A^T, the same sums.
  MatmulCall turned = call;
  std::swap(turned.m, turned.n);
  for (MatrixStack* stack : {&a, &b, &c}) std::swap(stack->row, stack->column);
  return std::make_unique<TileMatmul>(turned, std::move(b), std::move(a), std::move(c), *operands.backend.tiles);
}

}  // namespace gcomp::runtime::cpu
