// cuDNN, found at run time and called through its C backend: the library, its descriptors, and the plans that it offers for a graph
// of operations. A plan is chosen once, when a program is loaded; none is taken whose engine is noted to add in an order that
// varies or to round more than may be.
#pragma once

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
  std::size_t version_number() const { return functions_.cudnnGetVersion(); }

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
  bool set(cudnnBackendAttributeName_t name, std::span<const CudnnDescriptor> others) const;

  /// How many elements an attribute has, -1 where it is refused.
  std::int64_t count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;
  /// Up to `wanted` of them into `elements`; how many it has, or likewise.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t wanted, void* elements) const;

 private:
  std::shared_ptr<const Cudnn> library_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

std::optional<cudnnDataType_t> cudnn_type_of(DType dtype);
/// Of a tensor there; the library's own limit is 16.
std::int64_t cudnn_alignment_of(CUdeviceptr address);

/// What a plan reads and writes: tensors by their identities within the graph. What is given by value lies on the host.
struct CudnnBinding {
  std::vector<std::int64_t> identities;
  std::vector<CUdeviceptr> addresses;

  void add(std::int64_t identity, CUdeviceptr address) {
    identities.push_back(identity);
    addresses.push_back(address);
  }
};

/// The plans that the library offers for a graph of operations, one of which is in use once next() was true.
class CudnnPlans {
 public:
  CudnnPlans() = default;
  /// `may_round`: inputs to less than their dtype, as TF32 does.
  CudnnPlans(std::shared_ptr<const Cudnn> library, bool may_round, std::int64_t most_workspace)
      : library_(std::move(library)), may_round_(may_round), most_workspace_(most_workspace) {}

  /// False where the library refuses the operations, which must outlive the plans.
  bool describe(std::span<const CudnnDescriptor> operations);
  /// Takes the next plan that is fit; false, and the old one stays, where there is no other.
  bool next();
  /// The plan in use within those that are offered, and its engine by the library's number: "2, engine 51".
  std::string name() const { return concat(tried_ - 1, ", engine ", engine_); }
  std::int64_t engine() const { return engine_; }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Throws DeviceError naming `origin` where the library refuses.
  void queue(const CudnnBinding& binding, CUdeviceptr workspace, CUstream stream, const std::string& origin) const;

 private:
  void ask(cudnnBackendHeurMode_t mode);
  bool is_fit(const CudnnDescriptor& engine) const;
  bool take(const CudnnDescriptor& configuration);

  std::shared_ptr<const Cudnn> library_;
  bool may_round_ = false;
  std::int64_t most_workspace_ = 0;
  CudnnDescriptor graph_;
  std::size_t asked_ = 0, tried_ = 0;  // modes of the heuristic, configurations
  std::vector<CudnnDescriptor> configurations_;
  CudnnDescriptor plan_;
  std::int64_t engine_ = 0, workspace_bytes_ = 0;
};

}  // namespace gcomp::runtime::cuda
