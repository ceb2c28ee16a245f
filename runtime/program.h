// A Program is one compiled graph as plain data: kernels as text, buffers at fixed offsets, and a list of steps in order.
// It is all that the runtime knows of a model. Codegen writes it; runtime/serialize.h stores it.
//
// Memory has four spaces. `state` buffers live as long as the model and are shared, by name, between the programs of one
// model (its training step and its forward pass). `constant` buffers hold bytes that come with the program. `io` buffers are
// the inputs that the host writes before a step and the outputs that it reads after. `arena` buffers are temporaries at
// planned offsets of one block; those with disjoint lifetimes overlap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ir/base/overloaded.h"
#include "ir/base/role.h"
#include "ir/base/tensor.h"
#include "runtime/targets.h"

namespace gcomp::runtime {

enum class Space : std::uint8_t { arena, state, constant, io };

struct Buffer {
  std::string name;  ///< of the value it holds; unique within state and io
  Space space = Space::arena;
  TensorType type;
  std::int64_t offset =
      0;            ///< bytes from the start of its space; a multiple of 64. A state's space may have buffers within its own
  Tensor contents;  ///< constant space only

  bool operator==(const Buffer&) const = default;
};

enum class StateRole : std::uint8_t {
  parameter,
  running_statistic,
  optimizer,
  counter,
  scratch,  ///< holds nothing between steps, and so is stored nowhere
};

struct State {
  int buffer = 0;
  StateRole role = StateRole::parameter;
  std::optional<double> fill;  ///< initial value of every element; without it the host must write the state before a run

  bool operator==(const State&) const = default;
};

/// One generated function. Its text is a pure function of the fused node, and its name ("k" and a hash) one of its text.
struct Kernel {
  std::string name;
  std::string text;

  bool operator==(const Kernel&) const = default;
};

/// Threads of one CUDA launch.
struct Grid {
  std::int64_t blocks = 1;
  std::int32_t threads = 1;
  std::int32_t shared_bytes = 0;

  bool operator==(const Grid&) const = default;
};

/// One run of a kernel over one set of buffers. `tasks` independent pieces of work, numbered from 0, may run in any order on
/// any thread: each writes its own elements, so no split of them changes a bit.
struct Segment {
  std::vector<int> buffers;  ///< in the order of the kernel's parameters
  std::int64_t extent = 0;   ///< elements, of a launch that may have several segments (the optimizer over all parameters), else 0
  std::int64_t tasks = 1;

  bool operator==(const Segment&) const = default;
};

/// A kernel and how many threads run it.
struct GridKernel {
  int kernel = 0;
  Grid grid;

  bool operator==(const GridKernel&) const = default;
};

/// CPU entry point: extern "C" void NAME(void* const* buffers, long extent, long first_task, long last_task, int* fault)
/// CUDA entry point, one segment: NAME(buffer0, buffer1, ..., int* fault)
/// CUDA entry point, more segments: NAME(const SegmentTable*, int* fault), blocks split by the table.
struct KernelLaunch {
  int kernel = 0;
  std::vector<Segment> segments;
  Grid grid;           ///< CUDA only
  int fault = 0;       ///< index + 1 into Program::faults that the kernel may raise; 0 for none
  std::string origin;  ///< the IR node, for messages and profiles
  /// CUDA only: stands in on devices that may round f32 to TF32 before it is multiplied. It has the same parameters.
  std::optional<GridKernel> tf32 = {};

  bool operator==(const KernelLaunch&) const = default;
};
/// What a launch runs on a device that may round to TF32, or may not.
GridKernel kernel_of(const KernelLaunch& launch, bool tf32);

/// One launch of a generated product kernel. Such a kernel serves every shape: what it needs to know of one stands in `parameters`.
/// CUDA entry point: NAME(const void* first, const void* second, void* result, void* workspace, ProductParameters parameters,
/// buffers...), where ProductParameters is a struct of kProductParameters signed 64-bit integers, passed by value, zero behind the
/// last of `parameters`.
struct ProductLaunch {
  int kernel = 0;
  Grid grid;
  std::vector<std::int64_t> parameters;
  std::vector<int> buffers = {};  ///< those of an epilogue

  bool operator==(const ProductLaunch&) const = default;
};
inline constexpr std::size_t kProductParameters = 64;

/// The product as generated kernels, for where no library computes it: launches in order, and the bytes of workspace that they
/// share, with any contents. first, second and result are the addresses of the buffers: a, b and c of a matmul; of a convolution
/// those of input, weight and output that are read, in this order, then the one that is written. Empty for the CPU.
struct GeneratedProduct {
  std::vector<ProductLaunch> launches;
  std::int64_t workspace_bytes = 0;

  bool operator==(const GeneratedProduct&) const = default;
};

/// A strided view of a buffer as a stack of matrices; strides and offset in elements.
struct MatrixView {
  int buffer = 0;
  std::int64_t offset = 0;
  std::vector<std::int64_t> batch_strides;  ///< one for each batch dimension; 0 repeats
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;

