// The emulated cuDNN: descriptors as maps of attributes, a few engines for each graph, a convolution or several operations, and
// what they compute as work of a stream of the emulated driver.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "runtime/cuda/cudnn_api.h"
#include "tests/cuda/cudnn/convolution.h"
#include "tests/cuda/cudnn/graph.h"
#include "tests/cuda/record/environment.h"
#include "tests/cuda/record/library_calls.h"

#define GCOMP_EXPORT extern "C" __attribute__((visibility("default")))

// The emulated driver's, see driver/exports.h.
extern "C" int gcompEmulatedQueue(gcomp::runtime::cuda::CUstream stream, const char* label, int (*work)(void*),
                                  void (*release)(void*), void* data);
extern "C" int gcompEmulatedHolds(const void* address, std::size_t bytes);

namespace gcomp::emulated {

#define GCOMP_DECLARE(RESULT, NAME, PARAMETERS) GCOMP_EXPORT RESULT NAME PARAMETERS;
GCOMP_CUDNN_FUNCTIONS(GCOMP_DECLARE)
#undef GCOMP_DECLARE

namespace {

constexpr int kIllegalAddress = 700;

/// What the heuristic offers, its favourite first. GCOMP_EMULATED_CUDNN_ENGINES=NUMBERS offers those.
struct Engine {
  std::int64_t number;
  std::vector<cudnnBackendNumericalNote_t> notes;
  std::int64_t workspace_bytes;
  bool is_random;  ///< adds in an order that changes from run to run
  bool takes_f32_alone = false;
};
const std::vector<Engine>& engines() {
  static const std::vector<Engine> all = {
      {0, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 0, true},
      {1, {CUDNN_NUMERICAL_NOTE_WINOGRAD}, 1 << 20, false},
      {2, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, 4096, false, true},
      {3, {}, 8192, false},
      {4, {}, 0, true},  // its notes are wrong
      {5, {}, std::int64_t{1} << 40, false},
  };
  return all;
}
const Engine& engine_of(std::int64_t number) { return engines()[static_cast<std::size_t>(number)]; }

std::vector<std::int64_t> offered(cudnnDataType_t type) {
  std::vector<std::int64_t> numbers;
  for (const char digit : setting("CUDNN_ENGINES", "012354"))
    if (digit >= '0' && digit < '0' + static_cast<int>(engines().size()) &&
        (type == CUDNN_DATA_FLOAT || !engine_of(digit - '0').takes_f32_alone))
      numbers.push_back(digit - '0');
  return numbers;
}

struct Attribute {
  cudnnBackendAttributeType_t type;
  std::int64_t count;
  std::vector<std::byte> elements;
};
struct Descriptor {
  explicit Descriptor(cudnnBackendDescriptorType_t of) : type(of) {}

  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  std::int64_t engine = -1;  ///< of what a heuristic filled in

  template <class T>
  std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> values(static_cast<std::size_t>(found->second.count));
    if (values.size() * sizeof(T) != found->second.elements.size()) return {};
    std::memcpy(values.data(), found->second.elements.data(), found->second.elements.size());
    return values;
  }
  template <class T>
  T one(cudnnBackendAttributeName_t name, T otherwise = T()) const {
    const std::vector<T> values = all<T>(name);
    return values.size() == 1 ? values[0] : otherwise;
  }
  const Descriptor* other(cudnnBackendAttributeName_t name) const {
    return static_cast<const Descriptor*>(one<cudnnBackendDescriptor_t>(name));
  }
};

Descriptor* object(cudnnBackendDescriptor_t handle) { return static_cast<Descriptor*>(handle); }
cudnnStatus_t entered(const char* name) { return static_cast<cudnnStatus_t>(calls().enter(name)); }

struct Handle {
  CUstream stream = nullptr;
};

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_NUMERICAL_NOTE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
    case CUDNN_TYPE_FLOAT: return 4;
    case CUDNN_TYPE_BOOLEAN: return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
  }
  return 0;
}

Tensor tensor_of(const Descriptor& d) {
  return {d.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),    d.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1),
          d.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),       d.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
          d.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES),         d.one<std::uint8_t>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0,
          d.one<std::uint8_t>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0};
}

struct Names {
  Written written;
  cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};
const Names* names_of(cudnnBackendDescriptorType_t type) {
  static const std::map<cudnnBackendDescriptorType_t, Names> all = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       {Written::output, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       {Written::input, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       {Written::weight, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}}};
  const auto found = all.find(type);
  return found == all.end() ? nullptr : &found->second;
}

