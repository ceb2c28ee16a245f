// The emulated cuBLASLt: descriptors, a few algorithms for each product, and the product as work of a stream of the emulated
// driver.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>

#include "runtime/cuda/cublaslt_api.h"
#include "tests/cuda/cublaslt/product.h"
#include "tests/cuda/record/environment.h"
#include "tests/cuda/record/image.h"
#include "tests/cuda/record/library_calls.h"

#define GCOMP_EXPORT extern "C" __attribute__((visibility("default")))

// The emulated driver's, see driver/exports.h.
extern "C" int gcompEmulatedQueue(gcomp::runtime::cuda::CUstream stream, const char* label, int (*work)(void*),
                                  void (*release)(void*), void* data);
extern "C" void gcompEmulatedTook(long long microseconds);
extern "C" int gcompEmulatedHolds(const void* address, std::size_t bytes);

namespace gcomp::emulated {

#define GCOMP_DECLARE(RESULT, NAME, PARAMETERS) GCOMP_EXPORT RESULT NAME PARAMETERS;
GCOMP_CUBLASLT_FUNCTIONS(GCOMP_DECLARE)
#undef GCOMP_DECLARE

namespace {

constexpr std::size_t kWorkspace = 4096;  // asked for so that a caller must have one

struct Description {
  cublasComputeType_t compute;
  cudaDataType scale;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = kEpilogueDefault;
  void *bias = nullptr, *aux = nullptr;
  std::int64_t aux_leading = 0, aux_batch_stride = 0;

  /// Whether what the epilogue needs was given.
  bool complete() const {
    return (bias || !(epilogue & (kEpilogueBias | kEpilogueSumOfA | kEpilogueSumOfB))) && (aux || !(epilogue & kEpilogueAux));
  }
};

struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reduction_schemes = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};
};

/// What an algorithm was chosen for: it may not be used for anything else.
struct Algorithm {
  std::uint64_t product = 0, workspace = 0;
  std::uint32_t alignment[4] = {};
  std::uint32_t epilogue_alignment[2] = {};  // of bias and aux: as those pointers were when it was asked for
  std::uint64_t number = 0;                  // among those that are offered, from 0
  std::uint64_t unused[2] = {};
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

cublasStatus_t entered(const char* name) { return static_cast<cublasStatus_t>(calls().enter(name)); }

/// Opaque handles are pointers to our structures.
template <class T, class Handle>
T* object(Handle handle) {
  return reinterpret_cast<T*>(handle);
}

template <class T>
cublasStatus_t set(T& to, const void* value, std::size_t bytes) {
  if (!value || bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, sizeof to);
  return CUBLAS_STATUS_SUCCESS;
}

/// Tells products apart, without the scalars.
std::uint64_t identity_of(const Product& p) {
  const std::int64_t facts[] = {p.a.rows,      p.a.columns,   p.a.leading, p.a.batch_stride, p.a.order,         p.a.type,
                                p.b.rows,      p.b.columns,   p.b.leading, p.b.batch_stride, p.b.order,         p.d.rows,
                                p.d.columns,   p.d.leading,   p.d.order,   p.d.batches,      p.d.type,          p.compute,
                                p.transpose_a, p.transpose_b, p.epilogue,  p.aux_leading,    p.aux_batch_stride};
  return checksum_of(facts, sizeof facts);
}

Product product_of(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                   cublasLtMatrixLayout_t d) {
  const Description& what = *object<Description>(description);
  Product product;
  product.a = *object<Layout>(a);
  product.b = *object<Layout>(b);
  product.c = *object<Layout>(c);
  product.d = *object<Layout>(d);
  product.compute = what.compute;
  product.scale = what.scale;
  product.transpose_a = what.transpose_a;
  product.transpose_b = what.transpose_b;
  product.epilogue = what.epilogue;
  product.aux_leading = what.aux_leading;
  product.aux_batch_stride = what.aux_batch_stride;
  return product;
}

/// A product that waits in a stream.
struct Work {
  Product product;
  Operands operands;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  long long microseconds = 0;
};

/// How long an algorithm is said to take: the entry of its number in "30,10,20", or the last.
long long microseconds_of(const Product& product, std::uint64_t number) {
  const std::string plain = setting("CUBLASLT_TIMES");
  std::istringstream in(product.epilogue == kEpilogueDefault ? plain : setting("CUBLASLT_EPILOGUE_TIMES", plain));
  long long microseconds = 0;
  std::string entry;
  for (std::uint64_t i = 0; i <= number && std::getline(in, entry, ','); ++i) microseconds = std::stoll(entry);
  return microseconds;
}

constexpr int kIllegalAddress = 700;

bool holds(const void* matrix, const Layout& layout) {
  return gcompEmulatedHolds(matrix, static_cast<std::size_t>(layout.extent()) * bytes_of(layout.type)) != 0;
}

/// Whether its first elements are all alike.
bool is_constant(const void* matrix, const Layout& layout) {
  constexpr std::int64_t kLookedAt = 64;
  const std::size_t width = bytes_of(layout.type);
  const auto count = static_cast<std::size_t>(std::min(layout.extent(), kLookedAt));
  const auto* bytes = static_cast<const std::byte*>(matrix);
  for (std::size_t i = 1; i < count; ++i)
    if (std::memcmp(bytes, bytes + i * width, width) != 0) return false;
  return count > 1;
}

int run_work(void* data) {
  const Work& work = *static_cast<const Work*>(data);
  const Product& p = work.product;
  if (!holds(work.operands.a, p.a) || !holds(work.operands.b, p.b) || !holds(work.operands.d, p.d)) return kIllegalAddress;
  if (p.beta != 0 && !holds(work.operands.c, p.c)) return kIllegalAddress;
  if (p.bias_extent() > 0 &&
      !gcompEmulatedHolds(work.operands.bias, static_cast<std::size_t>(p.bias_extent()) * bytes_of(p.d.type)))
    return kIllegalAddress;
  if ((p.epilogue & kEpilogueAux) &&
      !gcompEmulatedHolds(work.operands.aux, static_cast<std::size_t>(p.aux_extent()) * bytes_of(p.d.type)))
    return kIllegalAddress;
  if (work.workspace_bytes > 0) {
    if (!gcompEmulatedHolds(work.workspace, work.workspace_bytes)) return kIllegalAddress;
    std::memset(work.workspace, 0xff, work.workspace_bytes);
  }
  calls().add("products");
  if (is_constant(work.operands.a, p.a)) calls().add("products of a constant");
  gcompEmulatedTook(work.microseconds);
  if (p.epilogue & (kEpilogueSumOfA | kEpilogueSumOfB)) calls().add("products with a bias gradient");
  else if (p.epilogue != kEpilogueDefault) calls().add("products with an epilogue");
  p.run(work.operands);
  return 0;
}

double scalar(const void* value, cudaDataType type) {
  return type == CUDA_R_64F ? *static_cast<const double*>(value) : static_cast<double>(*static_cast<const float*>(value));
}

/// The largest power of two up to 16 that an address is a multiple of.
std::uint32_t alignment_of(const void* address) {
  std::uint32_t bytes = 16;
  while (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) bytes /= 2;
  return bytes;
}

bool aligned(const void* address, std::uint32_t bytes) { return reinterpret_cast<std::uintptr_t>(address) % bytes == 0; }

}  // namespace

