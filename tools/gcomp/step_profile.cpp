#include "tools/gcomp/step_profile.h"

#include <algorithm>
#include <cstdio>

#include "ir/base/error.h"

namespace gcomp::tools {
namespace {

std::int64_t product_of(std::span<const std::int64_t> sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

std::int64_t bytes_of(const runtime::Program& program, int buffer) {
  return program.buffers[static_cast<std::size_t>(buffer)].type.bytes();
}

StepCost cost_of(const runtime::Program& program, const runtime::KernelLaunch& launch) {
  StepCost cost{.what = program.kernels[static_cast<std::size_t>(launch.kernel)].name, .origin = launch.origin};
  for (const runtime::Segment& segment : launch.segments)
    for (const int buffer : segment.buffers) cost.bytes += bytes_of(program, buffer);
  return cost;
}

/// The matrices of one operand, not the whole buffer that they may be a part of; a repeated one counts once.
std::int64_t matrix_bytes(const runtime::MatmulCall& call, const runtime::MatrixView& view, std::int64_t rows,
                          std::int64_t columns) {
  std::int64_t matrices = 1;
  for (std::size_t i = 0; i < call.batch.size(); ++i)
    if (view.batch_strides[i] != 0) matrices *= call.batch[i];
  return matrices * rows * columns * static_cast<std::int64_t>(size_of(call.dtype));
}

StepCost cost_of(const runtime::Program&, const runtime::MatmulCall& call) {
  const std::int64_t matrices = product_of(call.batch);
  const std::string times = matrices > 1 ? concat(matrices, " x ") : "";
  return {.what = concat("matmul ", times, call.m, "x", call.n, "x", call.k),
          .origin = call.origin,
          .bytes = matrix_bytes(call, call.a, call.m, call.k) + matrix_bytes(call, call.b, call.k, call.n) +
                   matrix_bytes(call, call.c, call.m, call.n),
          .flops = 2 * matrices * call.m * call.n * call.k};
}

StepCost cost_of(const runtime::Program& program, const runtime::ConvolutionCall& call) {
  constexpr const char* kKinds[] = {"convolution", "convolution, input gradient", "convolution, weight gradient"};
  return {.what = kKinds[static_cast<std::size_t>(call.kind)],
          .origin = call.origin,
          .bytes = bytes_of(program, call.input) + bytes_of(program, call.weight) + bytes_of(program, call.output),
          .flops = 2 * call.batch * call.output_channels * (call.input_channels / std::max<std::int64_t>(call.groups, 1)) *
                   product_of(call.output_spatial) * product_of(call.kernel)};
}

}  // namespace

std::vector<StepCost> step_costs(const runtime::Program& program, std::span<const std::int64_t> nanoseconds, std::int64_t runs) {
  std::vector<StepCost> costs;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    costs.push_back(std::visit([&](const auto& step) { return cost_of(program, step); }, program.steps[i]));
    costs.back().microseconds = static_cast<double>(nanoseconds[i]) / 1e3 / static_cast<double>(runs);
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const StepCost& a, const StepCost& b) { return a.microseconds > b.microseconds; });
  return costs;
}

void report_step_costs(const Console& console, const std::vector<StepCost>& costs) {
  double total = 0;
  for (const StepCost& cost : costs) total += cost.microseconds;
  for (const StepCost& cost : costs) {
    char text[96];
    std::snprintf(text, sizeof text, "%9.1f us %5.1f %% %8.1f GB/s  ", cost.microseconds,
                  total > 0 ? 100 * cost.microseconds / total : 0,
                  cost.microseconds > 0 ? static_cast<double>(cost.bytes) / cost.microseconds / 1e3 : 0);
    console.say(concat(text, cost.what, "  ", cost.origin));
  }
}

nlohmann::json to_json(const std::vector<StepCost>& costs) {
  nlohmann::json list = nlohmann::json::array();
  for (const StepCost& cost : costs)
    list.push_back(
        {{"what", cost.what}, {"origin", cost.origin}, {"us", cost.microseconds}, {"bytes", cost.bytes}, {"flops", cost.flops}});
  return list;
}

}  // namespace gcomp::tools
