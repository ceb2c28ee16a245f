#include "runtime/cuda/cublaslt.h"

#include <algorithm>
#include <type_traits>

namespace gcomp::runtime::cuda {
namespace {

constexpr int kOldestCublas = 12;
constexpr std::uint64_t kMostWorkspace = 32 << 20;
/// Some larger batches the library refuses only when they are to run (TensorFlow, pull request 44175).
constexpr std::int64_t kMostBatches = 65535;

std::string version_text(std::size_t version) { return concat(version / 10000, ".", version / 100 % 100, ".", version % 100); }

std::string load_functions(const Library& library, CublasLtFunctions& functions) {
  std::string missing;
  for_each_function(functions, [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.symbol(name));
    if (!function && missing.empty()) missing = name;
  });
  return missing;
}

std::optional<cudaDataType> type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::f64: return CUDA_R_64F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: return std::nullopt;
  }
}

std::uint32_t alignment_of(CUdeviceptr address) {
  return static_cast<std::uint32_t>(std::min<CUdeviceptr>(256, address == 0 ? 256 : address & (~address + 1)));
}

std::uint32_t epilogue_code(const LibraryEpilogue& epilogue) {
  switch (epilogue.kind) {
    case EpilogueKind::bias: return CUBLASLT_EPILOGUE_BIAS;
    case EpilogueKind::gelu:
      if (epilogue.aux) return epilogue.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return epilogue.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case EpilogueKind::gelu_gradient: return CUBLASLT_EPILOGUE_DGELU;
    case EpilogueKind::bias_gradient_a: return CUBLASLT_EPILOGUE_BGRADB;  // the operands are swapped
    case EpilogueKind::bias_gradient_b: return CUBLASLT_EPILOGUE_BGRADA;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

/// The library's GELU takes the hardware's tanh, which is within the roundings of TF32 and of 16 bits, but not within those of f32.
bool is_precise_enough(const LibraryEpilogue& epilogue, DType dtype, MatmulPrecision precision) {
  const bool gelu = epilogue.kind == EpilogueKind::gelu || epilogue.kind == EpilogueKind::gelu_gradient;
  return !gelu || dtype != DType::f32 || precision == MatmulPrecision::tf32;
}

/// False where the library refuses what it is asked for: then generated kernels compute it. A failure of the library's own is an
/// error, or a run could have other bits than the same run before.
bool accepts(cublasStatus_t status, const char* function) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return true;
    case CUBLAS_STATUS_INVALID_VALUE:
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED: return false;
    default: break;
  }
  throw DeviceError(concat(function, " gave status ", static_cast<int>(status), "; --no-cublaslt computes without this library"));
}

CUdeviceptr address_of(const MatrixView& view, CUdeviceptr buffer, DType dtype) {
  return buffer + static_cast<CUdeviceptr>(view.offset) * size_of(dtype);
}

}  // namespace

LibraryResult find_cublaslt(const LibrarySearch& search, int newest_major) {
  return find_library(LibraryKind::cublaslt, search, [newest_major](const Library& library) -> std::string {
    CublasLtFunctions functions;
    if (const std::string missing = load_functions(library, functions); !missing.empty()) return concat("it lacks ", missing);
    const std::size_t version = functions.cublasLtGetVersion();
    const int major = static_cast<int>(version / 10000);
    if (major < kOldestCublas) return concat("it is version ", version_text(version), ", wanted ", kOldestCublas, " or newer");
    if (newest_major > 0 && major > newest_major) return newer_than_driver(version_text(version), newest_major);
    return {};
  });
}

std::shared_ptr<const CublasLt> CublasLt::open(const SharedContext& context, const LibrarySearch& search, std::string& reason) {
  const LibraryResult found = find_cublaslt(search, context->driver().major());
  if (!found.library) {
    reason = found.absence(LibraryKind::cublaslt, "nvidia-cublas", context->driver().major());
    return nullptr;
  }
  std::shared_ptr<CublasLt> library(new CublasLt);
  library->library_ = *found.library;
  load_functions(library->library_, library->functions_);
  context->make_current();
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = library->functions_.cublasLtCreate(&handle); status != CUBLAS_STATUS_SUCCESS) {
    reason =
        concat("cuBLASLt (", library->library_.path(), ") does not start: cublasLtCreate gave status ", static_cast<int>(status));
    return nullptr;
  }
  library->context_ = context;
  library->handle_ = handle;
  return library;
}

