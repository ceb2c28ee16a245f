#include "tests/codegen/cuda_shim/program_runner.h"

#include <algorithm>
#include <array>

#include "ir/base/error.h"

namespace gcomp::cuda_shim {

using runtime::Buffer;
using runtime::ConvolutionCall;
using runtime::ConvolutionKind;
using runtime::GeneratedProduct;
using runtime::Grid;
using runtime::KernelLaunch;
using runtime::MatmulCall;
using runtime::MatrixView;
using runtime::ProductLaunch;
using runtime::Program;
using runtime::Segment;
using runtime::Space;
using runtime::Step;

namespace {

std::int64_t bytes_of(const Program& program, Space space) {
  switch (space) {
    case Space::arena: return program.arena_bytes;
    case Space::state: return program.state_bytes;
    case Space::constant: return program.constant_bytes;
    case Space::io: return program.io_bytes;
  }
  return 0;
}

std::int64_t dot(const std::vector<std::int64_t>& index, const std::vector<std::int64_t>& strides) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < index.size(); ++i) sum += index[i] * strides[i];
  return sum;
}

template <class F>
void for_each(const Shape& shape, const F& visit) {
  if (element_count(shape) == 0) return;
  Shape index(shape.size());
  do visit(index);
  while (next_index(index, shape));
}

/// Positions in the buffers of a convolution call.
struct ConvolutionLayout {
  const ConvolutionCall& call;

  std::int64_t image(std::int64_t n, std::int64_t c, std::int64_t channels, const Shape& position, const Shape& sizes) const {
    std::int64_t at = n;
    if (!call.channels_last) at = at * channels + c;
    for (std::size_t d = 0; d < sizes.size(); ++d) at = at * sizes[d] + position[d];
    return call.channels_last ? at * channels + c : at;
  }
  std::int64_t weight(std::int64_t o, std::int64_t c, const Shape& offset) const {
    std::int64_t at = o * (call.input_channels / call.groups) + c;
    for (std::size_t d = 0; d < call.kernel.size(); ++d) at = at * call.kernel[d] + offset[d];
    return at;
  }
};

}  // namespace

ProgramRunner::ProgramRunner(const Program& program, Products products, Rounding rounding)
    : program_(program),
      products_(products),
      rounding_(rounding),
      modules_(program.prelude, program.kernels),
      faults_(program.faults.size()) {
  for (Space space : {Space::arena, Space::state, Space::constant, Space::io})
    spaces_.emplace(space, GuardedMemory(static_cast<std::size_t>(bytes_of(program, space))));
  for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
    const Buffer& buffer = program_.buffers[b];
    if (buffer.space == Space::constant)
      std::copy(buffer.contents.bytes().begin(), buffer.contents.bytes().end(), address(static_cast<int>(b)));
  }
  for (const runtime::Port& input : program_.inputs) inputs_[buffer(input.buffer).name] = input.buffer;
  for (const runtime::State& state : program_.states) {
    states_[buffer(state.buffer).name] = state.buffer;
    if (state.fill)
      for (std::int64_t i = 0; i < buffer(state.buffer).type.elements(); ++i) store(state.buffer, i, *state.fill);
  }
}

std::byte* ProgramRunner::address(int index) const { return spaces_.at(buffer(index).space).data() + buffer(index).offset; }

void ProgramRunner::write(const std::string& name, const Tensor& value) {
  const auto input = inputs_.find(name);
  const int index = input != inputs_.end() ? input->second : states_.at(name);
  check_internal(buffer(index).type == value.type(), name, " is ", to_string(value.type()), ", wanted ",
                 to_string(buffer(index).type));
  std::copy(value.bytes().begin(), value.bytes().end(), address(index));
}

Tensor ProgramRunner::read(int index) const {
  Tensor value(buffer(index).type);
  std::copy_n(address(index), value.bytes().size(), value.data());
  return value;
}

std::string ProgramRunner::step() {
  for (const Step& step : program_.steps) std::visit([&](const auto& call) { run(call); }, step);
  for (const auto& [space, memory] : spaces_)
    check_internal(memory.damage().empty(), "space ", static_cast<int>(space), ": ", memory.damage());
  for (std::size_t f = 0; f < faults_.size(); ++f)
    if (faults_[f] != 0) return program_.faults[f];
  return "";
}

void ProgramRunner::run(const runtime::AttentionCall& call) {
  for (const KernelLaunch& launch : call.generated) run(launch);
}

void ProgramRunner::run(const runtime::CollectiveCall& call) { throw InternalError(concat(call.origin, ": one rank runs here")); }

void ProgramRunner::run(const KernelLaunch& launch) {
  ++launches_;
  std::vector<void*> pointers, arguments;
  std::vector<std::int64_t> blocks;
  std::vector<long long> extents;
  for (const Segment& segment : launch.segments) {
    for (int b : segment.buffers) pointers.push_back(address(b));
    blocks.push_back(segment.tasks);
    extents.push_back(segment.extent);
  }
  int unused = 0;
  void* fault = launch.fault > 0 ? &faults_[static_cast<std::size_t>(launch.fault) - 1] : &unused;
  const HostSegmentTable table(blocks, extents, pointers);
  const void* table_address = table.address();
  // A segment of a kernel of fixed length has no extent of its own.
  if (extents[0] > 0) {
    check_internal(table.total_blocks() == launch.grid.blocks, "a launch over segments has ", launch.grid.blocks,
                   " blocks, wanted ", table.total_blocks());
    arguments = {&table_address, &fault};
  } else {
    for (void*& pointer : pointers) arguments.push_back(&pointer);
    arguments.push_back(&fault);
  }
  const runtime::GridKernel made = kernel_of(launch, rounding_ == Rounding::tf32);
  this->launch(made.kernel, made.grid, arguments.data(), launch.origin);
}

