#include "runtime/cuda/cudnn.h"

#include <algorithm>
#include <type_traits>

namespace gcomp::runtime::cuda {
namespace {

constexpr int kMajor = 9;  // the values of cudnn_api.h are its
constexpr std::string_view kWithout = "; --no-cudnn computes without this library";
constexpr cudnnBackendHeurMode_t kModes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};

std::string cudnn_version_text(std::size_t version) {
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::string load_functions(const Library& library, CudnnFunctions& functions) {
  std::string missing;
  for_each_function(functions, [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.symbol(name));
    if (!function && missing.empty()) missing = name;
  });
  return missing;
}

std::string last_error(const CudnnFunctions& functions) {
  char message[512] = "";
  functions.cudnnGetLastErrorString(message, sizeof message);
  return message[0] ? concat(" (", message, ")") : "";
}

/// False where the library refuses what it is asked for: then generated kernels compute it. A failure of the library's own is an
/// error, or a run could have other bits than the same run before.
bool accepts(const CudnnFunctions& functions, cudnnStatus_t status, const char* function) {
  if (status == CUDNN_STATUS_SUCCESS) return true;
  const int category = static_cast<int>(status) / 1000 * 1000;
  if (category == CUDNN_STATUS_BAD_PARAM || category == CUDNN_STATUS_NOT_SUPPORTED) return false;
  throw DeviceError(concat(function, " gave status ", static_cast<int>(status), last_error(functions), kWithout));
}

/// Whether an engine with this note gives the same bits every time, as exact as its operands' type wants.
bool may_be_noted(cudnnBackendNumericalNote_t note, bool may_round) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:  // of f32: TF32
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS: return may_round;
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return false;
  }
  return true;
}

}  // namespace

std::optional<cudnnDataType_t> cudnn_type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    default: return std::nullopt;
  }
}

std::int64_t cudnn_alignment_of(CUdeviceptr address) {
  return static_cast<std::int64_t>(std::min<CUdeviceptr>(16, address == 0 ? 16 : address & (~address + 1)));
}

LibraryResult find_cudnn(const LibrarySearch& search, int newest_major) {
  return find_library(LibraryKind::cudnn, search, [newest_major](const Library& library) -> std::string {
    CudnnFunctions functions;
    if (const std::string missing = load_functions(library, functions); !missing.empty()) return concat("it lacks ", missing);
    const std::size_t version = functions.cudnnGetVersion();
    if (version / 10000 != kMajor) return concat("it is version ", cudnn_version_text(version), ", wanted ", kMajor);
    const int cuda = static_cast<int>(functions.cudnnGetCudartVersion() / 1000);
    if (newest_major > 0 && cuda > newest_major)
      return newer_than_driver(concat(cudnn_version_text(version), " for CUDA ", cuda), newest_major);
    return {};
  });
}

std::string cudnn_version(const Library& library) {
  return cudnn_version_text(reinterpret_cast<std::size_t (*)()>(library.symbol("cudnnGetVersion"))());
}

std::string cudnn_absence(const LibraryResult& found, int driver_major) {
  return found.absence(LibraryKind::cudnn, driver_major == 12 ? "nvidia-cudnn" : "nvidia-cudnn-cu13", driver_major);
}

std::shared_ptr<const Cudnn> Cudnn::open(const SharedContext& context, const LibrarySearch& search, std::string& reason) {
  const LibraryResult found = find_cudnn(search, context->driver().major());
  if (!found.library) {
    reason = cudnn_absence(found, context->driver().major());
    return nullptr;
  }
  std::shared_ptr<Cudnn> library(new Cudnn(*found.library));
  load_functions(library->library_, library->functions_);
  context->make_current();
  cudnnHandle_t handle = nullptr;
  if (const cudnnStatus_t status = library->functions_.cudnnCreate(&handle); status != CUDNN_STATUS_SUCCESS) {
    reason = concat("cuDNN (", library->library_.path(), ") does not start: cudnnCreate gave status ", static_cast<int>(status),
                    last_error(library->functions_));
    return nullptr;
  }
  library->context_ = context;
  library->handle_ = handle;
  return library;
}

Cudnn::~Cudnn() {
  if (!handle_) return;
  context_->try_make_current();
  functions_.cudnnDestroy(handle_);
}