CublasLt::~CublasLt() {
  if (!handle_) return;
  context_->try_make_current();
  functions_.cublasLtDestroy(handle_);
}

std::string CublasLt::version() const { return version_text(functions_.cublasLtGetVersion()); }

/// A matrix as column-major memory, perhaps of its transpose.
struct CublasLtMatmul::Matrix {
  std::int64_t rows = 0, columns = 0, leading = 0, batch_stride = 0;
  bool transposed = false;
};

/// result = first * second, all column-major. A row-major result is the transpose of a column-major one: swap the operands.
struct CublasLtMatmul::Shape {
  Matrix first, second, result;
  std::int64_t batches = 1;
  bool swapped = false;
};

namespace {

struct Strides {
  std::int64_t row = 0, column = 0, batch = 0;
};

/// The batch dimensions as one with one stride for each of a, b and c, where they are evenly spaced.
bool join_batch(const MatmulCall& call, std::int64_t& batches, std::int64_t (&strides)[3]) {
  const MatrixView* views[] = {&call.a, &call.b, &call.c};
  batches = 1;
  for (std::size_t d = call.batch.size(); d-- > 0;) {
    if (call.batch[d] == 1) continue;
    for (int i = 0; i < 3; ++i) {
      const std::int64_t stride = views[i]->batch_strides[d];
      if (batches == 1) strides[i] = stride;
      else if (stride != strides[i] * batches) return false;
    }
    batches *= call.batch[d];
  }
  return batches <= kMostBatches;
}

/// rows x columns as column-major memory: as it is, or transposed.
template <class Matrix>
bool place(std::int64_t rows, std::int64_t columns, const Strides& strides, Matrix& matrix) {
  const bool as_it_is = (strides.row == 1 || rows == 1) && (strides.column >= rows || columns == 1);
  const bool transposed = (strides.column == 1 || columns == 1) && (strides.row >= columns || rows == 1);
  // A single row is better seen as a column, whose elements are neighbours.
  if (as_it_is && !(transposed && rows == 1)) matrix = {rows, columns, columns == 1 ? rows : strides.column, strides.batch, false};
  else if (transposed) matrix = {columns, rows, rows == 1 ? columns : strides.row, strides.batch, true};
  return as_it_is || transposed;
}

}  // namespace

std::optional<CublasLtMatmul::Shape> CublasLtMatmul::shape_of(const MatmulCall& call) {
  Shape shape;
  std::int64_t batch[3] = {};
  if (!join_batch(call, shape.batches, batch)) return std::nullopt;
  const Strides a{call.a.row_stride, call.a.column_stride, batch[0]}, b{call.b.row_stride, call.b.column_stride, batch[1]},
      c{call.c.row_stride, call.c.column_stride, batch[2]};
  if (!place(call.m, call.n, c, shape.result)) return std::nullopt;
  shape.swapped = shape.result.transposed;
  shape.result.transposed = false;
  const auto flipped = [](const Strides& s) { return Strides{s.column, s.row, s.batch}; };
  const bool fits = shape.swapped
                        ? place(call.n, call.k, flipped(b), shape.first) && place(call.k, call.m, flipped(a), shape.second)
                        : place(call.m, call.k, a, shape.first) && place(call.k, call.n, b, shape.second);
  return fits ? std::optional(shape) : std::nullopt;
}

