#include "runtime/validate.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "ir/base/error.h"
#include "runtime/backend.h"

namespace gcomp::runtime {
namespace {

constexpr std::int64_t kMostRanks = 1 << 20;

constexpr std::int64_t kLargestSpace = std::int64_t{1} << 50;  // far above any memory, far below overflow in sums
constexpr std::int64_t kLargestExtent = std::int64_t{1} << 40;

std::string_view name_of(Space space) {
  switch (space) {
    case Space::arena: return "arena";
    case Space::state: return "state";
    case Space::constant: return "constant";
    case Space::io: return "io";
  }
  return "?";
}

std::int64_t bytes_of(const Program& program, Space space) {
  switch (space) {
    case Space::arena: return program.arena_bytes;
    case Space::state: return program.state_bytes;
    case Space::constant: return program.constant_bytes;
    case Space::io: return program.io_bytes;
  }
  return 0;
}

const Buffer& buffer_at(const Program& program, int index, std::string_view where) {
  check_user(index >= 0 && static_cast<std::size_t>(index) < program.buffers.size(), where, ": buffer index ", index,
             ", but there are ", program.buffers.size(), " buffers");
  return program.buffers[static_cast<std::size_t>(index)];
}

void validate_spaces(const Program& program) {
  for (Space space : {Space::arena, Space::state, Space::constant, Space::io}) {
    const std::int64_t bytes = bytes_of(program, space);
    check_user(bytes >= 0 && bytes <= kLargestSpace, "space ", name_of(space), " has a size of ", bytes, " bytes");
  }
  check_user(program.arena_lower_bound >= 0, "the arena's lower bound is ", program.arena_lower_bound, " bytes");
}

void validate_buffer(const Program& program, const Buffer& buffer, std::string_view where) {
  check_user(buffer.type.shape.size() <= kLargestRank, where, ": rank ", buffer.type.shape.size(), ", the limit is ", kLargestRank);
  const std::int64_t space = bytes_of(program, buffer.space);
  const std::int64_t bytes = buffer.type.bytes();
  check_user(buffer.offset >= 0 && buffer.offset % 64 == 0, where, ": offset ", buffer.offset, " is no multiple of 64");
  check_user(buffer.offset <= space && bytes <= space - buffer.offset, where, ": ", bytes, " bytes at offset ", buffer.offset,
             " exceed the ", space, " bytes of space ", name_of(buffer.space));
  if (buffer.space != Space::constant) return check_user(buffer.contents == Tensor(), where, ": only constants have contents");
  check_user(buffer.contents.type() == buffer.type && static_cast<std::int64_t>(buffer.contents.bytes().size()) == bytes, where,
             ": contents of ", buffer.contents.bytes().size(), " bytes, wanted ", to_string(buffer.type));
}

void validate_buffers(const Program& program) {
  std::unordered_set<std::string_view> states, io;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    const std::string where = concat("buffer ", i, " '", buffer.name, "'");
    validate_buffer(program, buffer, where);
    if (buffer.space == Space::state) check_user(states.insert(buffer.name).second, where, ": a second state buffer of this name");
    if (buffer.space == Space::io) check_user(io.insert(buffer.name).second, where, ": a second io buffer of this name");
  }
}

void validate_states(const Program& program) {
  std::unordered_set<int> seen;
  for (std::size_t i = 0; i < program.states.size(); ++i) {
    const std::string where = concat("state ", i);
    const int index = program.states[i].buffer;
    const Buffer& buffer = buffer_at(program, index, where);
    check_user(buffer.space == Space::state, where, ": buffer '", buffer.name, "' lies in space ", name_of(buffer.space));
    check_user(seen.insert(index).second, where, ": buffer '", buffer.name, "' belongs to two states");
  }
  const StateBuffers states(program);
  for (std::size_t i = 0; i < program.buffers.size(); ++i)
    if (const Buffer& buffer = program.buffers[i]; buffer.space == Space::state)
      check_user(states.holder(buffer), "buffer ", i, " '", buffer.name, "' lies within no state");
}

/// Gives the ports as the rules of their roles see them.
std::vector<RoleUse> validate_interface(const Program& program, const std::vector<Port>& ports, std::string_view what) {
  std::unordered_set<int> seen;
  std::vector<RoleUse> uses;
  for (const Port& port : ports) {
    const Buffer& buffer = buffer_at(program, port.buffer, what);
    check_user(buffer.space == Space::io, what, " '", buffer.name, "' lies in space ", name_of(buffer.space), ", wanted io");
    check_user(seen.insert(port.buffer).second, what, " '", buffer.name, "' is listed twice");
    uses.push_back({port.role, buffer.name, &buffer.type});
  }
  return uses;
}

bool is_identifier(std::string_view name) {
  if (name.empty() || name.size() > 128 || (name[0] >= '0' && name[0] <= '9')) return false;
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == name.npos;
}

void validate_kernels(const Program& program) {
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i < program.kernels.size(); ++i) {
    const std::string& name = program.kernels[i].name;
    check_user(is_identifier(name), "kernel ", i, ": its name is no identifier");
    check_user(names.insert(name).second, "kernel ", i, ": a second kernel of the name '", name, "'");
  }
}

