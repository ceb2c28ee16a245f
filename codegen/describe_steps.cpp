#include <array>
#include <iomanip>
#include <sstream>

#include "codegen/step_cost.h"
#include "ir/base/error.h"
#include "ir/base/units.h"

namespace gcomp::codegen {
namespace {

using runtime::CollectiveCall;
using runtime::ConvolutionCall;
using runtime::KernelLaunch;
using runtime::MatmulCall;
using runtime::ProductEpilogue;
using runtime::Program;
using runtime::Step;

std::string extents_text(const std::vector<std::int64_t>& extents) {
  std::string text;
  for (std::int64_t extent : extents) text += concat(text.empty() ? "" : "x", extent);
  return text;
}

std::string what(const Program& program, const KernelLaunch& launch) {
  return concat(program.kernels[static_cast<std::size_t>(launch.kernel)].name, ", ", launch.grid.blocks, " x ",
                launch.grid.threads);
}
/// "gelu, bias, aux" or "bias gradient"; "" where the library has no such epilogue.
std::string library_text(const ProductEpilogue& epilogue) {
  static constexpr std::array<std::string_view, 3> kKinds = {"", "gelu", "gelu gradient"};
  if (!epilogue.library) return "";
  if (runtime::is_bias_gradient(epilogue.library->kind)) return "bias gradient";
  std::string text(kKinds[static_cast<std::size_t>(epilogue.library->kind)]);
  if (epilogue.library->bias) text += text.empty() ? "bias" : ", bias";
  if (epilogue.library->aux) text += ", aux";
  return text;
}

std::string what(const Program& program, const MatmulCall& call) {
  std::string text = concat("matmul ", call.batch.empty() ? "" : concat("[", extents_text(call.batch), "] "), call.m, "x", call.n,
                            "x", call.k, " ", name_of(call.dtype));
  if (!call.epilogue) return text;
  const std::string library = library_text(*call.epilogue);
  return text + concat(" with ", library, library.empty() ? "" : ", else ",
                       program.kernels[static_cast<std::size_t>(call.epilogue->after.kernel)].name);
}
std::string what(const Program&, const ConvolutionCall& call) {
  static constexpr std::array<std::string_view, 3> kKinds = {"convolution", "convolution to input", "convolution to weight"};
  return concat(kKinds[static_cast<std::size_t>(call.kind)], " ", call.batch, "x", call.input_channels, "x",
                extents_text(call.input_spatial), " to ", call.output_channels, "x", extents_text(call.output_spatial), ", ",
                extents_text(call.kernel), call.groups > 1 ? concat(" in ", call.groups, " groups") : "", " ", name_of(call.dtype));
}

std::string what(const Program&, const CollectiveCall& call) {
  return concat(runtime::name_of(call.kind), " between ", call.ranks, " ranks, ", size_text(static_cast<double>(call.bytes)),
                " each");
}

/// What the totals count of one step.
struct StepShare {
  bool product = false;
  std::size_t launches = 1;            ///< where the library computes products
  std::size_t generated_launches = 1;  ///< where generated kernels do
  std::int64_t workspace = 0;
};

StepShare share_of(const Step& step) {
  return runtime::visit_step(
      step, [](const KernelLaunch&) { return StepShare(); },
      [](const MatmulCall& call) {
        const auto& epilogue = call.epilogue;  // one that the library does not know is a launch of its own
        return StepShare{.product = true,
                         .launches = epilogue && !epilogue->library ? std::size_t{2} : std::size_t{1},
                         .generated_launches = call.generated.launches.size() + (epilogue && !epilogue->generated),
                         .workspace = call.generated.workspace_bytes};
      },
      [](const ConvolutionCall& call) {
        return StepShare{
            .product = true, .generated_launches = call.generated.launches.size(), .workspace = call.generated.workspace_bytes};
      },
      [](const CollectiveCall&) { return StepShare(); });
}

struct Sums {
  std::size_t products = 0, launches = 0, generated_launches = 0;
  std::int64_t workspace = 0;
  double flops = 0, product_flops = 0, bytes = 0, seconds = 0, product_seconds = 0;
};

Sums sums_of(const Program& program, std::span<const StepCost> costs, const DeviceRates& rates) {
  Sums sums;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const StepShare share = share_of(program.steps[i]);
    const double seconds = costs[i].seconds(rates);
    sums.products += share.product;
    sums.launches += share.launches;
    sums.generated_launches += share.generated_launches;
    sums.workspace = std::max(sums.workspace, share.workspace);
    sums.flops += costs[i].flops;
    sums.bytes += costs[i].bytes;
    sums.seconds += seconds;
    if (!share.product) continue;
    sums.product_flops += costs[i].flops;
    sums.product_seconds += seconds;
  }
  return sums;
}

void add_line(std::string& text, std::string_view name, const std::string& fact) {
  text += concat("  ", name, std::string(name.size() < 22 ? 22 - name.size() : 1, ' '), fact, "\n");
}

void add_totals(std::string& text, const Program& program, const Sums& sums, const DeviceRates& rates) {
  add_line(text, "launches",
           concat(sums.launches, ": kernels ", sums.launches - sums.products, ", products ", sums.products, " (",
                  sums.generated_launches, " in all where products are generated)"));
  add_line(text, "kernels", concat(program.kernels.size(), " distinct"));
  add_line(text, "flops", concat(flops_text(sums.flops), ", ", flops_text(sums.product_flops), " in products"));
  add_line(text, "bytes moved", size_text(sums.bytes));
  add_line(text, "product workspace", size_text(static_cast<double>(sums.workspace)));
  add_line(text, concat("time on ", rates.name),
           concat(time_text(sums.seconds), " at the least: products ", time_text(sums.product_seconds), ", kernels ",
                  time_text(sums.seconds - sums.product_seconds), "; launches add ",
                  time_text(static_cast<double>(sums.launches) * rates.launch_seconds)));
}

}  // namespace

std::string describe_steps(const Program& program, std::span<const StepCost> costs, const DeviceRates& rates) {
  check_internal(costs.size() == program.steps.size(), "costs of ", costs.size(), " steps for ", program.steps.size());
  std::string text = concat("steps of @", program.name, " for ", to_string(program.target), "\n");
  add_totals(text, program, sums_of(program, costs, rates), rates);
  text += concat("    step        flops        bytes         time  bound by  what\n");
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const StepCost& cost = costs[i];
    const bool computes = cost.flops / rates.flops(cost.dtype) > cost.bytes / rates.copy_bytes;
    const std::string& origin = origin_of(program.steps[i]);
    std::ostringstream line;
    line << "    " << std::setw(4) << i << ' ' << std::setw(12) << flops_text(cost.flops) << ' ' << std::setw(12)
         << size_text(cost.bytes) << ' ' << std::setw(12) << time_text(cost.seconds(rates)) << "  "
         << (computes ? "flops     " : "bytes     ")
         << std::visit([&](const auto& step) { return what(program, step); }, program.steps[i]);
    if (!origin.empty()) line << "  (" << origin << ")";
    text += line.str() + "\n";
  }
  return text;
}

}  // namespace gcomp::codegen