CublasLtMatmul::Layout CublasLtMatmul::make_layout(DType dtype, const Matrix& matrix, std::int64_t batches) const {
  const CublasLtFunctions& f = library_->functions();
  cublasLtMatrixLayout_t layout = nullptr;
  if (!accepts(f.cublasLtMatrixLayoutCreate(&layout, *type_of(dtype), static_cast<std::uint64_t>(matrix.rows),
                                            static_cast<std::uint64_t>(matrix.columns), matrix.leading),
               "cublasLtMatrixLayoutCreate"))
    return {};
  Layout owned(layout, {library_});
  const auto set = [&](cublasLtMatrixLayoutAttribute_t which, auto value) {
    return accepts(f.cublasLtMatrixLayoutSetAttribute(layout, which, &value, sizeof value), "cublasLtMatrixLayoutSetAttribute");
  };
  if (batches > 1 && !(set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batches)) &&
                       set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride)))
    return {};
  return owned;
}

bool CublasLtMatmul::describe(const Shape& shape, DType dtype, MatmulPrecision precision) {
  const CublasLtFunctions& f = library_->functions();
  swapped_ = shape.swapped;
  const bool wide = dtype == DType::f64, fast = dtype == DType::f32 && precision == MatmulPrecision::tf32;
  const cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F : fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t product = nullptr;
  if (!accepts(f.cublasLtMatmulDescCreate(&product, compute, wide ? CUDA_R_64F : CUDA_R_32F), "cublasLtMatmulDescCreate"))
    return false;
  product_ = Product(product, {library_});
  const auto transpose = [&](cublasLtMatmulDescAttributes_t which, bool transposed) {
    return set(which, static_cast<std::int32_t>(transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  };
  if (!transpose(CUBLASLT_MATMUL_DESC_TRANSA, shape.first.transposed) ||
      !transpose(CUBLASLT_MATMUL_DESC_TRANSB, shape.second.transposed))
    return false;
  first_ = make_layout(dtype, shape.first, shape.batches);
  second_ = make_layout(dtype, shape.second, shape.batches);
  result_ = make_layout(dtype, shape.result, shape.batches);
  return first_ && second_ && result_;
}

template <class T>
bool CublasLtMatmul::set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
  return accepts(library_->functions().cublasLtMatmulDescSetAttribute(product_.get(), attribute, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
}

/// The library adds a bias along the rows of its column-major result and keeps an auxiliary matrix in that order: n of a row-major
/// c. It sums its first operand over k as it lies, its second where it is transposed: each k has its elements side by side.
bool CublasLtMatmul::describe_epilogue(const Shape& shape, const MatmulCall& call, const LibraryEpilogue& epilogue) {
  if (!shape.swapped) return false;
  if (epilogue.aux) {
    const bool dense = shape.result.leading == call.n && (shape.batches == 1 || shape.result.batch_stride == call.m * call.n);
    if (!dense || call.n % 8 != 0) return false;
    if (!set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{call.n})) return false;
    if (shape.batches > 1 && !set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, std::int64_t{call.m * call.n})) return false;
  }
  if (is_bias_gradient(epilogue.kind)) {
    const bool side_by_side = epilogue.kind == EpilogueKind::bias_gradient_a ? shape.second.transposed : !shape.first.transposed;
    if (!side_by_side || shape.batches > 1) return false;
  }
  epilogue_ = epilogue;
  return set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_code(epilogue));
}

bool CublasLtMatmul::set_addresses(const MatmulBuffers& buffers) const {
  if (!epilogue_) return true;
  const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<const void*>(address); };
  return (!epilogue_->bias || set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer(buffers.bias))) &&
         (!epilogue_->aux || set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pointer(buffers.aux)));
}