CudnnDescriptor::CudnnDescriptor(std::shared_ptr<const Cudnn> library, cudnnBackendDescriptorType_t type)
    : library_(std::move(library)) {
  const CudnnFunctions& f = library_->functions();
  if (!accepts(f, f.cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor"))
    throw DeviceError(concat("cuDNN has no descriptor of type ", static_cast<int>(type), kWithout));
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_) library_->functions().cudnnBackendDestroyDescriptor(descriptor_);
}

bool CudnnDescriptor::finalize() const {
  const CudnnFunctions& f = library_->functions();
  return accepts(f, f.cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize");
}

bool CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                          const void* elements) const {
  const CudnnFunctions& f = library_->functions();
  return accepts(f, f.cudnnBackendSetAttribute(descriptor_, name, type, count, elements), "cudnnBackendSetAttribute");
}

bool CudnnDescriptor::set(cudnnBackendAttributeName_t name, std::span<const CudnnDescriptor> others) const {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const CudnnDescriptor& other : others) handles.push_back(other.get());
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(handles.size()), handles.data());
}

std::int64_t CudnnDescriptor::count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
  return get(name, type, 0, nullptr);
}

std::int64_t CudnnDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t wanted,
                                  void* elements) const {
  const CudnnFunctions& f = library_->functions();
  std::int64_t count = 0;
  const bool known =
      accepts(f, f.cudnnBackendGetAttribute(descriptor_, name, type, wanted, &count, elements), "cudnnBackendGetAttribute");
  return known ? count : -1;
}

bool CudnnPlans::describe(std::span<const CudnnDescriptor> operations) {
  graph_ = CudnnDescriptor(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  return graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, library_->handle()) &&
         graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations) && graph_.finalize();
}

bool CudnnPlans::next() {
  while (true) {
    while (tried_ < configurations_.size())
      if (take(configurations_[tried_++])) return true;
    if (asked_ == std::size(kModes)) return false;
    ask(kModes[asked_++]);
  }
}

void CudnnPlans::ask(cudnnBackendHeurMode_t mode) {
  const CudnnDescriptor heuristic(library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  if (!heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_) ||
      !heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode) || !heuristic.finalize())
    return;
  const std::int64_t offered = heuristic.count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  std::vector<CudnnDescriptor> results;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < offered; ++i) {
    results.emplace_back(library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(results.back().get());
  }
  const std::int64_t given = heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, offered, handles.data());
  for (std::int64_t i = 0; i < std::min(given, offered); ++i)
    configurations_.push_back(std::move(results[static_cast<std::size_t>(i)]));
}

bool CudnnPlans::is_fit(const CudnnDescriptor& engine) const {
  const std::int64_t count = engine.count(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
  if (count < 0) return false;
  std::vector<cudnnBackendNumericalNote_t> notes(static_cast<std::size_t>(count));
  if (engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, count, notes.data()) != count) return false;
  return std::all_of(notes.begin(), notes.end(),
                     [this](cudnnBackendNumericalNote_t note) { return may_be_noted(note, may_round_); });
}

/// Makes the configuration's plan, which compiles some engines' kernels, and takes it where it is fit.
bool CudnnPlans::take(const CudnnDescriptor& configuration) {
  const CudnnDescriptor engine(library_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  if (configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle) != 1 || !is_fit(engine))
    return false;
  CudnnDescriptor plan(library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (!plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, library_->handle()) ||
      !plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration) || !plan.finalize())
    return false;
  std::int64_t number = 0, bytes = 0;
  if (engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number) != 1 ||
      plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes) != 1 || bytes > most_workspace_)
    return false;
  plan_ = std::move(plan);
  engine_ = number;
  workspace_bytes_ = bytes;
  return true;
}

void CudnnPlans::queue(const CudnnBinding& binding, CUdeviceptr workspace, CUstream stream, const std::string& origin) const {
  const CudnnFunctions& f = library_->functions();
  const CudnnDescriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<std::int64_t>(binding.addresses.size());
  const bool described = pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, binding.addresses.data()) &&
                         pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, binding.identities) &&
                         pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace) && pack.finalize();
  if (!described) throw DeviceError(concat(origin, ": cuDNN does not take the buffers of its own plan", kWithout));
  cudnnStatus_t status = f.cudnnSetStream(library_->handle(), stream);
  if (status == CUDNN_STATUS_SUCCESS) status = f.cudnnBackendExecute(library_->handle(), plan_.get(), pack.get());
  if (status != CUDNN_STATUS_SUCCESS)
    throw DeviceError(concat(origin, ": cuDNN's engine ", engine(), " gave status ", static_cast<int>(status), last_error(f)));
}

}  // namespace gcomp::runtime::cuda