void validate_kernel_index(const Program& program, int kernel, std::string_view where) {
  check_user(kernel >= 0 && static_cast<std::size_t>(kernel) < program.kernels.size(), where, ": kernel index ", kernel,
             ", but there are ", program.kernels.size(), " kernels");
}

void validate_grid(const Grid& grid, std::string_view where) {
  check_user(grid.blocks >= 0 && grid.blocks <= 0x7fffffff, where, ": ", grid.blocks, " blocks, the limit is 2^31 - 1");
  check_user(grid.threads >= 1 && grid.threads <= 1024, where, ": ", grid.threads, " threads a block, the limit is 1024");
  check_user(grid.shared_bytes >= 0 && grid.shared_bytes <= 1 << 20, where, ": ", grid.shared_bytes, " bytes of shared memory");
}

void validate_step(const Program& program, const KernelLaunch& launch, std::string_view where) {
  validate_kernel_index(program, launch.kernel, where);
  check_user(launch.fault >= 0 && static_cast<std::size_t>(launch.fault) <= program.faults.size(), where, ": fault ", launch.fault,
             ", but there are ", program.faults.size(), " faults");
  check_user(!launch.segments.empty(), where, ": a launch without segments");
  for (const Segment& segment : launch.segments) {
    check_user(segment.buffers.size() == launch.segments[0].buffers.size(), where, ": segments of ",
               launch.segments[0].buffers.size(), " and of ", segment.buffers.size(), " buffers");
    for (int buffer : segment.buffers) buffer_at(program, buffer, where);
    check_user(segment.extent >= 0 && segment.extent <= kLargestSpace, where, ": extent ", segment.extent);
    check_user(segment.tasks >= 0 && segment.tasks <= kLargestSpace, where, ": ", segment.tasks, " tasks");
  }
  validate_grid(launch.grid, where);
  if (!launch.tf32) return;
  check_user(backend_of(program.target).product_kernels, where, ": a kernel that rounds to TF32 has a meaning only for CUDA");
  validate_kernel_index(program, launch.tf32->kernel, where);
  validate_grid(launch.tf32->grid, where);
}

void validate_generated(const Program& program, const GeneratedProduct& product, std::string_view where) {
  if (!backend_of(program.target).product_kernels)
    check_user(product == GeneratedProduct(), where, ": generated kernels of a product have a meaning only for CUDA");
  check_user(product.workspace_bytes >= 0 && product.workspace_bytes <= kLargestSpace, where, ": a workspace of ",
             product.workspace_bytes, " bytes");
  for (const ProductLaunch& launch : product.launches) {
    validate_kernel_index(program, launch.kernel, where);
    validate_grid(launch.grid, where);
    check_user(launch.parameters.size() <= kProductParameters, where, ": ", launch.parameters.size(),
               " parameters of a product, the limit is ", kProductParameters);
    for (int buffer : launch.buffers) buffer_at(program, buffer, where);
  }
}

/// Adds the lowest and highest offset that `dim` steps of `stride` reach to [low, high].
void extend(std::int64_t& low, std::int64_t& high, std::int64_t dim, std::int64_t stride, std::string_view where) {
  std::int64_t reach = 0;
  std::int64_t& end = stride < 0 ? low : high;
  if (__builtin_mul_overflow(dim - 1, stride, &reach) || __builtin_add_overflow(end, reach, &end))
    throw UserError(concat(where, ": stride ", stride, " over ", dim, " elements overflows"));
}

