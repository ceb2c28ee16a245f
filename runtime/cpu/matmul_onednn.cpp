// Large dense f32 products: bands of rows, each one single-threaded oneDNN primitive. The bands come from the shape alone.
#include <atomic>

#include "ir/base/error.h"
#include "runtime/cpu/matmul.h"
#include "runtime/cpu/onednn.h"
#include "runtime/cpu/openmp.h"

namespace gcomp::runtime::cpu {
namespace {

// At least this many multiplications a band, and at most kMaxBands bands.
constexpr std::int64_t kBandSize = std::int64_t{1} << 24;
constexpr std::int64_t kMaxBands = 16;
constexpr std::int64_t kRowMultiple = 32;

dnnl::memory::desc matrix_desc(std::int64_t rows, std::int64_t columns, std::int64_t row_stride, std::int64_t column_stride) {
  return {{rows, columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{row_stride, column_stride}};
}

dnnl::matmul::primitive_desc matmul_desc(const MatmulCall& call, std::int64_t rows) {
  const auto a = matrix_desc(rows, call.k, call.a.row_stride, call.a.column_stride);
  const auto b = matrix_desc(call.k, call.n, call.b.row_stride, call.b.column_stride);
  const auto c = matrix_desc(rows, call.n, call.c.row_stride, call.c.column_stride);
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), a, b, c, onednn_attributes()};
#else
  return {dnnl::matmul::desc(a, b, c), onednn_attributes(), onednn_engine()};
#endif
}

/// oneDNN's fast kernel wants dense matrices: A and C by rows, B by rows or columns.
bool is_dense(const MatmulCall& call) {
  const auto by_rows = [](const MatrixView& view, std::int64_t columns) {
    return view.column_stride == 1 && view.row_stride == columns;
  };
  const bool b_by_columns = call.b.row_stride == 1 && call.b.column_stride == call.k;
  return by_rows(call.a, call.k) && by_rows(call.c, call.n) && (by_rows(call.b, call.n) || b_by_columns);
}

class OneDnnMatmul final : public LibraryCall {
 public:
  OneDnnMatmul(const MatmulCall& call, const MatmulOperands& operands) : origin_(call.origin) {
    const std::int64_t multiplications = call.m * call.n * call.k;
    const std::int64_t bands = std::clamp<std::int64_t>(multiplications / kBandSize, 1, kMaxBands);
    const std::int64_t even = (call.m + bands - 1) / bands;
    const std::int64_t rows = (even + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
    add_bands(call, operands, rows, 0, call.m / rows * rows);
    if (call.m % rows) add_bands(call, operands, call.m % rows, call.m / rows * rows, call.m);
  }

  WorkspaceSize workspace() const override { return {0, scratchpad_bytes_}; }

  void bind(const Workspace& workspace, int threads) override {
    streams_ = onednn_streams(threads);
    for (const dnnl::memory::desc& desc : scratchpads_)
      scratchpad_memories_.push_back(onednn_thread_memories(desc, workspace, 0, threads));
  }

  void run(ThreadPool& pool) override {
    pool.run(static_cast<std::int64_t>(bands_.size()), [this](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t i = first; i < last; ++i) run_band(bands_[static_cast<std::size_t>(i)], static_cast<std::size_t>(thread));
    });
    if (failed_.exchange(false)) throw InternalError(concat(origin_, ": oneDNN failed to run a matrix product"));
  }

 private:
  struct Band {
    dnnl::primitive primitive;
    dnnl::memory a, b, c;
    std::size_t kind;  // index into scratchpads_
  };

  void run_band(const Band& band, std::size_t thread) {
    const bool done = onednn_execute(band.primitive, streams_[thread],
                                     {{DNNL_ARG_SRC, band.a.get()},
                                      {DNNL_ARG_WEIGHTS, band.b.get()},
                                      {DNNL_ARG_DST, band.c.get()},
                                      {DNNL_ARG_SCRATCHPAD, handle_of(scratchpad_memories_[band.kind][thread])}});
    if (!done) failed_ = true;
  }

  void add_bands(const MatmulCall& call, const MatmulOperands& operands, std::int64_t rows, std::int64_t first, std::int64_t last) {
    if (first >= last) return;
    const dnnl::matmul::primitive_desc desc = matmul_desc(call, rows);
    const dnnl::matmul primitive(desc);
    scratchpads_.push_back(desc.scratchpad_desc());
    scratchpad_bytes_ = std::max(scratchpad_bytes_, onednn_size(desc.scratchpad_desc()));
    Shape index(call.batch.size(), 0);
    do {
      std::int64_t a = call.a.offset, b = call.b.offset, c = call.c.offset;
      for (std::size_t i = 0; i < index.size(); ++i) {
        a += index[i] * call.a.batch_strides[i];
        b += index[i] * call.b.batch_strides[i];
        c += index[i] * call.c.batch_strides[i];
      }
      for (std::int64_t row = first; row < last; row += rows) {
        const std::byte* rows_of_a = operands.a + (a + row * call.a.row_stride) * 4;
        const std::byte* rows_of_c = operands.c + (c + row * call.c.row_stride) * 4;
        bands_.push_back({primitive, onednn_memory(desc.src_desc(), rows_of_a),
                          onednn_memory(desc.weights_desc(), operands.b + b * 4), onednn_memory(desc.dst_desc(), rows_of_c),
                          scratchpads_.size() - 1});
      }
    } while (next_index(index, call.batch));
  }

  std::string origin_;
  std::vector<Band> bands_;
  std::vector<dnnl::memory::desc> scratchpads_;
  std::int64_t scratchpad_bytes_ = 0;
  std::vector<dnnl::stream> streams_;
  std::vector<std::vector<dnnl::memory>> scratchpad_memories_;  // [kind][thread]
  std::atomic<bool> failed_{false};
};

}  // namespace

std::unique_ptr<LibraryCall> make_onednn_matmul(const MatmulCall& call, const MatmulOperands& operands) {
  if (call.dtype != DType::f32 || !is_dense(call) || call.m * call.n * call.k == 0 || element_count(call.batch) == 0)
    return nullptr;
  const SingleThreadedOpenMp single_threaded;
  try {
    return std::make_unique<OneDnnMatmul>(call, operands);
  } catch (const dnnl::error& error) { throw_onednn_error(call.origin, "preparing a matrix product", error); }
}

}  // namespace gcomp::runtime::cpu
