#include "tests/cuda/cublaslt/product.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ir/base/dtype.h"

namespace gcomp::emulated {
namespace {

DType dtype_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_64F: return DType::f64;
    case CUDA_R_16F: return DType::f16;
    case CUDA_R_16BF: return DType::bf16;
    case CUDA_R_32F: break;
  }
  return DType::f32;
}

const std::byte* batch_of(const void* matrix, const Layout& layout, std::int64_t batch) {
  return static_cast<const std::byte*>(matrix) + batch * layout.batch_stride * static_cast<std::int64_t>(bytes_of(layout.type));
}

/// op(matrix) row by row. TF32 keeps ten bits of the mantissa, rounded to nearest.
template <class T>
std::vector<T> dense(const std::byte* matrix, const Layout& layout, bool transposed, bool tf32) {
  const std::int64_t rows = transposed ? layout.columns : layout.rows, columns = transposed ? layout.rows : layout.columns;
  std::vector<T> values(static_cast<std::size_t>(rows * columns));
  const DType dtype = dtype_of(layout.type);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      T value = static_cast<T>(load_as_double(dtype, matrix, transposed ? layout.position(j, i) : layout.position(i, j)));
      if (tf32 && std::isfinite(value)) {
        int exponent = 0;
        const double fraction = std::frexp(static_cast<double>(value), &exponent);
        value = static_cast<T>(std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11));
      }
      values[static_cast<std::size_t>(i * columns + j)] = value;
    }
  return values;
}

template <class T>
void add_products(const T* __restrict a, const T* __restrict b, T* __restrict row, T* __restrict part, std::int64_t n,
                  std::int64_t k, std::int64_t partial_sum) {
  for (std::int64_t first = 0; first < k; first += partial_sum) {
    std::fill(part, part + n, T(0));
    for (std::int64_t at = first; at < std::min(k, first + partial_sum); ++at)
      for (std::int64_t j = 0; j < n; ++j) part[j] += a[at] * b[at * n + j];
    for (std::int64_t j = 0; j < n; ++j) row[j] += part[j];
  }
}

