// Convolutions by cuDNN's graphs, found at run time and called through its C backend. A plan is chosen once, when a program is
// loaded; none is taken whose engine is noted to add in an order that varies or to round more than the call's dtype does.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/context.h"
#include "runtime/cuda/cudnn_api.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace gcomp::runtime::cuda {

/// cuDNN 9, made for a CUDA up to `newest_major` (0 for no limit).
LibraryResult find_cudnn(const LibrarySearch& search, int newest_major);
/// "9.19.0".
std::string cudnn_version(const Library& library);
/// Why there is none, with the cure.
std::string cudnn_absence(const LibraryResult& found, int driver_major);

class Cudnn {
 public:
  /// Null, with the reason in `reason`, where none is found or it does not start on this GPU.
  static std::shared_ptr<const Cudnn> open(const SharedContext& context, const LibrarySearch& search, std::string& reason);
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  const CudnnFunctions& functions() const { return functions_; }
  cudnnHandle_t handle() const { return handle_; }
  std::string version() const { return cudnn_version(library_); }

 private:
  explicit Cudnn(Library library) : library_(std::move(library)) {}

  SharedContext context_;
  Library library_;
  CudnnFunctions functions_;
  cudnnHandle_t handle_ = nullptr;
};

/// One of the backend's objects. What the library does not support it refuses, and false is returned; a failure of its own throws
/// DeviceError.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  CudnnDescriptor(std::shared_ptr<const Cudnn> library, cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : library_(std::move(other.library_)), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~CudnnDescriptor();

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  bool finalize() const;

  bool set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* elements) const;
  template <class T>
  bool set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) const {
    return set(name, type, 1, &value);
  }
  bool set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) const {
    return set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  bool set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) const {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.get());
  }

  /// How many elements an attribute has, -1 where it is refused.
  std::int64_t count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;
  /// Up to `wanted` of them into `elements`; how many it has, or likewise.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t wanted, void* elements) const;

 private:
  std::shared_ptr<const Cudnn> library_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// The buffers of a convolution, whichever of them is written. A weight that is packed is [o, kernel..., c / groups].
struct ConvolutionBuffers {
  CUdeviceptr input = 0, weight = 0, output = 0;
};

/// One convolution with the plan that computes it.
class CudnnConvolution {
 public:
  /// The library's favourite. Null where it has none for these types, layouts and alignments. Of the addresses only the alignment
  /// counts.
  static std::unique_ptr<CudnnConvolution> plan(std::shared_ptr<const Cudnn> library, const ConvolutionCall& call,
                                                const ConvolutionBuffers& buffers, MatmulPrecision precision);

  /// Takes the next plan that the library offers; false, and the old one stays, where there is no other.
  bool next();
  /// The plan in use within those that are offered, and its engine by the library's number: "2, engine 51".
  std::string name() const { return concat(tried_ - 1, ", engine ", engine_); }
  std::int64_t engine() const { return engine_; }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Throws DeviceError naming the call's origin where the library refuses.
  void queue(const ConvolutionCall& call, const ConvolutionBuffers& buffers, CUdeviceptr workspace, CUstream stream) const;

 private:
  CudnnConvolution(std::shared_ptr<const Cudnn> library, bool may_round) : library_(std::move(library)), may_round_(may_round) {}
  bool describe(const ConvolutionCall& call, const ConvolutionBuffers& buffers);
  bool describe_tensor(std::size_t which, const ConvolutionCall& call, CUdeviceptr address);
  bool describe_convolution(const ConvolutionCall& call);
  bool describe_operation(const ConvolutionCall& call);
  void ask(cudnnBackendHeurMode_t mode);
  bool is_fit(const CudnnDescriptor& engine) const;
  bool take(const CudnnDescriptor& configuration);

  std::shared_ptr<const Cudnn> library_;
  bool may_round_;                          // inputs to less than their dtype: TF32
  std::array<CudnnDescriptor, 3> tensors_;  // input, weight, output
  CudnnDescriptor convolution_, operation_, graph_;
  std::size_t asked_ = 0, tried_ = 0;  // modes of the heuristic, configurations
  std::vector<CudnnDescriptor> configurations_;
  CudnnDescriptor plan_;
  std::int64_t engine_ = 0, workspace_bytes_ = 0;
};

}  // namespace gcomp::runtime::cuda