template <class Call>
void validate_view(const Program& program, const MatrixView& view, const Call& call, std::int64_t rows, std::int64_t columns,
                   std::string_view where) {
  const Buffer& buffer = buffer_at(program, view.buffer, where);
  check_user(buffer.type.dtype == call.dtype, where, ": buffer '", buffer.name, "' is ", to_string(buffer.type), ", wanted ",
             gcomp::name_of(call.dtype));
  check_user(view.batch_strides.size() == call.batch.size(), where, ": ", view.batch_strides.size(), " batch strides for ",
             call.batch.size(), " batch dimensions");
  if (rows == 0 || columns == 0) return;
  for (std::int64_t dim : call.batch)
    if (dim == 0) return;
  std::int64_t low = view.offset, high = view.offset;
  for (std::size_t i = 0; i < call.batch.size(); ++i) extend(low, high, call.batch[i], view.batch_strides[i], where);
  extend(low, high, rows, view.row_stride, where);
  extend(low, high, columns, view.column_stride, where);
  check_user(low >= 0 && high < buffer.type.elements(), where, ": a view of elements ", low, " to ", high, " of buffer '",
             buffer.name, "', which is ", to_string(buffer.type));
}

/// Of a view that lies inside its buffer. Sorted by stride, each dimension of a result steps over all that those before it reach:
/// no element is written twice.
void validate_result(const MatrixView& view, const std::vector<std::int64_t>& batch, std::int64_t rows, std::int64_t columns,
                     std::string_view where) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions{{view.row_stride, rows}, {view.column_stride, columns}};
  for (std::size_t i = 0; i < batch.size(); ++i) dimensions.emplace_back(view.batch_strides[i], batch[i]);
  for (const auto& [stride, extent] : dimensions)
    if (extent == 0) return;
  std::erase_if(dimensions, [](const auto& dimension) { return dimension.second == 1; });
  for (auto& [stride, extent] : dimensions) stride = stride < 0 ? -stride : stride;
  std::sort(dimensions.begin(), dimensions.end());
  std::int64_t reach = 0;
  for (const auto& [stride, extent] : dimensions) {
    check_user(stride > reach, where, ": a result with stride ", stride, " over elements up to ", reach, " writes some twice");
    reach += (extent - 1) * stride;
  }
}

/// A buffer of an epilogue, dense, of the call's dtype.
void validate_epilogue_buffer(const Program& program, const MatmulCall& call, int index, const Shape& shape,
                              std::string_view where) {
  const Buffer& buffer = buffer_at(program, index, where);
  check_user(buffer.type.dtype == call.dtype && buffer.type.elements() == element_count(shape), where, ": buffer '", buffer.name,
             "' is ", to_string(buffer.type), ", wanted the elements of ", to_string(TensorType{call.dtype, shape}));
}

void validate_epilogue(const Program& program, const MatmulCall& call, std::string_view where) {
  check_user(backend_of(program.target).product_kernels, where, ": an epilogue of a product has a meaning only for CUDA");
  const ProductEpilogue& epilogue = *call.epilogue;
  validate_step(program, epilogue.after, concat(where, ", after it"));
  check_user(epilogue.after.fault == 0, where, ": an epilogue that raises a fault");
  check_user(epilogue.after.segments.size() == 1 && epilogue.after.segments[0].extent == 0, where, ": an epilogue of ",
             epilogue.after.segments.size(), " segments, wanted one without an extent");
  if (!epilogue.library) return;
  const LibraryEpilogue& library = *epilogue.library;
  const bool gradient = library.kind == EpilogueKind::gelu_gradient;
  check_user(library.kind != EpilogueKind::bias || (library.bias && !library.aux), where, ": a bias epilogue with ",
             library.bias ? "an auxiliary buffer" : "no bias");
  check_user(!gradient || (library.aux && !library.bias), where, ": a gradient epilogue takes an auxiliary buffer and no bias");
  if (is_bias_gradient(library.kind)) {
    check_user(library.bias && !library.aux, where, ": a bias gradient takes a bias and no auxiliary buffer");
    check_user(element_count(call.batch) == 1, where, ": a bias gradient of ", element_count(call.batch), " products, wanted one");
  }
  Shape shape = call.batch;
  shape.insert(shape.end(), {call.m, call.n});
  if (library.bias)
    validate_epilogue_buffer(program, call, *library.bias, {bias_elements(call, library.kind)}, concat(where, ", bias"));
  if (library.aux) validate_epilogue_buffer(program, call, *library.aux, shape, concat(where, ", auxiliary buffer"));
}