// cuBLASLt's GELU is the tanh form, of the hardware's tanh, which is right to some 13 bits.
double inner_tanh(double x) {
  constexpr int kBits = 13;
  const double exact = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return std::ldexp(std::nearbyint(std::ldexp(exact, kBits)), -kBits);
}
double gelu_derivative(double x) {
  const double t = inner_tanh(x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

double activated(double x, std::uint32_t epilogue) {
  if (epilogue & kEpilogueRelu) return x > 0 ? x : 0;  // 0 for NaN, as the real one
  if (epilogue & kEpilogueGelu) return 0.5 * x * (1 + inner_tanh(x));
  return x;
}

/// Each line of a rows x k matrix, or of a k x rows one, added up without regard to alpha.
template <class T>
void store_sums(const std::vector<T>& values, std::int64_t lines, std::int64_t k, bool k_first, cudaDataType type, void* sums) {
  for (std::int64_t line = 0; line < lines; ++line) {
    T sum = 0;
    for (std::int64_t at = 0; at < k; ++at) sum += values[static_cast<std::size_t>(k_first ? at * lines + line : line * k + at)];
    store_from_double(dtype_of(type), static_cast<std::byte*>(sums), line, static_cast<double>(sum));
  }
}

template <class T>
void run_as(const Product& p, const Operands& operands) {
  const std::int64_t m = p.d.rows, n = p.d.columns, k = p.transpose_a == CUBLAS_OP_T ? p.a.rows : p.a.columns;
  const bool tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  std::vector<T> row(static_cast<std::size_t>(n)), part(row);
  for (std::int64_t batch = 0; batch < p.d.batches; ++batch) {
    const std::vector<T> a = dense<T>(batch_of(operands.a, p.a, batch), p.a, p.transpose_a == CUBLAS_OP_T, tf32);
    const std::vector<T> b = dense<T>(batch_of(operands.b, p.b, batch), p.b, p.transpose_b == CUBLAS_OP_T, tf32);
    if (p.epilogue & kEpilogueSumOfA) store_sums(a, m, k, false, p.d.type, operands.bias);
    if (p.epilogue & kEpilogueSumOfB) store_sums(b, n, k, true, p.d.type, operands.bias);
    const std::byte* c = batch_of(operands.c, p.c, batch);
    std::byte* d = const_cast<std::byte*>(batch_of(operands.d, p.d, batch));
    for (std::int64_t i = 0; i < m; ++i) {
      std::fill(row.begin(), row.end(), T(0));
      add_products(a.data() + i * k, b.data(), row.data(), part.data(), n, k, p.partial_sum);
      for (std::int64_t j = 0; j < n; ++j) {
        double value = p.alpha * static_cast<double>(row[static_cast<std::size_t>(j)]);
        if (p.beta != 0) value += p.beta * load_as_double(dtype_of(p.c.type), c, p.c.position(i, j));
        if (p.epilogue & kEpilogueBias)
          value += load_as_double(dtype_of(p.d.type), static_cast<const std::byte*>(operands.bias), i);
        if (p.epilogue & kEpilogueAux) {
          const std::int64_t at = batch * p.aux_batch_stride + j * p.aux_leading + i;
          std::byte* aux = static_cast<std::byte*>(operands.aux);
          if (p.epilogue & kEpilogueGeluGradient) value *= gelu_derivative(load_as_double(dtype_of(p.d.type), aux, at));
          else store_from_double(dtype_of(p.d.type), aux, at, value);
        }
        store_from_double(dtype_of(p.d.type), d, p.d.position(i, j), activated(value, p.epilogue));
      }
    }
  }
}

}  // namespace

std::size_t bytes_of(cudaDataType type) { return size_of(dtype_of(type)); }

std::int64_t Layout::extent() const { return (batches - 1) * batch_stride + position(rows - 1, columns - 1) + 1; }

bool Layout::valid() const {
  if (order != CUBLASLT_ORDER_COL && order != CUBLASLT_ORDER_ROW) return false;
  return rows > 0 && columns > 0 && batches > 0 && leading >= (order == CUBLASLT_ORDER_COL ? rows : columns);
}

cublasStatus_t Product::check() const {
  for (const Layout* layout : {&a, &b, &c, &d})
    if (!layout->valid() || layout->batches != d.batches) return CUBLAS_STATUS_INVALID_VALUE;
  const bool flip_a = transpose_a == CUBLAS_OP_T, flip_b = transpose_b == CUBLAS_OP_T;
  const std::int64_t k = flip_a ? a.rows : a.columns;
  if ((flip_a ? a.columns : a.rows) != d.rows || (flip_b ? b.rows : b.columns) != d.columns || (flip_b ? b.columns : b.rows) != k ||
      c.rows != d.rows || c.columns != d.columns || c.type != d.type)
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool wide = compute == CUBLAS_COMPUTE_64F;
  if (wide != (scale == CUDA_R_64F) || wide != (a.type == CUDA_R_64F) || a.type != b.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (d.type != a.type && d.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  // Overlapping results: the batches of D must be apart.
  if (d.batches > 1 && d.batch_stride == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (std::find(std::begin(kEpilogues), std::end(kEpilogues), epilogue) == std::end(kEpilogues)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (wide && epilogue != kEpilogueDefault) return CUBLAS_STATUS_NOT_SUPPORTED;
  // An RTX 3060 with cuBLASLt 13.0 refuses these layouts; batches are not documented.
  if (((epilogue & kEpilogueSumOfA) && flip_a) || ((epilogue & kEpilogueSumOfB) && !flip_b)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((epilogue & (kEpilogueSumOfA | kEpilogueSumOfB)) && d.batches > 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!(epilogue & kEpilogueAux)) return CUBLAS_STATUS_SUCCESS;
  if (aux_leading < d.rows || aux_leading % 8 != 0 || aux_batch_stride % 8 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (d.order != CUBLASLT_ORDER_COL || (d.batches > 1 && aux_batch_stride == 0)) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

std::int64_t Product::bias_extent() const {
  if (epilogue & (kEpilogueBias | kEpilogueSumOfA)) return d.rows;
  return epilogue & kEpilogueSumOfB ? d.columns : 0;
}

std::int64_t Product::aux_extent() const { return (d.batches - 1) * aux_batch_stride + (d.columns - 1) * aux_leading + d.rows; }

void Product::run(const Operands& operands) const {
  if (compute == CUBLAS_COMPUTE_64F) run_as<double>(*this, operands);
  else run_as<float>(*this, operands);
}

}  // namespace gcomp::emulated
