#include "codegen/step_cost.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "ir/nest/loops.h"
#include "ir/ops/table.h"
#include "ir/product.h"
#include "ir/segments.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

double count_of(const std::vector<std::int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), 1.0, [](double a, std::int64_t b) { return a * static_cast<double>(b); });
}

double bytes_of(const Value* value) { return static_cast<double>(value->type.bytes()); }

double points_of(const LoopNest& nest, std::uint64_t axes) {
  double points = 1;
  for (std::size_t a = 0; a < nest.extents.size(); ++a)
    if (axes >> a & 1) points *= static_cast<double>(nest.extents[a]);
  return points;
}

std::uint64_t axes_of(const Statement& statement) {
  std::uint64_t axes = 0;
  for (const auto* list : {&statement.axes, &statement.over})
    for (int a : *list) axes |= std::uint64_t{1} << a;
  return axes;
}

/// Calls of scalar ops and steps of reductions at one point of a statement.
double calls_of(const Statement& statement) {
  double calls = statement.kind == Statement::Kind::map ? 0 : 1;
  for_each_term(statement.value, [&](const TermPtr& term) { calls += term->kind == Term::Kind::call; });
  return calls;
}

/// Elements of each operand that a nest reads, one read counted for each point that its index depends on.
std::vector<double> reads_of(const LoopNest& nest, std::size_t operands) {
  std::vector<double> reads(operands);
  for (const Statement& statement : nest.statements)
    for_each_term(statement.value, [&](const TermPtr& term) {
      if (term->kind == Term::Kind::read && static_cast<std::size_t>(term->slot) < operands)
        reads[static_cast<std::size_t>(term->slot)] += points_of(nest, term->axes);
    });
  for (const LoopOutput& output : nest.outputs)
    if (output.accumulate) return std::vector<double>(operands, 1e300);  // whatever it reads besides: everything at most
  return reads;
}

/// The nest over the first so many operands and results of the node.
StepCost nest_cost(const LoopNest& nest, const Node& node, std::size_t operands, std::size_t results) {
  StepCost cost;
  for (const Statement& statement : nest.statements) cost.flops += calls_of(statement) * points_of(nest, axes_of(statement));
  const std::vector<double> reads = reads_of(nest, operands);
  for (std::size_t i = 0; i < operands; ++i)
    cost.bytes += std::min(bytes_of(node.operands[i]), reads[i] * static_cast<double>(size_of(node.operands[i]->type.dtype)));
  for (std::size_t i = 0; i < results; ++i) cost.bytes += bytes_of(node.results[i]);
  return cost;
}
StepCost nest_cost(const LoopNest& nest, const Node& node) {
  return nest_cost(nest, node, node.operands.size(), node.results.size());
}

/// Many runs of one nest: of any length, every operand and result is gone through once.
StepCost segments_cost(const Node& node) {
  const Segments segments = segments_of(node);
  StepCost cost;
  if (segments.alike) {
    cost = nest_cost(*node.nest, node, segments.operands, segments.results);
    cost.flops *= static_cast<double>(segments.count);
    cost.bytes *= static_cast<double>(segments.count);
    return cost;
  }
  double calls = 0, elements = 0;
  for (const Statement& statement : node.nest->statements) calls += calls_of(statement);
  for (std::size_t s = 0; s < segments.count; ++s)
    elements += static_cast<double>(node.results[s * segments.results]->type.elements());
  cost.flops = calls * elements;
  for (const Value* operand : node.operands) cost.bytes += bytes_of(operand);
  for (const Value* result : node.results) cost.bytes += bytes_of(result);
  return cost;
}

StepCost call_cost(const runtime::MatmulCall& call) {
  StepCost cost{.dtype = call.dtype};
  const auto [m, n, k] = std::tuple{static_cast<double>(call.m), static_cast<double>(call.n), static_cast<double>(call.k)};
  cost.flops = 2 * m * n * k * count_of(call.batch);
  const auto view = [&](const runtime::MatrixView& v, double elements) {
    for (std::size_t d = 0; d < call.batch.size(); ++d)
      if (v.batch_strides[d] != 0) elements *= static_cast<double>(call.batch[d]);
    return elements * static_cast<double>(size_of(call.dtype));
  };
  cost.bytes = view(call.a, m * k) + view(call.b, k * n) + view(call.c, m * n);
  return cost;
}

