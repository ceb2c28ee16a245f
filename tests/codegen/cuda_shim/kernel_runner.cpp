#include "tests/codegen/cuda_shim/kernel_runner.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "ir/segments.h"

namespace gcomp::cuda_shim {

using namespace gcomp::ir;

namespace {

constexpr std::size_t kKernelsAModule = 60;

Tensor random_values(const TensorType& type, double low, double high, int largest, std::mt19937& random) {
  Tensor tensor(type);
  if (!is_float(type.dtype) && largest >= 0) low = 0, high = largest;
  std::uniform_real_distribution<double> real(low, high);
  std::uniform_int_distribution<int> whole(static_cast<int>(std::ceil(low)), static_cast<int>(std::floor(high)));
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, is_float(type.dtype)           ? real(random)
                  : type.dtype == DType::boolean ? static_cast<double>(random() & 1)
                                                 : whole(random));
  return tensor;
}

bool becomes_kernel(const Node& node) {
  switch (node.op->kind) {
    case Kind::kernel:
    case Kind::pointwise:
    case Kind::reduce:
    case Kind::contract:
    case Kind::view:
    case Kind::index:
    case Kind::scan:
    case Kind::random: return true;
    case Kind::constant: return node.op != &ops::kConstant;
    case Kind::update:
    case Kind::collective:
    case Kind::barrier:
    case Kind::composite: return false;
  }
  return false;
}

codegen::KernelTable::Entry emit(codegen::KernelTable& table, const Node& node) {
  static const std::int64_t shared_bytes = codegen::cuda::kTarget.shared_bytes(runtime::parse_target("cuda:sm_90"));
  if (node.op != &ops::kMultiKernel) {
    const std::vector<TensorType> operands = types_of(node.operands), results = types_of(node.results);
    const LoopNest nest = node.op->kind == Kind::kernel ? *node.nest : loops_of(*node.op, operands, results, node.attributes);
    return table.add({nest, operands, results, codegen::SegmentForm::one, shared_bytes});
  }
  const auto form = segments_of(node).alike ? codegen::SegmentForm::alike : codegen::SegmentForm::any_length;
  return table.add({*node.nest, operand_types_in_nest(node), result_types_in_nest(node), form, shared_bytes});
}

}  // namespace

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-11;
    case DType::f32: return 2e-5;
    case DType::f16: return 4e-3;
    case DType::bf16: return 3e-2;
    default: return 0;
  }
}

std::string difference(const Tensor& result, const Tensor& expected) {
  for (std::int64_t i = 0; i < expected.elements(); ++i) {
    const double a = result.at(i), b = expected.at(i);
    if (a == b || (a != a && b != b) || std::fabs(a - b) <= tolerance_of(expected.dtype()) * (1 + std::fabs(b))) continue;
    return concat("element ", i, " of ", to_string(expected.type()), " is ", a, ", the interpreter's ", b);
  }
  return "";
}

void KernelRunner::add_kernels(const Graph& graph) {
  for (const auto& node : graph.nodes())
    if (becomes_kernel(*node)) emit(table_, *node);
}

void KernelRunner::add_graph(const std::string& label, const Graph& graph, double low, double high, int largest) {
  std::mt19937 random(1);
  std::unordered_map<const Value*, Tensor> known;
  for (const Value* input : graph.inputs()) known.emplace(input, random_values(input->type, low, high, largest, random));
  for (const State& state : graph.states())
    known.emplace(state.value, random_values(state.value->type, low, high, largest, random));
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == Kind::update) continue;
    std::vector<const Tensor*> operands;
    for (const Value* operand : node->operands) operands.push_back(&known.at(operand));
    std::vector<Tensor> made = evaluate(*node, operands);
    if (becomes_kernel(*node)) {
      KernelCase c{.label = concat(label, " %", node->results[0]->name, " (", node->op->name, ")"),
                   .entry = emit(table_, *node),
                   .operands = {},
                   .expected = made,
                   .blocks = {}};
      for (const Tensor* operand : operands) c.operands.push_back(*operand);
      if (node->op == &ops::kMultiKernel) {
        c.segments = static_cast<int>(node->attributes.integer("segments"));
        const codegen::EmittedKernel& emitted = *c.entry.emitted;
        for (std::size_t s = 0; s < made.size(); s += made.size() / static_cast<std::size_t>(c.segments))
          c.blocks.push_back(segments_of(*node).alike ? emitted.grid.blocks
                                                      : (made[s].elements() + emitted.task_length - 1) / emitted.task_length);
      }
      cases_.push_back(std::move(c));
    }
    for (std::size_t i = 0; i < made.size(); ++i) known.insert_or_assign(node->results[i], std::move(made[i]));
  }
}