  bool operator==(const MatrixView&) const = default;
};

/// What cuBLASLt may do on its way to c. Its GELU is the tanh form.
enum class EpilogueKind : std::uint8_t {
  bias,             ///< c = sum + bias
  gelu,             ///< c = gelu(sum + bias)
  gelu_gradient,    ///< c = sum * gelu'(aux)
  bias_gradient_a,  ///< c = sum, bias[m] = sum over k of a[m, k]
  bias_gradient_b,  ///< c = sum, bias[n] = sum over k of b[k, n]
};
inline bool is_bias_gradient(EpilogueKind kind) {
  return kind == EpilogueKind::bias_gradient_a || kind == EpilogueKind::bias_gradient_b;
}

struct LibraryEpilogue {
  EpilogueKind kind = EpilogueKind::bias;
  std::optional<int> bias;  ///< dense buffer of bias_elements(), which bias gradients write
  std::optional<int> aux;   ///< dense buffer [batch..., m, n]: gelu writes sum + bias there, gelu_gradient reads it

  bool operator==(const LibraryEpilogue&) const = default;
};

/// What follows a product at each of its elements, or the sum of an operand. `after` makes all further results, the former from the
/// plain product in c, over which some lie; it is launched unless the library or the generated kernels do the same on their way.
struct ProductEpilogue {
  std::optional<LibraryEpilogue> library;
  KernelLaunch after;
  bool generated = false;  ///< the call's generated kernels compute it

  bool operator==(const ProductEpilogue&) const = default;
};

/// c[batch..., m, n] = sum over k of a[batch..., m, k] * b[batch..., k, n], accumulated in f32 for f16 and bf16.
struct MatmulCall {
  DType dtype = DType::f32;
  std::vector<std::int64_t> batch;
  std::int64_t m = 0, n = 0, k = 0;
  MatrixView a, b, c;
  std::string origin;
  GeneratedProduct generated = {};
  std::optional<ProductEpilogue> epilogue = {};  ///< CUDA only

  bool operator==(const MatmulCall&) const = default;
};

/// m for bias_gradient_a, n for all others.
std::int64_t bias_elements(const MatmulCall& call, EpilogueKind kind);

enum class ConvolutionKind : std::uint8_t { forward, input_gradient, weight_gradient };

/// Convolution and its two gradients over 1 to 3 spatial dimensions. Buffers are dense:
/// input [n, c, spatial...] or, channels_last, [n, spatial..., c]; output likewise with o; weight always
/// [o, c / groups, kernel...]. `kind` says which of the three buffers is written from the other two.
struct ConvolutionCall {
  ConvolutionKind kind = ConvolutionKind::forward;
  DType dtype = DType::f32;
  bool channels_last = false;
  std::int64_t batch = 0, input_channels = 0, output_channels = 0, groups = 1;
  std::vector<std::int64_t> input_spatial, output_spatial, kernel, strides, pads_begin, pads_end, dilations;
  int input = 0, weight = 0, output = 0;
  std::string origin;
  GeneratedProduct generated = {};
  GeneratedProduct generated_tf32 = {};  ///< for devices that may round f32 to TF32; empty where `generated` is theirs too
  /// For cuDNN, which wants the weight as [o, kernel..., c / groups] where channels are last: from the weight into the start of the
  /// workspace, or, where it is written, from there. Empty where the weight is so as it lies.
  GeneratedProduct packing = {};

  bool operator==(const ConvolutionCall&) const = default;
};
/// Whether bf16 is summed in pairs, of neighbouring channels or, of a weight's gradient, positions: in one group, channels last,
/// with enough channels.
bool sums_pairs(const ConvolutionCall& call);
/// Whether a processor with tiles for bf16 computes it by them: channels last, taps that a mask of 64 bits holds, and groups of
/// enough channels.
bool takes_tiles(const ConvolutionCall& call);
/// Whether it is a product of matrices, of positions and channels: one tap that meets each position, channels last, one group.
bool is_matrix_product(const ConvolutionCall& call);

enum class AttentionKind : std::uint8_t { forward, gradient };
inline constexpr std::size_t kAttentionBatches = 2;  ///< dimensions of an AttentionCall's batch at most

/// y[batch..., queries, value_width] = softmax(scale * q k^T) v, or the gradients of q, k and v, in f16 or bf16. `causal` hides key
/// j from query i where j > i. Views of one element in a row are [batch..., queries or keys, width or value_width].
///
/// Who computes the forward kind decides what it leaves of each row of scores: generated kernels the maximum in `top` and the sum
/// of exp(score - maximum) in `sum`, a library the logarithm of the sum of exp(score) in `top` and nothing in `sum`. A library's
/// gradient reads what a library left. Generated kernels read either, where `sum` is first filled with ones behind a library.
struct AttentionCall {
  AttentionKind kind = AttentionKind::forward;
  DType dtype = DType::bf16;
  std::vector<std::int64_t> batch;  ///< of kAttentionBatches dimensions at most
  std::int64_t queries = 0, keys = 0, width = 0, value_width = 0;
  double scale = 1;
  bool causal = false;
  MatrixView q, k, v, y;      ///< y is written by the forward kind and read by the gradient
  MatrixView dy, dq, dk, dv;  ///< gradient only
  int top = 0, sum = 0;       ///< dense f32 buffers [batch..., queries]
  std::vector<KernelLaunch> generated = {};
  std::string origin;
  bool generated_is_faster = false;  ///< than a library is expected to be, by the shape of a gradient: then no library is asked

