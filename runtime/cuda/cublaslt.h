// Matrix products by cuBLASLt, found at run time. An algorithm is chosen once, when a program is loaded; no chosen algorithm adds
// in an order that varies, so that equal inputs give equal bits.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cuda/context.h"
#include "runtime/cuda/cublaslt_api.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace gcomp::runtime::cuda {

/// The first cuBLASLt from 12 to `newest_major` (0 for no limit).
LibraryResult find_cublaslt(const LibrarySearch& search, int newest_major);

class CublasLt {
 public:
  /// Null, with the reason in `reason`, where none is found or it does not start on this GPU.
  static std::shared_ptr<const CublasLt> open(const SharedContext& context, const LibrarySearch& search, std::string& reason);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  const CublasLtFunctions& functions() const { return functions_; }
  cublasLtHandle_t handle() const { return handle_; }
  std::string version() const;

 private:
  CublasLt() = default;

  SharedContext context_;
  Library library_;
  CublasLtFunctions functions_;
  cublasLtHandle_t handle_ = nullptr;
};

/// A way of the library to compute one product.
struct MatmulAlgorithm {
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
};

/// How many algorithms the library is asked for: its favourites, or all that it may have.
inline constexpr int kFavourites = 8, kAllOffers = 256;

/// The buffers of a product; bias and aux where its epilogue has such.
struct MatmulBuffers {
  CUdeviceptr a = 0, b = 0, c = 0, bias = 0, aux = 0;
};

/// One matrix product with its layouts and algorithm, and perhaps an epilogue.
class CublasLtMatmul {
 public:
  /// Null where the library has no deterministic algorithm for these types, layouts and alignments, or not with this epilogue
  /// (null for none), or computes that less precisely than asked. Of the addresses only the alignment counts.
  static std::unique_ptr<CublasLtMatmul> plan(std::shared_ptr<const CublasLt> library, const MatmulCall& call,
                                              const MatmulBuffers& buffers, MatmulPrecision precision,
                                              const LibraryEpilogue* epilogue = nullptr, int offers = kFavourites);

  /// Whether it computes more than the product.
  bool has_epilogue() const { return epilogue_.has_value(); }

  std::int64_t workspace_bytes() const { return static_cast<std::int64_t>(chosen_.workspace_bytes); }
  /// All that may be chosen, the library's favourite first, which is the one in use until choose() says otherwise.
  const std::vector<MatmulAlgorithm>& candidates() const { return candidates_; }
  void choose(const MatmulAlgorithm& algorithm) { chosen_ = algorithm; }
  const MatmulAlgorithm& chosen() const { return chosen_; }
  /// Drops the algorithm in use and takes the next of those that need at most so much workspace; false where there is none.
  bool pass_over(std::int64_t workspace_bytes);
  /// Gives what the library answers.
  cublasStatus_t try_queue(const MatmulCall& call, const MatmulBuffers& buffers, CUdeviceptr workspace, CUstream stream) const;

 private:
  template <class Handle, auto kDestroy>
  struct Destroy {
    std::shared_ptr<const CublasLt> library;
    using pointer = Handle;
    void operator()(Handle handle) const { (library->functions().*kDestroy)(handle); }
  };
  template <class Handle, auto kDestroy>
  using Description = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, kDestroy>>;
  using Product = Description<cublasLtMatmulDesc_t, &CublasLtFunctions::cublasLtMatmulDescDestroy>;
  using Layout = Description<cublasLtMatrixLayout_t, &CublasLtFunctions::cublasLtMatrixLayoutDestroy>;
  using Preference = Description<cublasLtMatmulPreference_t, &CublasLtFunctions::cublasLtMatmulPreferenceDestroy>;
  struct Shape;
  struct Matrix;

  explicit CublasLtMatmul(std::shared_ptr<const CublasLt> library) : library_(std::move(library)) {}
  static std::optional<Shape> shape_of(const MatmulCall& call);
  Layout make_layout(DType dtype, const Matrix& matrix, std::int64_t batches) const;
  bool describe(const Shape& shape, DType dtype, MatmulPrecision precision);
  bool describe_epilogue(const Shape& shape, const MatmulCall& call, const LibraryEpilogue& epilogue);
  bool set_addresses(const MatmulBuffers& buffers) const;
  template <class T>
  bool set(cublasLtMatmulDescAttributes_t attribute, const T& value) const;
  bool find_algorithms(const MatmulCall& call, const MatmulBuffers& buffers, int offers);

  std::shared_ptr<const CublasLt> library_;
  Product product_;
  Layout first_, second_, result_;
  bool swapped_ = false;  // the library's first operand is b
  std::optional<LibraryEpilogue> epilogue_;
  std::vector<MatmulAlgorithm> candidates_;
  MatmulAlgorithm chosen_;
};

}  // namespace gcomp::runtime::cuda