void validate_step(const Program& program, const MatmulCall& call, std::string_view where) {
  check_user(is_float(call.dtype), where, ": matmul of ", gcomp::name_of(call.dtype), ", wanted a float type");
  check_user(call.batch.size() <= kLargestRank, where, ": ", call.batch.size(), " batch dimensions, the limit is ", kLargestRank);
  for (std::int64_t dim : call.batch) check_user(dim >= 0 && dim <= kLargestExtent, where, ": batch dimension ", dim);
  for (std::int64_t dim : {call.m, call.n, call.k}) check_user(dim >= 0 && dim <= kLargestExtent, where, ": dimension ", dim);
  validate_view(program, call.a, call, call.m, call.k, concat(where, ", a"));
  validate_view(program, call.b, call, call.k, call.n, concat(where, ", b"));
  validate_view(program, call.c, call, call.m, call.n, concat(where, ", c"));
  validate_result(call.c, call.batch, call.m, call.n, concat(where, ", c"));
  validate_generated(program, call.generated, where);
  if (call.epilogue) validate_epilogue(program, call, where);
}

void validate_operand(const Program& program, const ConvolutionCall& call, int index, std::int64_t outer, std::int64_t channels,
                      const std::vector<std::int64_t>& spatial, std::string_view where) {
  const Buffer& buffer = buffer_at(program, index, where);
  Shape shape = {outer, channels};
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  check_user(buffer.type.dtype == call.dtype && buffer.type.elements() == element_count(shape), where, ": buffer '", buffer.name,
             "' is ", to_string(buffer.type), ", wanted the elements of ", to_string(TensorType{call.dtype, shape}));
}

/// The last window must end inside the padded input.
void validate_window(const ConvolutionCall& call, std::size_t axis, std::string_view where) {
  for (std::int64_t value : {call.input_spatial[axis], call.output_spatial[axis], call.kernel[axis]})
    check_user(value >= 0 && value <= kLargestExtent, where, ": spatial dimension ", value);
  for (std::int64_t value : {call.strides[axis], call.dilations[axis]})
    check_user(value >= 1 && value <= 1 << 20, where, ": stride or dilation ", value);
  for (std::int64_t value : {call.pads_begin[axis], call.pads_end[axis]})
    check_user(value >= -kLargestExtent && value <= kLargestExtent, where, ": padding ", value);
  if (call.output_spatial[axis] == 0 || call.kernel[axis] == 0) return;
  const std::int64_t padded = call.input_spatial[axis] + call.pads_begin[axis] + call.pads_end[axis];
  const std::int64_t end =
      (call.output_spatial[axis] - 1) * call.strides[axis] + (call.kernel[axis] - 1) * call.dilations[axis] + 1;
  check_user(end <= padded, where, ": windows of spatial dimension ", axis, " reach to ", end, " of ", padded, " padded elements");
}

void validate_step(const Program& program, const ConvolutionCall& call, std::string_view where) {
  check_user(is_float(call.dtype), where, ": convolution of ", gcomp::name_of(call.dtype), ", wanted a float type");
  const std::size_t rank = call.input_spatial.size();
  check_user(rank >= 1 && rank <= 3, where, ": ", rank, " spatial dimensions, wanted 1 to 3");
  for (const auto* list : {&call.output_spatial, &call.kernel, &call.strides, &call.pads_begin, &call.pads_end, &call.dilations})
    check_user(list->size() == rank, where, ": a list of ", list->size(), " values for ", rank, " spatial dimensions");
  for (std::size_t axis = 0; axis < rank; ++axis) validate_window(call, axis, where);
  for (std::int64_t value : {call.batch, call.input_channels, call.output_channels})
    check_user(value >= 0 && value <= kLargestExtent, where, ": batch or channels ", value);
  check_user(call.groups >= 1 && call.input_channels % call.groups == 0 && call.output_channels % call.groups == 0, where, ": ",
             call.groups, " groups of ", call.input_channels, " input and ", call.output_channels, " output channels");
  validate_operand(program, call, call.input, call.batch, call.input_channels, call.input_spatial, concat(where, ", input"));
  validate_operand(program, call, call.weight, call.output_channels, call.input_channels / call.groups, call.kernel,
                   concat(where, ", weight"));
  validate_operand(program, call, call.output, call.batch, call.output_channels, call.output_spatial, concat(where, ", output"));
  validate_generated(program, call.generated, where);
  validate_generated(program, call.generated_tf32, where);
  validate_generated(program, call.packing, where);
  const std::int64_t weight_bytes = program.buffers[static_cast<std::size_t>(call.weight)].type.bytes();
  check_user(call.packing.launches.empty() || (call.channels_last && call.packing.workspace_bytes == weight_bytes), where,
             ": a packed weight of ", call.packing.workspace_bytes, " bytes, wanted ", weight_bytes, " with channels last");
}

