#include "codegen/describe_steps.h"

#include <array>
#include <iomanip>
#include <locale>
#include <sstream>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/units.h"

namespace gcomp::codegen {
namespace {

using runtime::AttentionCall;
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

std::string what(const Program& program, const runtime::GridKernel& launched) {
  return concat(program.kernels[static_cast<std::size_t>(launched.kernel)].name, ", ", launched.grid.blocks, " x ",
                launched.grid.threads);
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

std::string what(const Program& program, const AttentionCall& call) {
  std::string before;
  const auto name = [&](const KernelLaunch& launch) { return program.kernels[static_cast<std::size_t>(launch.kernel)].name; };
  for (std::size_t i = 0; i + 1 < call.generated.size(); ++i) before += concat(name(call.generated[i]), ", ");
  const std::string last = name(call.generated.back());
  const std::string shape = concat(" [", extents_text(call.batch), "] ", call.queries, "x", call.keys, ", ", call.width,
                                   call.width == call.value_width ? "" : concat(" and ", call.value_width),
                                   call.causal ? ", causal " : " ", name_of(call.dtype));
  if (call.generated_is_faster)
    return concat(last, before.empty() ? ", " : concat(" after ", before), runtime::name_of(call.kind), shape);
  return concat(runtime::name_of(call.kind), shape, ", else ", before, last);
}

std::string what(const Program&, const CollectiveCall& call) {
  return concat(runtime::name_of(call.kind), " between ", call.ranks, " ranks, ", size_text(static_cast<double>(call.bytes)),
                " each");
}

std::string what(const Program& program, const Step& step, bool tf32) {
  return runtime::visit_step(
      step, [&](const KernelLaunch& launch) { return what(program, kernel_of(launch, tf32)); },
      [&](const MatmulCall& call) { return what(program, call); }, [&](const ConvolutionCall& call) { return what(program, call); },
      [&](const AttentionCall& call) { return what(program, call); },
      [&](const CollectiveCall& call) { return what(program, call); });
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
      [](const AttentionCall& call) {
        const std::size_t generated = call.generated.size();
        return StepShare{.launches = call.generated_is_faster ? generated : std::size_t{1}, .generated_launches = generated};
      },
      [](const CollectiveCall&) { return StepShare(); });
}

struct Sums {
  std::size_t steps = 0, products = 0, launches = 0, generated_launches = 0;
  std::int64_t workspace = 0;
  double flops = 0, product_flops = 0, bytes = 0, floor = 0, product_floor = 0, seconds = 0;

  void add(const StepShare& share, const StepCost& cost, const StepEstimate& estimate) {
    ++steps;
    products += share.product;
    launches += share.launches;
    generated_launches += share.generated_launches;
    workspace = std::max(workspace, share.workspace);
    flops += cost.flops;
    bytes += cost.bytes;
    floor += estimate.floor;
    seconds += estimate.seconds;
    if (!share.product) return;
    product_flops += cost.flops;
    product_floor += estimate.floor;
  }
};

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
           concat(time_text(sums.floor), " at the least: products ", time_text(sums.product_floor), ", kernels ",
                  time_text(sums.floor - sums.product_floor), "; launches add ",
                  time_text(static_cast<double>(sums.launches) * rates.launch_seconds)));
  add_line(text, "estimate", concat(time_text(sums.seconds), " as it is written, launches included"));
}

/// Numbers right-aligned in columns of twelve.
class Row {
 public:
  Row() { line_.imbue(std::locale::classic()); }
  Row& add(const std::string& number, int width = 12) {
    line_ << std::setw(width) << number << ' ';
    return *this;
  }
  std::string end(const std::string& text) {
    line_ << ' ' << text << "\n";
    return line_.str();
  }

 private:
  std::ostringstream line_;
};

void add_families(std::string& text, const std::array<Sums, kFamilies>& families) {
  text += Row().add("    launches").add("flops").add("bytes").add("least").add("estimate").end("family");
  for (std::size_t f = 0; f < kFamilies; ++f) {
    const Sums& sums = families[f];
    if (sums.steps == 0) continue;
    text += Row()
                .add(std::to_string(sums.launches))
                .add(flops_text(sums.flops))
                .add(size_text(sums.bytes))
                .add(time_text(sums.floor))
                .add(time_text(sums.seconds))
                .end(std::string(name_of(static_cast<Family>(f))));
  }
}

std::string registers_text(const Program& program, const EstimateOptions& options) {
  return options.resources.size() == program.kernels.size() ? "as ptxas says" : "not known, taken as 48 a thread";
}

}  // namespace

std::string describe_steps(const Program& program, std::span<const StepCost> costs, const DeviceRates& rates,
                           const EstimateOptions& options) {
  check_internal(costs.size() == program.steps.size(), "costs of ", costs.size(), " steps for ", program.steps.size());
  std::string text = concat("steps of @", program.name, " for ", to_string(program.target), "\n"), lines;
  Sums sums;
  std::array<Sums, kFamilies> families;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const StepCost& cost = costs[i];
    const StepEstimate made = estimate(program.steps[i], cost, rates, options);
    const StepShare share = share_of(program.steps[i]);
    sums.add(share, cost, made);
    families[static_cast<std::size_t>(cost.work.family)].add(share, cost, made);
    const std::string& origin = origin_of(program.steps[i]);
    lines += Row()
                 .add(std::to_string(i), 8)
                 .add(flops_text(cost.flops))
                 .add(size_text(cost.bytes))
                 .add(time_text(made.floor))
                 .add(time_text(made.seconds))
                 .end(concat(name_of(made.limit), std::string(7 - name_of(made.limit).size(), ' '),
                             what(program, program.steps[i], options.tf32), origin.empty() ? "" : concat("  (", origin, ")")));
  }
  add_totals(text, program, sums, rates);
  add_line(text, "registers", registers_text(program, options));
  add_families(text, families);
  text += Row().add("step", 8).add("flops").add("bytes").add("least").add("estimate").end("limit  what") + lines;
  return text;
}

}  // namespace gcomp::codegen