StepCost call_cost(const runtime::ConvolutionCall& call) {
  StepCost cost{.dtype = call.dtype};
  const double batch = static_cast<double>(call.batch), inputs = static_cast<double>(call.input_channels),
               outputs = static_cast<double>(call.output_channels), taps = count_of(call.kernel);
  const double pairs = inputs / static_cast<double>(call.groups) * outputs * taps;
  cost.flops = 2 * batch * count_of(call.output_spatial) * pairs;
  cost.bytes = (batch * (inputs * count_of(call.input_spatial) + outputs * count_of(call.output_spatial)) + pairs) *
               static_cast<double>(size_of(call.dtype));
  return cost;
}

double pairs_of(const runtime::AttentionCall& call) {
  const double queries = static_cast<double>(call.queries), keys = static_cast<double>(call.keys), seen = std::min(queries, keys);
  return count_of(call.batch) * (call.causal ? seen * (seen + 1) / 2 + (queries - seen) * keys : queries * keys);
}

/// Two products forward, five backward.
StepCost call_cost(const runtime::AttentionCall& call) {
  constexpr double kRowOps = 4;  // scale, exp, sum and what moves with them
  const bool forward = call.kind == runtime::AttentionKind::forward;
  const double width = static_cast<double>(call.width), value_width = static_cast<double>(call.value_width);
  StepCost cost{.dtype = call.dtype};
  cost.flops = pairs_of(call) * (kRowOps + (forward ? 2 * (width + value_width) : 6 * width + 4 * value_width));
  double elements = 0;
  for (const runtime::AttentionMatrix& matrix : matrices_of(call))
    elements += count_of(call.batch) * static_cast<double>(matrix.rows) * static_cast<double>(matrix.columns);
  cost.bytes =
      elements * static_cast<double>(size_of(call.dtype)) + 2 * 4 * count_of(call.batch) * static_cast<double>(call.queries);
  return cost;
}

/// What memory sees; the link between ranks takes its time apart (sent_bytes()).
StepCost call_cost(const runtime::CollectiveCall& call) {
  return {.bytes = static_cast<double>(call.bytes) * static_cast<double>(call.ranks) * 2, .dtype = DType::f32};
}

/// A matmul with what follows it.
StepCost product_cost(const runtime::MatmulCall& call, const Node& node) {
  StepCost cost = nest_cost(*node.nest, node);
  cost.dtype = call.dtype;
  if (call.epilogue->library) return cost;
  // The sums are written, unless that is counted as a result, and read again.
  const double sums = static_cast<double>(node.result()->type.elements()) * static_cast<double>(size_of(call.dtype));
  cost.bytes += (keeps_sums(node) ? 1 : 2) * sums;
  cost.after_bytes = std::max(cost.bytes - call_cost(call).bytes, sums);
  return cost;
}

StepCost kernel_cost(const Node& node) {
  if (node.op->kind == Kind::update) return cost_of_copy(node.operands[0]->type);
  if (node.op == &ops::kMultiKernel) return segments_cost(node);
  if (node.op->kind == Kind::kernel) return nest_cost(*node.nest, node);
  return nest_cost(loops_of(*node.op, types_of(node.operands), types_of(node.results), node.attributes), node);
}

}  // namespace

StepCost cost_of_copy(const TensorType& type) {
  return {.bytes = 2 * static_cast<double>(type.bytes()), .dtype = DType::f32, .work = {Family::copy, {}}};
}

StepCost cost_of(const runtime::Step& step, const Node& node) {
  const bool fused = node.op == &ops::kProduct;
  return runtime::visit_step(
      step, [&](const runtime::KernelLaunch&) { return kernel_cost(node); },
      [&](const runtime::MatmulCall& call) { return fused ? product_cost(call, node) : call_cost(call); },
      [](const runtime::ConvolutionCall& call) { return call_cost(call); },
      [](const runtime::AttentionCall& call) { return call_cost(call); },
      [](const runtime::CollectiveCall& call) { return call_cost(call); });
}

}  // namespace gcomp::codegen