bool CublasLtMatmul::find_algorithms(const MatmulCall& call, const MatmulBuffers& buffers, int offers) {
  const CublasLtFunctions& f = library_->functions();
  cublasLtMatmulPreference_t handle = nullptr;
  if (!accepts(f.cublasLtMatmulPreferenceCreate(&handle), "cublasLtMatmulPreferenceCreate")) return false;
  const Preference preference(handle, {library_});
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
    return accepts(f.cublasLtMatmulPreferenceSetAttribute(handle, which, &value, sizeof value),
                   "cublasLtMatmulPreferenceSetAttribute");
  };
  const std::uint32_t a = alignment_of(address_of(call.a, buffers.a, call.dtype)),
                      b = alignment_of(address_of(call.b, buffers.b, call.dtype)),
                      c = alignment_of(address_of(call.c, buffers.c, call.dtype));
  // Parts of a split sum meet in a step of their own, in the compute type; the scheme that adds them in place rounds each to D's
  // type.
  const std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (!set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace) || !set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes) ||
      !set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, swapped_ ? b : a) ||
      !set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, swapped_ ? a : b) || !set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c) ||
      !set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c))
    return false;
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(offers));
  int count = 0;
  if (!accepts(f.cublasLtMatmulAlgoGetHeuristic(library_->handle(), product_.get(), first_.get(), second_.get(), result_.get(),
                                                result_.get(), handle, offers, results.data(), &count),
               "cublasLtMatmulAlgoGetHeuristic"))
    return false;
  results.resize(static_cast<std::size_t>(count));
  for (const cublasLtMatmulHeuristicResult_t& result : results)
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kMostWorkspace)
      candidates_.push_back({result.algo, result.workspaceSize});
  if (candidates_.empty()) return false;
  chosen_ = candidates_.front();
  return true;
}

std::unique_ptr<CublasLtMatmul> CublasLtMatmul::plan(std::shared_ptr<const CublasLt> library, const MatmulCall& call,
                                                     const MatmulBuffers& buffers, MatmulPrecision precision,
                                                     const LibraryEpilogue* epilogue, int offers) {
  const std::optional<Shape> shape = shape_of(call);
  if (!shape || !type_of(call.dtype)) return nullptr;
  if (epilogue && !is_precise_enough(*epilogue, call.dtype, precision)) return nullptr;
  std::unique_ptr<CublasLtMatmul> matmul(new CublasLtMatmul(std::move(library)));
  if (!matmul->describe(*shape, call.dtype, precision)) return nullptr;
  if (epilogue && !(matmul->describe_epilogue(*shape, call, *epilogue) && matmul->set_addresses(buffers))) return nullptr;
  return matmul->find_algorithms(call, buffers, offers) ? std::move(matmul) : nullptr;
}

// A description keeps its pointers only until the next call: the slots of a program have addresses of their own.
cublasStatus_t CublasLtMatmul::try_queue(const MatmulCall& call, const MatmulBuffers& buffers, CUdeviceptr workspace,
                                         CUstream stream) const {
  const auto pointer = [&](const MatrixView& view, CUdeviceptr buffer) {
    return reinterpret_cast<void*>(address_of(view, buffer, call.dtype));
  };
  const void *a = pointer(call.a, buffers.a), *b = pointer(call.b, buffers.b);
  void* c = pointer(call.c, buffers.c);
  const float one = 1, zero = 0;
  const double wide_one = 1, wide_zero = 0;
  const bool wide = call.dtype == DType::f64;
  const void* alpha = wide ? static_cast<const void*>(&wide_one) : &one;
  const void* beta = wide ? static_cast<const void*>(&wide_zero) : &zero;
  check_internal(set_addresses(buffers), call.origin, ": cuBLASLt does not take the buffers of an epilogue");
  return library_->functions().cublasLtMatmul(
      library_->handle(), product_.get(), alpha, swapped_ ? b : a, first_.get(), swapped_ ? a : b, second_.get(), beta, c,
      result_.get(), c, result_.get(), &chosen_.algorithm, reinterpret_cast<void*>(workspace), chosen_.workspace_bytes, stream);
}

bool CublasLtMatmul::pass_over(std::int64_t workspace_bytes) {
  std::erase_if(candidates_, [&](const MatmulAlgorithm& candidate) {
    return std::ranges::equal(candidate.algorithm.data, chosen_.algorithm.data);
  });
  const auto next = std::ranges::find_if(candidates_, [&](const MatmulAlgorithm& candidate) {
    return static_cast<std::int64_t>(candidate.workspace_bytes) <= workspace_bytes;
  });
  if (next == candidates_.end()) return false;
  chosen_ = *next;
  return true;
}

}  // namespace gcomp::runtime::cuda