void validate_step(const Program& program, const AttentionCall& call, std::string_view where) {
  check_user(backend_of(program.target).product_kernels, where, ": an attention as a call has a meaning only for CUDA");
  check_user(call.dtype == DType::f16 || call.dtype == DType::bf16, where, ": attention of ", gcomp::name_of(call.dtype),
             ", wanted f16 or bf16");
  check_user(call.batch.size() <= kAttentionBatches, where, ": ", call.batch.size(), " batch dimensions, the limit is ",
             kAttentionBatches);
  for (std::int64_t dim : call.batch) check_user(dim >= 1 && dim <= kLargestExtent, where, ": batch dimension ", dim);
  for (std::int64_t dim : {call.queries, call.keys, call.width, call.value_width})
    check_user(dim >= 1 && dim <= kLargestExtent, where, ": dimension ", dim);
  for (const AttentionMatrix& matrix : matrices_of(call)) {
    validate_view(program, *matrix.view, call, matrix.rows, matrix.columns, where);
    check_user(matrix.view->column_stride == 1, where, ": elements of a row ", matrix.view->column_stride, " apart, wanted 1");
    if (matrix.written) validate_result(*matrix.view, call.batch, matrix.rows, matrix.columns, where);
  }
  Shape rows = call.batch;
  rows.push_back(call.queries);
  for (const int index : {call.top, call.sum}) {
    const Buffer& buffer = buffer_at(program, index, where);
    check_user(buffer.type.dtype == DType::f32 && buffer.type.elements() == element_count(rows), where, ": buffer '", buffer.name,
               "' is ", to_string(buffer.type), ", wanted the elements of ", to_string(TensorType{DType::f32, rows}));
  }
  check_user(!call.generated.empty(), where, ": an attention without kernels");
  check_user(call.kind == AttentionKind::gradient || !call.generated_is_faster, where,
             ": an attention whose kernels come before a library's, wanted a gradient");
  for (const KernelLaunch& launch : call.generated) {
    validate_step(program, launch, where);
    check_user(launch.fault == 0, where, ": an attention that raises a fault");
  }
}

void validate_step(const Program& program, const CollectiveCall& call, std::string_view where) {
  check_user(call.group == kDataGroup, where, ": ranks of group '", call.group, "', wanted '", kDataGroup, "'");
  check_user(call.ranks >= 1 && call.ranks <= kMostRanks, where, ": ", call.ranks, " ranks, the limit is ", kMostRanks);
  check_user(call.root >= 0 && call.root < call.ranks, where, ": root ", call.root, " of ", call.ranks, " ranks");
  check_user(call.bytes >= 0 && call.bytes <= kLargestSpace / call.ranks, where, ": parts of ", call.bytes, " bytes");
  const Buffer& operand = buffer_at(program, call.operand, where);
  const Buffer& result = buffer_at(program, call.result, where);
  const std::int64_t sent = call.kind == CollectiveKind::all_to_all ? call.ranks : 1;
  const std::int64_t received = call.kind == CollectiveKind::broadcast ? 1 : call.ranks;
  for (const auto& [buffer, parts] : {std::pair(&operand, sent), {&result, received}})
    check_user(buffer->type.bytes() == parts * call.bytes, where, ": buffer '", buffer->name, "' is ", to_string(buffer->type),
               ", wanted ", parts, " parts of ", call.bytes, " bytes");
  const bool apart = operand.space != result.space || operand.offset + operand.type.bytes() <= result.offset ||
                     result.offset + result.type.bytes() <= operand.offset;
  check_user(apart, where, ": buffers '", operand.name, "' and '", result.name, "' overlap");
  check_user(result.space != Space::constant, where, ": writes the constant '", result.name, "'");
}

}  // namespace

void validate(const Program& program) {
  validate_spaces(program);
  validate_buffers(program);
  validate_states(program);
  const std::vector<RoleUse> inputs = validate_interface(program, program.inputs, "input");
  const std::vector<RoleUse> outputs = validate_interface(program, program.outputs, "output");
  if (const std::string broken = find_role_violation(inputs, outputs); !broken.empty()) throw UserError(broken);
  validate_kernels(program);
  for (std::size_t i = 0; i < program.steps.size(); ++i)
    std::visit([&](const auto& step) { validate_step(program, step, concat("step ", i)); }, program.steps[i]);
}

}  // namespace gcomp::runtime