std::string reported_name() { return "libcublasLt"; }
std::map<std::string, std::int64_t> reported_figures(const Calls& calls) {
  return {{"handles", calls.count("live handles")},
          {"products", calls.count("live products")},
          {"layouts", calls.count("live layouts")},
          {"preferences", calls.count("live preferences")}};
}

std::size_t cublasLtGetVersion() {
  const Version v = version_setting("CUBLASLT", "13.0");
  return static_cast<std::size_t>(10000 * v.major + 100 * v.minor);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (const auto error = entered("cublasLtCreate")) return error;
  calls().add("live handles", 1);
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (const auto error = entered("cublasLtDestroy")) return error;
  calls().add("live handles", -1);
  delete object<int>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute, cudaDataType scale) {
  if (const auto error = entered("cublasLtMatmulDescCreate")) return error;
  calls().add("live products", 1);
  *product = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{.compute = compute, .scale = scale});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  if (const auto error = entered("cublasLtMatmulDescDestroy")) return error;
  calls().add("live products", -1);
  delete object<Description>(product);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  if (const auto error = entered("cublasLtMatmulDescSetAttribute")) return error;
  Description& description = *object<Description>(product);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(description.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(description.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(description.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(description.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return set(description.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return set(description.aux_leading, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return set(description.aux_batch_stride, value, bytes);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  if (const auto error = entered("cublasLtMatrixLayoutCreate")) return error;
  calls().add("live layouts", 1);
  auto* made = new Layout();
  made->type = type;
  made->rows = static_cast<std::int64_t>(rows);
  made->columns = static_cast<std::int64_t>(columns);
  made->leading = leading;
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(made);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  if (const auto error = entered("cublasLtMatrixLayoutDestroy")) return error;
  calls().add("live layouts", -1);
  delete object<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  if (const auto error = entered("cublasLtMatrixLayoutSetAttribute")) return error;
  Layout& layout = *object<Layout>(handle);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return set(layout.order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(layout.batches, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return set(layout.batch_stride, value, bytes);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  if (const auto error = entered("cublasLtMatmulPreferenceCreate")) return error;
  calls().add("live preferences", 1);
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference());
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  if (const auto error = entered("cublasLtMatmulPreferenceDestroy")) return error;
  calls().add("live preferences", -1);
  delete object<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  if (const auto error = entered("cublasLtMatmulPreferenceSetAttribute")) return error;
  Preference& preference = *object<Preference>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(preference.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(preference.reduction_schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(preference.alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(preference.alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(preference.alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(preference.alignment[3], value, bytes);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  if (const auto error = entered("cublasLtMatmulAlgoGetHeuristic")) return error;
  *count = 0;
  if (!handle || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const Product product = product_of(description, a, b, c, d);
  if (const cublasStatus_t status = product.check(); status != CUBLAS_STATUS_SUCCESS) return status;
  const Description& what = *object<Description>(description);
  if (!what.complete()) return CUBLAS_STATUS_INVALID_VALUE;
  if (product.epilogue != kEpilogueDefault && integer_setting("CUBLASLT_EPILOGUES", 1) == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Preference& allowed = *object<Preference>(preference);
  Algorithm algorithm;
  algorithm.product = identity_of(product);
  algorithm.workspace = std::min<std::uint64_t>(kWorkspace, allowed.workspace);
  std::memcpy(algorithm.alignment, allowed.alignment, sizeof algorithm.alignment);
  if (product.bias_extent() > 0) algorithm.epilogue_alignment[0] = alignment_of(what.bias);
  if (product.epilogue & kEpilogueAux) algorithm.epilogue_alignment[1] = alignment_of(what.aux);
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  results[0].workspaceSize = algorithm.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  *count = 1;
  if (wanted < 2) return CUBLAS_STATUS_SUCCESS;
  // Another one without workspace, of the same numbers unless asked for others.
  results[1] = results[0];
  algorithm.number = 1;
  algorithm.workspace = results[1].workspaceSize = 0;
  std::memcpy(&results[1].algo, &algorithm, sizeof algorithm);
  *count = 2;
  // One more where somebody asks for more than the favourites.
  constexpr int kFavourites = 8;
  if (wanted <= kFavourites) return CUBLAS_STATUS_SUCCESS;
  results[2] = results[0];
  algorithm.number = 2;
  algorithm.workspace = results[2].workspaceSize = results[0].workspaceSize / 2;
  std::memcpy(&results[2].algo, &algorithm, sizeof algorithm);
  *count = 3;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* chosen, void* workspace, std::size_t workspace_bytes, CUstream stream) {
  if (const auto error = entered("cublasLtMatmul")) return error;
  if (!handle || !a || !b || !d || !alpha || !beta || !chosen) return CUBLAS_STATUS_INVALID_VALUE;
  auto work = std::make_unique<Work>();
  work->product = product_of(description, a_layout, b_layout, c_layout, d_layout);
  if (const cublasStatus_t status = work->product.check(); status != CUBLAS_STATUS_SUCCESS) return status;
  if (work->product.epilogue != kEpilogueDefault)
    if (const auto error = entered("epilogue")) return error;
  Algorithm algorithm;
  std::memcpy(static_cast<void*>(&algorithm), chosen, sizeof algorithm);
  if (algorithm.product != identity_of(work->product) || workspace_bytes < algorithm.workspace) return CUBLAS_STATUS_INVALID_VALUE;
  const void* addresses[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (!aligned(addresses[i], algorithm.alignment[i])) return CUBLAS_STATUS_INVALID_VALUE;
  const Description& what = *object<Description>(description);
  if (!what.complete()) return CUBLAS_STATUS_INVALID_VALUE;
  const void* further[] = {what.bias, what.aux};
  for (int i = 0; i < 2; ++i)
    if (algorithm.epilogue_alignment[i] && !aligned(further[i], algorithm.epilogue_alignment[i]))
      return CUBLAS_STATUS_INVALID_VALUE;
  work->product.alpha = scalar(alpha, work->product.scale);
  work->product.beta = scalar(beta, work->product.scale);
  work->operands = {a, b, c, what.bias, d, what.aux};
  work->workspace = workspace;
  work->workspace_bytes = algorithm.workspace;
  work->microseconds = microseconds_of(work->product, algorithm.number);
  constexpr std::int64_t kPartialSums[] = {128, 4, 2};
  if (integer_setting("CUBLASLT_ORDERS", 0) != 0)
    work->product.partial_sum = kPartialSums[std::min<std::uint64_t>(algorithm.number, 2)];
  const int error = gcompEmulatedQueue(
      stream, "cublasLtMatmul", run_work, [](void* data) { delete static_cast<Work*>(data); }, work.release());
  return error == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace gcomp::emulated