std::vector<const Descriptor*> operations_of(const Descriptor& graph) {
  std::vector<const Descriptor*> found;
  for (const cudnnBackendDescriptor_t handle : graph.all<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS))
    found.push_back(static_cast<const Descriptor*>(handle));
  return found;
}
/// Of a graph of one convolution; null of any other.
const Descriptor* convolution_in(const Descriptor& graph) {
  const auto operations = operations_of(graph);
  return operations.size() == 1 && names_of(operations[0]->type) ? operations[0] : nullptr;
}

Operation operation_of(const Descriptor& d) {
  const auto tensor = [&](cudnnBackendAttributeName_t name) { return d.other(name) ? tensor_of(*d.other(name)) : Tensor(); };
  Operation made;
  switch (d.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      made.kind = Operation::Kind::matmul;
      made.x = tensor(CUDNN_ATTR_OPERATION_MATMUL_ADESC);
      made.b = tensor(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
      made.y = tensor(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
      return made;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      made.kind = Operation::Kind::reduction;
      made.reduction = d.other(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
      made.x = tensor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
      made.y = tensor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
      return made;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      made.kind = Operation::Kind::reshape;
      made.x = tensor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
      made.y = tensor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
      return made;
    default: break;
  }
  const Descriptor& how = *d.other(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  made.mode = how.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  made.axis = how.one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
  made.x = tensor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  made.b = tensor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  made.t = tensor(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
  made.y = tensor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  return made;
}

Graph graph_of(const Descriptor& graph) {
  Graph made;
  for (const Descriptor* operation : operations_of(graph)) made.operations.push_back(operation_of(*operation));
  return made;
}

/// Whether all that an operation refers to is there.
cudnnStatus_t check_parts(const Descriptor& d, std::initializer_list<cudnnBackendAttributeName_t> names) {
  for (const auto name : names)
    if (!d.other(name) || !d.other(name)->is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  return CUDNN_STATUS_SUCCESS;
}

Convolution convolution_of(const Descriptor& operation) {
  const Names& names = *names_of(operation.type);
  const Descriptor& windows = *operation.other(names.convolution);
  return {.written = names.written,
          .input = tensor_of(*operation.other(names.x)),
          .weight = tensor_of(*operation.other(names.w)),
          .output = tensor_of(*operation.other(names.y)),
          .strides = windows.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
          .dilations = windows.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS),
          .before = windows.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
          .after = windows.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)};
}

cudnnStatus_t check_operation(const Descriptor& d) {
  const Names& names = *names_of(d.type);
  for (const auto name : {names.convolution, names.x, names.w, names.y})
    if (!d.other(name) || !d.other(name)->is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  const Convolution convolution = convolution_of(d);
  if (!convolution.fits()) return CUDNN_STATUS_BAD_PARAM;
  const bool wide = convolution.input.type == CUDNN_DATA_DOUBLE;
  const double alpha = wide ? d.one<double>(names.alpha) : static_cast<double>(d.one<float>(names.alpha));
  const double beta = wide ? d.one<double>(names.beta, 1) : static_cast<double>(d.one<float>(names.beta, 1));
  return alpha == 1 && beta == 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

/// Channels last want a weight whose channels are last: the library has no engine for others.
bool has_engines(const Descriptor& graph) {
  const auto last = [](const Tensor& t) { return t.strides[1] == 1 && t.dimensions[1] > 1; };
  if (integer_setting("CUDNN_REFUSES", 0) != 0) return false;
  // GCOMP_EMULATED_CUDNN_REFUSES_ATTENTION=1: attention and its gradient; 2: the gradient, whose graph is the longer one.
  constexpr std::size_t kLongestForward = 14;
  const auto refuses = integer_setting("CUDNN_REFUSES_ATTENTION", 0);
  if (!convolution_in(graph)) return refuses == 0 || (refuses == 2 && operations_of(graph).size() <= kLongestForward);
  const Convolution c = convolution_of(*convolution_in(graph));
  return c.weight.dimensions[1] == 1 || last(c.input) == last(c.weight);
}

cudnnDataType_t type_of(const Descriptor& graph) {
  const Descriptor* convolution = convolution_in(graph);
  return convolution ? convolution_of(*convolution).input.type : operation_of(*operations_of(graph)[0]).x.type;
}

cudnnStatus_t check(Descriptor& d) {
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: {
      const Tensor tensor = tensor_of(d);
      const bool complete = tensor.dimensions.size() >= 4 && tensor.strides.size() == tensor.dimensions.size();
      return complete ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
    }
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: {
      const auto rank = static_cast<std::size_t>(d.one<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
      for (const auto name : {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS,
                              CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS})
        if (d.all<std::int64_t>(name).size() != rank) return CUDNN_STATUS_BAD_PARAM;
      const bool flipped = d.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION;
      return flipped || rank < 2 ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: return check_operation(d);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR: return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return check_parts(d, {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                             CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_ATTR_OPERATION_MATMUL_DESC});
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return check_parts(d, {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                             CUDNN_ATTR_OPERATION_POINTWISE_YDESC});
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return check_parts(
          d, {CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC});
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return check_parts(d, {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC});
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
      const auto operations = operations_of(d);
      if (operations.empty()) return CUDNN_STATUS_BAD_PARAM;
      for (const Descriptor* operation : operations)
        if (!operation->is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
      if (!convolution_in(d) && !graph_of(d).fits()) return CUDNN_STATUS_BAD_PARAM;
      return d.one<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
    }
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
      const Descriptor* graph = d.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      if (!graph || !graph->is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
      return has_engines(*graph) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    }
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
      const Descriptor* configuration = d.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
      if (!configuration || configuration->engine < 0) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
      return d.one<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
    }
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: {
      const auto pointers = d.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
      const bool named = pointers.size() == d.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size();
      return named && !pointers.empty() ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
    }
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: break;
  }
  return CUDNN_STATUS_NOT_SUPPORTED;  // engines of one's own choice
}

/// What waits in a stream: a convolution, or else a graph.
struct Work {
  std::optional<Convolution> convolution;
  Graph graph;
  const Engine* engine = nullptr;
  std::map<std::int64_t, void*> data;  // of tensors in memory, by their identities
  void* workspace = nullptr;

  std::vector<const Tensor*> tensors() const {
    if (convolution) return {&convolution->input, &convolution->weight, &convolution->output};
    return graph.tensors();
  }

  /// What is given by value is read at once; false where something is missing.
  bool take_values() {
    for (const Operation& operation : graph.operations)
      for (const Tensor* tensor : {&operation.x, &operation.b, &operation.t}) {
        if (!tensor->by_value) continue;
        const auto found = data.find(tensor->identity);
        if (found == data.end()) return false;
        graph.values[tensor->identity] = *static_cast<const float*>(found->second);
      }
    return true;
  }
};

int run_work(void* data) {
  static bool backwards = false;
  const Work& work = *static_cast<const Work*>(data);
  for (const Tensor* tensor : work.tensors())
    if (!gcompEmulatedHolds(work.data.at(tensor->identity), static_cast<std::size_t>(tensor->extent()) * bytes_of(tensor->type)))
      return kIllegalAddress;
  if (const auto bytes = static_cast<std::size_t>(work.engine->workspace_bytes); bytes > 0) {
    if (!gcompEmulatedHolds(work.workspace, bytes)) return kIllegalAddress;
    std::memset(work.workspace, 0xff, bytes);
  }
  backwards = !backwards;
  const Order order = !work.engine->is_random ? Order::fixed : backwards ? Order::backwards : Order::forwards;
  calls().add(work.convolution ? "convolutions" : "attentions");
  if (!work.convolution) {
    work.graph.run(order);
    return 0;
  }
  const auto at = [&](const Tensor& tensor) { return work.data.at(tensor.identity); };
  work.convolution->run(at(work.convolution->input), at(work.convolution->weight), at(work.convolution->output), order);
  return 0;
}

}  // namespace

std::string reported_name() { return "libcudnn"; }
std::map<std::string, std::int64_t> reported_figures(const Calls& calls) {
  return {{"handles", calls.count("live handles")}, {"descriptors", calls.count("live descriptors")}};
}

std::size_t cudnnGetVersion() {
  const Version v = version_setting("CUDNN", "9.19");
  return static_cast<std::size_t>(10000 * v.major + 100 * v.minor);
}

std::size_t cudnnGetCudartVersion() { return 1000 * static_cast<std::size_t>(version_setting("CUDNN_CUDA", "13.0").major); }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (const auto error = entered("cudnnCreate")) return error;
  calls().add("live handles", 1);
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle());
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  if (const auto error = entered("cudnnDestroy")) return error;
  calls().add("live handles", -1);
  delete reinterpret_cast<Handle*>(handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, CUstream stream) {
  if (const auto error = entered("cudnnSetStream")) return error;
  reinterpret_cast<Handle*>(handle)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

void cudnnGetLastErrorString(char* message, std::size_t bytes) { std::snprintf(message, bytes, "emulated"); }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  if (const auto error = entered("cudnnBackendCreateDescriptor")) return error;
  calls().add("live descriptors", 1);
  *descriptor = new Descriptor{type};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  if (const auto error = entered("cudnnBackendDestroyDescriptor")) return error;
  calls().add("live descriptors", -1);
  delete object(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count, const void* elements) {
  if (const auto error = entered("cudnnBackendSetAttribute")) return error;
  Descriptor& descriptor = *object(handle);
  if (descriptor.is_final || count < 0 || (count > 0 && !elements) || size_of(type) == 0) return CUDNN_STATUS_BAD_PARAM;
  const auto* bytes = static_cast<const std::byte*>(elements);
  descriptor.attributes[name] = {type, count, {bytes, bytes + static_cast<std::size_t>(count) * size_of(type)}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t wanted, std::int64_t* count, void* elements) {
  if (const auto error = entered("cudnnBackendGetAttribute")) return error;
  const Descriptor& descriptor = *object(handle);
  const auto give = [&](const auto& values) {
    if (count) *count = static_cast<std::int64_t>(values.size());
    const auto given = std::min(wanted, static_cast<std::int64_t>(values.size()));
    if (given > 0) std::memcpy(elements, values.data(), static_cast<std::size_t>(given) * sizeof values[0]);
    return CUDNN_STATUS_SUCCESS;
  };
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      if (!descriptor.is_final || type != CUDNN_TYPE_BACKEND_DESCRIPTOR) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
      const Descriptor& graph = *descriptor.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      const bool fallback = descriptor.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK;
      const auto numbers = fallback ? std::vector<std::int64_t>{} : offered(type_of(graph));
      if (count) *count = static_cast<std::int64_t>(numbers.size());
      auto* const results = static_cast<cudnnBackendDescriptor_t*>(elements);
      for (std::size_t i = 0; i < numbers.size() && static_cast<std::int64_t>(i) < wanted; ++i) {
        object(results[i])->engine = numbers[i];
        object(results[i])->attributes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] =
            descriptor.attributes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      }
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      if (descriptor.engine < 0 || wanted < 1) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
      object(*static_cast<cudnnBackendDescriptor_t*>(elements))->engine = descriptor.engine;
      if (count) *count = 1;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: return give(std::vector{descriptor.engine});
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      if (descriptor.engine < 0) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
      return give(engine_of(descriptor.engine).notes);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      if (!descriptor.is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
      return give(std::vector{engine_of(descriptor.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine).workspace_bytes});
    default: return CUDNN_STATUS_NOT_SUPPORTED;
  }
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  if (const auto error = entered("cudnnBackendFinalize")) return error;
  Descriptor& descriptor = *object(handle);
  if (descriptor.is_final) return CUDNN_STATUS_BAD_PARAM;
  const cudnnStatus_t status = check(descriptor);
  descriptor.is_final = status == CUDNN_STATUS_SUCCESS;
  return status;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  if (const auto error = entered("cudnnBackendExecute")) return error;
  if (!handle || !object(plan)->is_final || !object(pack)->is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  const Descriptor& configuration = *object(plan)->other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  auto work = std::make_unique<Work>();
  work->engine = &engine_of(configuration.engine);
  const Descriptor& graph = *configuration.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (const Descriptor* convolution = convolution_in(graph)) {
    work->convolution = convolution_of(*convolution);
    const bool noted =
        std::count(work->engine->notes.begin(), work->engine->notes.end(), CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) > 0;
    work->convolution->rounds_to_tf32 = noted && work->convolution->input.type == CUDNN_DATA_FLOAT;
  } else {
    work->graph = graph_of(graph);
  }
  const auto identities = object(pack)->all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = object(pack)->all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (std::size_t i = 0; i < identities.size(); ++i) work->data[identities[i]] = pointers[i];
  for (const Tensor* tensor : work->tensors()) {
    const auto found = work->data.find(tensor->identity);
    if (found == work->data.end()) return CUDNN_STATUS_BAD_PARAM;
    if (reinterpret_cast<std::uintptr_t>(found->second) % static_cast<std::uintptr_t>(tensor->alignment) != 0)
      return CUDNN_STATUS_BAD_PARAM;
  }
  if (!work->take_values()) return CUDNN_STATUS_BAD_PARAM;
  work->graph.memory = work->data;
  work->workspace = object(pack)->one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const int error = gcompEmulatedQueue(
      reinterpret_cast<Handle*>(handle)->stream, "cudnnBackendExecute", run_work,
      [](void* data) { delete static_cast<Work*>(data); }, work.release());
  return error == 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // namespace gcomp::emulated