  bool operator==(const AttentionCall&) const = default;
};

/// Those that the call's kind has, with their rows and columns, read before written.
struct AttentionMatrix {
  const MatrixView* view = nullptr;
  std::int64_t rows = 0, columns = 0;
  bool written = false;
};
std::vector<AttentionMatrix> matrices_of(const AttentionCall& call);
std::string_view name_of(AttentionKind kind);

/// Between the ranks that run the same program side by side; each brings one buffer and gets one. Bytes are moved, not added.
enum class CollectiveKind : std::uint8_t {
  all_to_all,  ///< part r of the operand goes to rank r, and part r of the result is what came from there
  all_gather,  ///< part r of the result is the operand of rank r
  broadcast,   ///< the result is the operand of rank `root`
};

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::all_to_all;
  std::string group;       ///< of ranks, by name; "data" is all
  std::int64_t ranks = 1;  ///< in that group
  std::int64_t root = 0;
  int operand = 0, result = 0;  ///< dense buffers that do not overlap
  std::int64_t bytes = 0;       ///< of one part; of a broadcast, of all
  std::string origin;

  bool operator==(const CollectiveCall&) const = default;
};
inline constexpr std::string_view kDataGroup = "data";
std::string_view name_of(CollectiveKind kind);

using Step = std::variant<KernelLaunch, MatmulCall, ConvolutionCall, AttentionCall, CollectiveCall>;

/// In how many of the kinds of a Step `Answer` answers for.
template <class Answer, class... Kinds>
constexpr int kinds_answered(const std::variant<Kinds...>*) {
  return (0 + ... + static_cast<int>(std::is_invocable_v<Answer, const Kinds&> || std::is_invocable_v<Answer, Kinds&>));
}

/// Calls the one of `answers` that takes this kind of step. Whoever asks what a step is asks here, with one lambda for each kind
/// and none for any, so that a new kind of step does not compile until every place has answered for it.
template <class AnyStep, class... Answers>
decltype(auto) visit_step(AnyStep& step, Answers... answers) {
  static_assert(sizeof...(Answers) == std::variant_size_v<Step>, "one answer for each kind of step");
  static_assert((... && (kinds_answered<Answers>(static_cast<const Step*>(nullptr)) == 1)), "no answer for several kinds of steps");
  return std::visit(Overloaded{std::move(answers)...}, step);
}

/// The IR node that a step was made of, for messages and profiles.
const std::string& origin_of(const Step& step);
/// Index + 1 into Program::faults that the step may raise; 0 for none.
int fault_of(const Step& step);

/// Where data enters or leaves a program.
struct Port {
  int buffer = 0;
  Role role = Role::array;

  bool operator==(const Port&) const = default;
};
/// The first of that role.
std::optional<std::size_t> find_port(const std::vector<Port>& ports, Role role);

struct Program {
  std::string name;
  Target target;
  std::vector<Kernel> kernels;
  std::string prelude;  ///< helper definitions that every kernel's text may use
  std::vector<Buffer> buffers;
  std::vector<State> states;
  std::vector<Port> inputs, outputs;
  std::vector<Step> steps;
  std::vector<std::string> faults;  ///< messages of conditions that kernels raise: an index out of range, a division by zero
  std::int64_t arena_bytes = 0, state_bytes = 0, constant_bytes = 0, io_bytes = 0;
  std::int64_t arena_lower_bound = 0;  ///< largest sum of live arena bytes over the steps in this order
  /// Whether a product and a sum may be rounded at once. On the CPU the text says which are, on a GPU its compiler, who may take
  /// the other of two products at the end of an array: a program whose results must not depend on what a kernel holds beside, nor
  /// on where arrays end, says false.
  bool contracts = true;

  bool operator==(const Program&) const = default;
};

/// Which states the buffers of a program's state space are, or are parts of.
class StateBuffers {
 public:
  explicit StateBuffers(const Program& program);
  /// The state's own buffer, and of no bytes the buffer itself; null where no state has all of its bytes.
  const Buffer* holder(const Buffer& buffer) const;

 private:
  std::vector<const Buffer*> by_offset_;  // those of states with bytes
};

}  // namespace gcomp::runtime