std::string KernelRunner::run_case(Emulator& emulator, const KernelCase& c, const Function& function) const {
  std::vector<GuardedMemory> memory;
  const std::size_t segments = static_cast<std::size_t>(c.segments);
  const std::size_t operands = c.operands.size() / segments, results = c.expected.size() / segments;
  std::vector<void*> pointers;
  std::vector<long long> extents;
  for (std::size_t s = 0; s < segments; ++s) {
    for (std::size_t i = 0; i < operands; ++i) {
      const Tensor& value = c.operands[s * operands + i];
      memory.emplace_back(value.bytes().size());
      if (!value.bytes().empty()) std::memcpy(memory.back().data(), value.data(), value.bytes().size());
      pointers.push_back(memory.back().data());
    }
    for (std::size_t i = 0; i < results; ++i) {
      memory.emplace_back(c.expected[s * results + i].bytes().size());
      pointers.push_back(memory.back().data());
    }
    extents.push_back(c.expected[s * results].elements());
  }
  GuardedMemory fault(sizeof(int));
  int zero = 0;
  std::memcpy(fault.data(), &zero, sizeof zero);
  void* fault_pointer = fault.data();
  std::vector<void*> arguments;
  std::unique_ptr<HostSegmentTable> table;
  const void* table_address = nullptr;
  std::int64_t blocks = c.entry.emitted->grid.blocks;
  if (!c.blocks.empty()) {
    table = std::make_unique<HostSegmentTable>(c.blocks, extents, pointers);
    table_address = table->address();
    blocks = table->total_blocks();
    arguments = {&table_address, &fault_pointer};
  } else {
    for (void*& pointer : pointers) arguments.push_back(&pointer);
    arguments.push_back(&fault_pointer);
  }
  const runtime::Grid& grid = c.entry.emitted->grid;
  emulator.launch(function, static_cast<unsigned>(blocks), static_cast<unsigned>(grid.threads), arguments.data(),
                  static_cast<std::size_t>(grid.shared_bytes));
  std::memcpy(&zero, fault.data(), sizeof zero);
  if (zero != 0) return "a fault was raised";
  if (!fault.damage().empty()) return "fault flag: " + fault.damage();
  const std::size_t each = operands + results;
  for (std::size_t b = 0; b < memory.size(); ++b) {
    const std::size_t s = b / each, i = b % each;
    if (!memory[b].damage().empty()) return concat("buffer ", b, ": ", memory[b].damage());
    const Tensor& wanted = i < operands ? c.operands[s * operands + i] : c.expected[s * results + i - operands];
    Tensor found(wanted.type());
    if (!found.bytes().empty()) std::memcpy(found.data(), memory[b].data(), found.bytes().size());
    if (i < operands && !(found == wanted)) return concat("operand ", i, " was written");
    if (const std::string d = difference(found, wanted); !d.empty()) return concat("result ", i - operands, ": ", d);
  }
  return "";
}

std::vector<std::string> KernelRunner::run() {
  std::vector<std::string> problems;
  const KernelModules modules(prelude(), kernels(), Runs::once);
  Emulator emulator;
  for (const KernelCase& c : cases_) {
    std::string problem;
    try {
      problem = run_case(emulator, c, modules.function(c.entry.kernel));
    } catch (const Error& error) { problem = error.what(); }
    if (!problem.empty())
      problems.push_back(concat(c.label, ", grid ", c.entry.emitted->grid.blocks, " x ", c.entry.emitted->grid.threads, ": ",
                                problem, "\n", c.entry.emitted->text));
  }
  return problems;
}

KernelModules::KernelModules(const std::string& prelude, const std::vector<runtime::Kernel>& kernels, Runs runs) {
  modules_.resize((kernels.size() + kKernelsAModule - 1) / kKernelsAModule);
  std::vector<std::exception_ptr> failures(modules_.size());
  std::atomic<std::size_t> next{0};
  const auto compile = [&] {
    for (std::size_t m; (m = next.fetch_add(1)) < modules_.size();) {
      std::string text = prelude;
      std::vector<std::string> names;
      for (std::size_t k = m * kKernelsAModule; k < std::min(kernels.size(), (m + 1) * kKernelsAModule); ++k) {
        text += "\n" + kernels[k].text;
        names.push_back(kernels[k].name);
      }
      try {
        modules_[m] = std::make_unique<HostModule>(text, names, watch_by_environment(), runs);
      } catch (...) { failures[m] = std::current_exception(); }
    }
  };
  std::thread other(compile);
  compile();
  other.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  for (std::size_t k = 0; k < kernels.size(); ++k) functions_.push_back(modules_[k / kKernelsAModule]->function(kernels[k].name));
}

KernelModules::~KernelModules() = default;

HostSegmentTable::HostSegmentTable(const std::vector<std::int64_t>& blocks, std::vector<long long> extents,
                                   std::vector<void*> pointers)
    : extents_(std::move(extents)), pointers_(std::move(pointers)) {
  first_block_.push_back(0);
  for (std::int64_t count : blocks) first_block_.push_back(first_block_.back() + static_cast<int>(count));
  table_ = {static_cast<int>(blocks.size()), static_cast<int>(pointers_.size() / blocks.size()), first_block_.data(),
            extents_.data(), pointers_.data()};
}

}  // namespace gcomp::cuda_shim