void ProgramRunner::launch(int kernel, const Grid& grid, void** arguments, const std::string& origin) {
  try {
    emulator_.launch(modules_.function(kernel), static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads), arguments,
                     static_cast<std::size_t>(grid.shared_bytes));
  } catch (const Error& error) {
    throw InternalError(
        concat("kernel ", program_.kernels[static_cast<std::size_t>(kernel)].name, " of ", origin, ": ", error.what()));
  }
}

void ProgramRunner::run(const GeneratedProduct& product, int first, int second, int result, const std::string& origin) {
  GuardedMemory workspace(static_cast<std::size_t>(product.workspace_bytes));
  const void *one = address(first), *other = address(second);
  void *to = address(result), *sums = workspace.data();
  for (const ProductLaunch& part : product.launches) {
    std::array<std::int64_t, runtime::kProductParameters> parameters{};
    std::copy(part.parameters.begin(), part.parameters.end(), parameters.begin());
    std::vector<void*> further, arguments = {&one, &other, &to, &sums, parameters.data()};
    for (int b : part.buffers) further.push_back(address(b));
    for (void*& pointer : further) arguments.push_back(&pointer);
    launch(part.kernel, part.grid, arguments.data(), origin);
    ++launches_;
  }
  check_internal(workspace.damage().empty(), "the workspace of ", origin, ": ", workspace.damage());
}

void ProgramRunner::run(const MatmulCall& call) {
  const bool generated = products_ == Products::generated && !call.generated.launches.empty();
  if (generated) run(call.generated, call.a.buffer, call.b.buffer, call.c.buffer, call.origin);
  else run_loops(call);
  if (call.epilogue && !(generated && call.epilogue->generated)) run(call.epilogue->after);
}

void ProgramRunner::run_loops(const MatmulCall& call) {
  for_each(call.batch, [&](const Shape& batch) {
    const auto dense = [&](const MatrixView& view, std::int64_t rows, std::int64_t columns) {
      std::vector<double> values;
      const std::int64_t first = view.offset + dot(batch, view.batch_strides);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
          values.push_back(load(view.buffer, first + i * view.row_stride + j * view.column_stride));
      return values;
    };
    const std::vector<double> a = dense(call.a, call.m, call.k), b = dense(call.b, call.k, call.n);
    const std::int64_t first = call.c.offset + dot(batch, call.c.batch_strides);
    std::vector<double> row(static_cast<std::size_t>(call.n));
    for (std::int64_t i = 0; i < call.m; ++i) {
      std::fill(row.begin(), row.end(), 0);
      for (std::int64_t k = 0; k < call.k; ++k) {
        const double factor = a[static_cast<std::size_t>(i * call.k + k)];
        const double* from = b.data() + k * call.n;
        for (std::int64_t j = 0; j < call.n; ++j) row[static_cast<std::size_t>(j)] += factor * from[j];
      }
      for (std::int64_t j = 0; j < call.n; ++j)
        store(call.c.buffer, first + i * call.c.row_stride + j * call.c.column_stride, row[static_cast<std::size_t>(j)]);
    }
  });
}

void ProgramRunner::run(const ConvolutionCall& call) {
  if (products_ == Products::generated && !call.generated.launches.empty()) {
    std::vector<int> buffers = {call.input, call.weight, call.output};
    const int written = call.kind == ConvolutionKind::forward ? 2 : call.kind == ConvolutionKind::input_gradient ? 0 : 1;
    std::rotate(buffers.begin() + written, buffers.begin() + written + 1, buffers.end());
    return run(call.generated, buffers[0], buffers[1], buffers[2], call.origin);
  }
  const ConvolutionLayout layout{call};
  const int target = call.kind == ConvolutionKind::forward          ? call.output
                     : call.kind == ConvolutionKind::input_gradient ? call.input
                                                                    : call.weight;
  std::vector<double> sums(static_cast<std::size_t>(buffer(target).type.elements()));
  const std::int64_t inputs = call.input_channels / call.groups, outputs = call.output_channels / call.groups;
  for_each({call.batch, call.groups, outputs, inputs}, [&](const Shape& i) {
    for_each(call.output_spatial, [&](const Shape& position) {
      for_each(call.kernel, [&](const Shape& offset) {
        Shape in(position.size());
        for (std::size_t d = 0; d < in.size(); ++d) {
          in[d] = position[d] * call.strides[d] + offset[d] * call.dilations[d] - call.pads_begin[d];
          if (in[d] < 0 || in[d] >= call.input_spatial[d]) return;
        }
        const std::int64_t o = i[1] * outputs + i[2], c = i[1] * inputs + i[3];
        const std::int64_t x = layout.image(i[0], c, call.input_channels, in, call.input_spatial),
                           w = layout.weight(o, i[3], offset);
        const std::int64_t y = layout.image(i[0], o, call.output_channels, position, call.output_spatial);
        switch (call.kind) {
          case ConvolutionKind::forward: sums[static_cast<std::size_t>(y)] += load(call.input, x) * load(call.weight, w); break;
          case ConvolutionKind::input_gradient:
            sums[static_cast<std::size_t>(x)] += load(call.output, y) * load(call.weight, w);
            break;
          case ConvolutionKind::weight_gradient:
            sums[static_cast<std::size_t>(w)] += load(call.input, x) * load(call.output, y);
            break;
        }
      });
    });
  });
  for (std::size_t e = 0; e < sums.size(); ++e) store(target, static_cast<std::int64_t>(e), sums[e]);
}

}  // namespace gcomp::cuda_shim
