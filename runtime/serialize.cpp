#include "runtime/serialize.h"

#include <cstring>
#include <limits>

#include "ir/base/error.h"
#include "runtime/program.pb.h"
#include "runtime/validate.h"

namespace gcomp::runtime {
namespace {

template <class To, class From>
constexpr bool same(To to, From from) {
  return static_cast<int>(to) == static_cast<int>(from);
}
static_assert(same(Space::arena, proto::ARENA) && same(Space::state, proto::STATE) && same(Space::constant, proto::CONSTANT) &&
              same(Space::io, proto::IO));
static_assert(same(StateRole::parameter, proto::PARAMETER) && same(StateRole::running_statistic, proto::RUNNING_STATISTIC) &&
              same(StateRole::optimizer, proto::OPTIMIZER) && same(StateRole::counter, proto::COUNTER) &&
              same(StateRole::scratch, proto::SCRATCH));
static_assert(same(EpilogueKind::bias, proto::BIAS) && same(EpilogueKind::gelu, proto::GELU) &&
              same(EpilogueKind::gelu_gradient, proto::GELU_GRADIENT) &&
              same(EpilogueKind::bias_gradient_a, proto::BIAS_GRADIENT_A) &&
              same(EpilogueKind::bias_gradient_b, proto::BIAS_GRADIENT_B));
static_assert(same(ConvolutionKind::forward, proto::FORWARD) && same(ConvolutionKind::input_gradient, proto::INPUT_GRADIENT) &&
              same(ConvolutionKind::weight_gradient, proto::WEIGHT_GRADIENT));

static_assert(same(CollectiveKind::all_to_all, proto::ALL_TO_ALL) && same(CollectiveKind::all_gather, proto::ALL_GATHER) &&
              same(CollectiveKind::broadcast, proto::BROADCAST));

template <class Field, class Values>
void assign(Field* field, const Values& values) {
  field->Assign(values.begin(), values.end());
}

template <class Values>
std::vector<typename Values::value_type> to_vector(const Values& values) {
  return {values.begin(), values.end()};
}

std::string encode(DType dtype) { return std::string(name_of(dtype)); }

DType decode_dtype(const std::string& name) {
  if (const auto dtype = parse_dtype(name)) return *dtype;
  throw UserError(concat("dtype '", name, "' is unknown"));
}

/// Proto3 keeps enum numbers that it does not know; they end here.
template <class Enum>
Enum decode_enum(int value, int count, const char* what) {
  check_user(value >= 0 && value < count, what, " ", value, " is unknown");
  return static_cast<Enum>(value);
}

void encode(const Buffer& buffer, proto::Buffer* out) {
  out->set_name(buffer.name);
  out->set_space(static_cast<proto::Space>(buffer.space));
  out->set_dtype(encode(buffer.type.dtype));
  assign(out->mutable_shape(), buffer.type.shape);
  out->set_offset(buffer.offset);
  if (buffer.space == Space::constant) out->set_contents(buffer.contents.data(), buffer.contents.bytes().size());
}

Buffer decode(const proto::Buffer& in) {
  Buffer buffer{.name = in.name(),
                .space = decode_enum<Space>(in.space(), proto::Space_ARRAYSIZE, "space"),
                .type = {decode_dtype(in.dtype()), to_vector(in.shape())},
                .offset = in.offset(),
                .contents = {}};
  if (buffer.space != Space::constant) {
    check_user(in.contents().empty(), "buffer '", buffer.name, "': only constants have contents");
    return buffer;
  }
  // Compared before the tensor is made: a shape alone must not allocate.
  const std::int64_t elements = buffer.type.elements();
  check_user(static_cast<std::uint64_t>(elements) <= in.contents().size() &&
                 static_cast<std::uint64_t>(buffer.type.bytes()) == in.contents().size(),
             "buffer '", buffer.name, "': contents of ", in.contents().size(), " bytes, wanted ", to_string(buffer.type));
  buffer.contents = Tensor(buffer.type);
  if (!in.contents().empty()) std::memcpy(buffer.contents.data(), in.contents().data(), in.contents().size());
  return buffer;
}

void encode(const State& state, proto::State* out) {
  out->set_buffer(state.buffer);
  out->set_role(static_cast<proto::StateRole>(state.role));
  if (state.fill) out->set_fill(*state.fill);
}

State decode(const proto::State& in) {
  return {.buffer = in.buffer(),
          .role = decode_enum<StateRole>(in.role(), proto::StateRole_ARRAYSIZE, "state role"),
          .fill = in.has_fill() ? std::optional(in.fill()) : std::nullopt};
}

void encode(const KernelLaunch& launch, proto::KernelLaunch* out) {
  out->set_kernel(launch.kernel);
  for (const Segment& segment : launch.segments) {
    proto::Segment* stored = out->add_segments();
    assign(stored->mutable_buffers(), segment.buffers);
    stored->set_extent(segment.extent);
    stored->set_tasks(segment.tasks);
  }
  out->set_grid_blocks(launch.grid.blocks);
  out->set_grid_threads(launch.grid.threads);
  out->set_grid_shared_bytes(launch.grid.shared_bytes);
  out->set_fault(launch.fault);
  out->set_origin(launch.origin);
  if (!launch.tf32) return;
  proto::GridKernel* rounding = out->mutable_tf32();
  rounding->set_kernel(launch.tf32->kernel);
  rounding->set_grid_blocks(launch.tf32->grid.blocks);
  rounding->set_grid_threads(launch.tf32->grid.threads);
  rounding->set_grid_shared_bytes(launch.tf32->grid.shared_bytes);
}
void encode(const KernelLaunch& launch, proto::Step* step) { encode(launch, step->mutable_launch()); }

KernelLaunch decode(const proto::KernelLaunch& in) {
  KernelLaunch launch{.kernel = in.kernel(),
                      .segments = {},
                      .grid = {in.grid_blocks(), in.grid_threads(), in.grid_shared_bytes()},
                      .fault = in.fault(),
                      .origin = in.origin()};
  for (const proto::Segment& segment : in.segments())
    launch.segments.push_back({to_vector(segment.buffers()), segment.extent(), segment.tasks()});
  if (in.has_tf32())
    launch.tf32 = {in.tf32().kernel(), {in.tf32().grid_blocks(), in.tf32().grid_threads(), in.tf32().grid_shared_bytes()}};
  return launch;
}

void encode(const GeneratedProduct& product, proto::GeneratedProduct* out) {
  for (const ProductLaunch& launch : product.launches) {
    proto::ProductLaunch* stored = out->add_launches();
    stored->set_kernel(launch.kernel);
    stored->set_grid_blocks(launch.grid.blocks);
    stored->set_grid_threads(launch.grid.threads);
    stored->set_grid_shared_bytes(launch.grid.shared_bytes);
    assign(stored->mutable_parameters(), launch.parameters);
    assign(stored->mutable_buffers(), launch.buffers);
  }
  out->set_workspace_bytes(product.workspace_bytes);
}

GeneratedProduct decode(const proto::GeneratedProduct& in) {
  GeneratedProduct product;
  for (const proto::ProductLaunch& launch : in.launches())
    product.launches.push_back({launch.kernel(),
                                {launch.grid_blocks(), launch.grid_threads(), launch.grid_shared_bytes()},
                                to_vector(launch.parameters()),
                                to_vector(launch.buffers())});
  product.workspace_bytes = in.workspace_bytes();
  return product;
}

void encode(const MatrixView& view, proto::MatrixView* out) {
  out->set_buffer(view.buffer);
  out->set_offset(view.offset);
  assign(out->mutable_batch_strides(), view.batch_strides);
  out->set_row_stride(view.row_stride);
  out->set_column_stride(view.column_stride);
}

MatrixView decode(const proto::MatrixView& in) {
  return {in.buffer(), in.offset(), to_vector(in.batch_strides()), in.row_stride(), in.column_stride()};
}

void encode(const ProductEpilogue& epilogue, proto::ProductEpilogue* out) {
  if (const auto& library = epilogue.library) {
    proto::LibraryEpilogue* stored = out->mutable_library();
    stored->set_kind(static_cast<proto::EpilogueKind>(library->kind));
    if (library->bias) stored->set_bias(*library->bias);
    if (library->aux) stored->set_aux(*library->aux);
  }
  encode(epilogue.after, out->mutable_after());
  out->set_generated(epilogue.generated);
}

ProductEpilogue decode(const proto::ProductEpilogue& in) {
  ProductEpilogue epilogue{.library = {}, .after = decode(in.after()), .generated = in.generated()};
  if (!in.has_library()) return epilogue;
  const proto::LibraryEpilogue& library = in.library();
  epilogue.library = {.kind = decode_enum<EpilogueKind>(library.kind(), proto::EpilogueKind_ARRAYSIZE, "epilogue"),
                      .bias = library.has_bias() ? std::optional(library.bias()) : std::nullopt,
                      .aux = library.has_aux() ? std::optional(library.aux()) : std::nullopt};
  return epilogue;
}

void encode(const MatmulCall& call, proto::Step* step) {
  proto::MatmulCall* out = step->mutable_matmul();
  out->set_dtype(encode(call.dtype));
  assign(out->mutable_batch(), call.batch);
  out->set_m(call.m);
  out->set_n(call.n);
  out->set_k(call.k);
  encode(call.a, out->mutable_a());
  encode(call.b, out->mutable_b());
  encode(call.c, out->mutable_c());
  out->set_origin(call.origin);
  encode(call.generated, out->mutable_generated());
  if (call.epilogue) encode(*call.epilogue, out->mutable_epilogue());
}

MatmulCall decode(const proto::MatmulCall& in) {
  return {.dtype = decode_dtype(in.dtype()),
          .batch = to_vector(in.batch()),
          .m = in.m(),
          .n = in.n(),
          .k = in.k(),
          .a = decode(in.a()),
          .b = decode(in.b()),
          .c = decode(in.c()),
          .origin = in.origin(),
          .generated = decode(in.generated()),
          .epilogue = in.has_epilogue() ? std::optional(decode(in.epilogue())) : std::nullopt};
}

void encode(const ConvolutionCall& call, proto::Step* step) {
  proto::ConvolutionCall* out = step->mutable_convolution();
  out->set_kind(static_cast<proto::ConvolutionKind>(call.kind));
  out->set_dtype(encode(call.dtype));
  out->set_channels_last(call.channels_last);
  out->set_batch(call.batch);
  out->set_input_channels(call.input_channels);
  out->set_output_channels(call.output_channels);
  out->set_groups(call.groups);
  assign(out->mutable_input_spatial(), call.input_spatial);
  assign(out->mutable_output_spatial(), call.output_spatial);
  assign(out->mutable_kernel(), call.kernel);
  assign(out->mutable_strides(), call.strides);
  assign(out->mutable_pads_begin(), call.pads_begin);
  assign(out->mutable_pads_end(), call.pads_end);
  assign(out->mutable_dilations(), call.dilations);
  out->set_input(call.input);
  out->set_weight(call.weight);
  out->set_output(call.output);
  out->set_origin(call.origin);
  encode(call.generated, out->mutable_generated());
  encode(call.generated_tf32, out->mutable_generated_tf32());
  encode(call.packing, out->mutable_packing());
}

ConvolutionCall decode(const proto::ConvolutionCall& in) {
  return {.kind = decode_enum<ConvolutionKind>(in.kind(), proto::ConvolutionKind_ARRAYSIZE, "convolution kind"),
          .dtype = decode_dtype(in.dtype()),
          .channels_last = in.channels_last(),
          .batch = in.batch(),
          .input_channels = in.input_channels(),
          .output_channels = in.output_channels(),
          .groups = in.groups(),
          .input_spatial = to_vector(in.input_spatial()),
          .output_spatial = to_vector(in.output_spatial()),
          .kernel = to_vector(in.kernel()),
          .strides = to_vector(in.strides()),
          .pads_begin = to_vector(in.pads_begin()),
          .pads_end = to_vector(in.pads_end()),
          .dilations = to_vector(in.dilations()),
          .input = in.input(),
          .weight = in.weight(),
          .output = in.output(),
          .origin = in.origin(),
          .generated = decode(in.generated()),
          .generated_tf32 = decode(in.generated_tf32()),
          .packing = decode(in.packing())};
}

void encode(const AttentionCall& call, proto::Step* step) {
  proto::AttentionCall* out = step->mutable_attention();
  out->set_kind(static_cast<proto::AttentionKind>(call.kind));
  out->set_dtype(encode(call.dtype));
  assign(out->mutable_batch(), call.batch);
  out->set_queries(call.queries);
  out->set_keys(call.keys);
  out->set_width(call.width);
  out->set_value_width(call.value_width);
  out->set_scale(call.scale);
  out->set_causal(call.causal);
  encode(call.q, out->mutable_q());
  encode(call.k, out->mutable_k());
  encode(call.v, out->mutable_v());
  encode(call.y, out->mutable_y());
  encode(call.dy, out->mutable_dy());
  encode(call.dq, out->mutable_dq());
  encode(call.dk, out->mutable_dk());
  encode(call.dv, out->mutable_dv());
  out->set_top(call.top);
  out->set_sum(call.sum);
  for (const KernelLaunch& launch : call.generated) encode(launch, out->add_generated());
  out->set_origin(call.origin);
  out->set_generated_is_faster(call.generated_is_faster);
}

AttentionCall decode(const proto::AttentionCall& in) {
  AttentionCall call{.kind = decode_enum<AttentionKind>(in.kind(), proto::AttentionKind_ARRAYSIZE, "attention kind"),
                     .dtype = decode_dtype(in.dtype()),
                     .batch = to_vector(in.batch()),
                     .queries = in.queries(),
                     .keys = in.keys(),
                     .width = in.width(),
                     .value_width = in.value_width(),
                     .scale = in.scale(),
                     .causal = in.causal(),
                     .q = decode(in.q()),
                     .k = decode(in.k()),
                     .v = decode(in.v()),
                     .y = decode(in.y()),
                     .dy = decode(in.dy()),
                     .dq = decode(in.dq()),
                     .dk = decode(in.dk()),
                     .dv = decode(in.dv()),
                     .top = in.top(),
                     .sum = in.sum(),
                     .generated = {},
                     .origin = in.origin(),
                     .generated_is_faster = in.generated_is_faster()};
  for (const proto::KernelLaunch& launch : in.generated()) call.generated.push_back(decode(launch));
  return call;
}

void encode(const CollectiveCall& call, proto::Step* step) {
  proto::CollectiveCall* out = step->mutable_collective();
  out->set_kind(static_cast<proto::CollectiveKind>(call.kind));
  out->set_group(call.group);
  out->set_ranks(call.ranks);
  out->set_root(call.root);
  out->set_operand(call.operand);
  out->set_result(call.result);
  out->set_bytes(call.bytes);
  out->set_origin(call.origin);
}

CollectiveCall decode(const proto::CollectiveCall& in) {
  return {.kind = decode_enum<CollectiveKind>(in.kind(), proto::CollectiveKind_ARRAYSIZE, "collective kind"),
          .group = in.group(),
          .ranks = in.ranks(),
          .root = in.root(),
          .operand = in.operand(),
          .result = in.result(),
          .bytes = in.bytes(),
          .origin = in.origin()};
}

static_assert(std::variant_size_v<Step> == 5, "decode() reads each kind of step, message Step has a field for each");
Step decode(const proto::Step& in) {
  switch (in.call_case()) {
    case proto::Step::kLaunch: return decode(in.launch());
    case proto::Step::kMatmul: return decode(in.matmul());
    case proto::Step::kConvolution: return decode(in.convolution());
    case proto::Step::kAttention: return decode(in.attention());
    case proto::Step::kCollective: return decode(in.collective());
    case proto::Step::CALL_NOT_SET: break;
  }
  throw UserError("a step is of no known kind");
}

template <class Buffers, class Roles>
std::vector<Port> decode_ports(const Buffers& buffers, const Roles& roles, std::string_view what) {
  check_user(roles.size() == buffers.size(), roles.size(), " roles of ", buffers.size(), " ", what, "s");
  std::vector<Port> ports;
  for (int i = 0; i < buffers.size(); ++i) {
    const std::optional<Role> role = parse_role(roles[i]);
    check_user(role.has_value(), "the role '", roles[i], "' of an ", what, " is unknown");
    ports.push_back({buffers[i], *role});
  }
  return ports;
}

template <class Buffers>
std::vector<Port> without_roles(const Buffers& buffers) {
  std::vector<Port> ports;
  for (const int buffer : buffers) ports.push_back({buffer});
  return ports;
}

/// What version 4 knew by name and place alone: the learning rate was the last input of a training step, the label the one before
/// it, and in f16 two outputs followed the loss. Of other programs nobody asked.
void add_roles_of_version_4(Program& program) {
  const auto name = [&](const Port& port) -> std::string_view {
    const auto buffer = static_cast<std::size_t>(port.buffer);
    return buffer < program.buffers.size() ? std::string_view(program.buffers[buffer].name) : std::string_view();
  };
  if (program.name != "train_step" || program.inputs.empty() || program.outputs.empty()) return;
  program.inputs.back().role = Role::learning_rate;
  if (program.inputs.size() >= 2)
    if (Port& label = program.inputs[program.inputs.size() - 2]; name(label) == "label") label.role = Role::label;
  program.outputs[0].role = Role::loss;
  if (program.outputs.size() != 3) return;
  program.outputs[1].role = Role::loss_scale;
  program.outputs[2].role = Role::skipped;
}

Program decode(const proto::Program& in) {
  Program program;
  program.name = in.name();
  program.target = stored_target(in.target().kind(), in.target().architecture());
  for (const proto::Kernel& kernel : in.kernels()) program.kernels.push_back({kernel.name(), kernel.text()});
  program.prelude = in.prelude();
  for (const proto::Buffer& buffer : in.buffers()) program.buffers.push_back(decode(buffer));
  for (const proto::State& state : in.states()) program.states.push_back(decode(state));
  if (in.version() == 4) {
    program.inputs = without_roles(in.inputs());
    program.outputs = without_roles(in.outputs());
    add_roles_of_version_4(program);
  } else {
    program.inputs = decode_ports(in.inputs(), in.input_roles(), "input");
    program.outputs = decode_ports(in.outputs(), in.output_roles(), "output");
  }
  for (const proto::Step& step : in.steps()) program.steps.push_back(decode(step));
  program.faults = to_vector(in.faults());
  program.arena_bytes = in.arena_bytes();
  program.state_bytes = in.state_bytes();
  program.constant_bytes = in.constant_bytes();
  program.io_bytes = in.io_bytes();
  program.arena_lower_bound = in.arena_lower_bound();
  program.contracts = !in.rounds_products();
  return program;
}

proto::Program encode(const Program& program) {
  proto::Program out;
  out.set_version(kProgramVersion);
  out.set_name(program.name);
  out.mutable_target()->set_kind(static_cast<std::uint32_t>(program.target.kind));
  out.mutable_target()->set_architecture(program.target.architecture);
  for (const Kernel& kernel : program.kernels) {
    proto::Kernel* stored = out.add_kernels();
    stored->set_name(kernel.name);
    stored->set_text(kernel.text);
  }
  out.set_prelude(program.prelude);
  for (const Buffer& buffer : program.buffers) encode(buffer, out.add_buffers());
  for (const State& state : program.states) encode(state, out.add_states());
  for (const Port& input : program.inputs) {
    out.add_inputs(input.buffer);
    out.add_input_roles(std::string(name_of(input.role)));
  }
  for (const Port& output : program.outputs) {
    out.add_outputs(output.buffer);
    out.add_output_roles(std::string(name_of(output.role)));
  }
  for (const Step& step : program.steps) std::visit([&](const auto& call) { encode(call, out.add_steps()); }, step);
  for (const std::string& fault : program.faults) out.add_faults(fault);
  out.set_arena_bytes(program.arena_bytes);
  out.set_state_bytes(program.state_bytes);
  out.set_constant_bytes(program.constant_bytes);
  out.set_io_bytes(program.io_bytes);
  out.set_arena_lower_bound(program.arena_lower_bound);
  out.set_rounds_products(!program.contracts);
  return out;
}

}  // namespace

std::vector<std::byte> serialize(const Program& program) {
  try {
    validate(program);
  } catch (const UserError& error) { throw InternalError(concat("program '", program.name, "' cannot be stored: ", error.what())); }
  const proto::Program message = encode(program);
  const std::size_t size = message.ByteSizeLong();
  check_user(size <= static_cast<std::size_t>(std::numeric_limits<int>::max()), "program '", program.name, "' takes ", size,
             " bytes when stored; the limit is 2 GiB");
  std::vector<std::byte> bytes(size);
  check_internal(message.SerializeToArray(bytes.data(), static_cast<int>(size)), "program '", program.name, "' cannot be stored");
  return bytes;
}

Program parse_program(std::span<const std::byte> bytes, std::string_view source) {
  check_user(bytes.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max()), source, ": a program of ", bytes.size(),
             " bytes; the limit is 2 GiB");
  proto::Program message;
  check_user(message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())), source, ": not a program, or damaged");
  check_user(message.version() >= kOldestProgramVersion && message.version() <= kProgramVersion, source, ": a program of version ",
             message.version(), ", this gcomp reads versions ", kOldestProgramVersion, " to ", kProgramVersion);
  try {
    Program program = decode(message);
    validate(program);
    return program;
  } catch (const UserError& error) { throw UserError(concat(source, ": invalid program: ", error.what())); }
}

}  // namespace gcomp::runtime
