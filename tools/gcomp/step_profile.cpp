#include "tools/gcomp/step_profile.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/units.h"

namespace gcomp::tools {
namespace {

std::string matmul_name(const runtime::MatmulCall& call) {
  std::int64_t matrices = 1;
  for (const std::int64_t extent : call.batch) matrices *= extent;
  return concat("matmul ", matrices > 1 ? concat(matrices, " x ") : "", call.m, "x", call.n, "x", call.k);
}

std::string convolution_name(const runtime::ConvolutionCall& call) {
  constexpr const char* kKinds[] = {"convolution", "convolution, input gradient", "convolution, weight gradient"};
  return kKinds[static_cast<std::size_t>(call.kind)];
}

/// What a step is called, and whether it counts as a product, whose speed is that of its arithmetic.
struct StepLabel {
  std::string what;
  bool product = false;
};

StepLabel label_of(const runtime::Program& program, const runtime::Step& step, const ProfiledDevice& device) {
  return runtime::visit_step(
      step,
      [&](const runtime::KernelLaunch& launch) {
        return StepLabel{program.kernels[static_cast<std::size_t>(kernel_of(launch, device.tf32).kernel)].name, false};
      },
      [](const runtime::MatmulCall& call) {
        return StepLabel{matmul_name(call), true};
      },
      [](const runtime::ConvolutionCall& call) {
        return StepLabel{convolution_name(call), true};
      },
      [&](const runtime::AttentionCall& call) {
        if (!call.generated_is_faster || device.prefer_cudnn) return StepLabel{std::string(name_of(call.kind)), true};
        return StepLabel{program.kernels[static_cast<std::size_t>(call.generated.back().kernel)].name, false};
      },
      [](const runtime::CollectiveCall& call) {
        return StepLabel{std::string(name_of(call.kind)), false};
      });
}

/// 0 where nothing was measured.
double rate(double work, double time) { return time > 0 ? work / time : 0; }

}  // namespace

std::vector<ProfiledStep> profile_of(const runtime::Program& program, std::span<const codegen::StepCost> costs,
                                     std::span<const std::int64_t> nanoseconds, std::int64_t runs, const ProfiledDevice& device) {
  check_internal(costs.size() == program.steps.size() && nanoseconds.size() == program.steps.size(), "profile of ",
                 program.steps.size(), " steps from ", costs.size(), " costs and ", nanoseconds.size(), " times");
  std::vector<ProfiledStep> profile;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const double microseconds = static_cast<double>(nanoseconds[i]) / 1e3 / static_cast<double>(runs);
    StepLabel label = label_of(program, program.steps[i], device);
    profile.push_back({std::move(label.what), origin_of(program.steps[i]), microseconds, costs[i], label.product});
  }
  std::stable_sort(profile.begin(), profile.end(),
                   [](const ProfiledStep& a, const ProfiledStep& b) { return a.microseconds > b.microseconds; });
  return profile;
}

void report_profile(const Console& console, const std::vector<ProfiledStep>& profile) {
  double total = 0;
  for (const ProfiledStep& step : profile) total += step.microseconds;
  for (const ProfiledStep& step : profile) {
    const double seconds = step.microseconds * 1e-6;
    const std::string speed =
        step.product ? rate_text(rate(step.cost.flops, seconds), "FLOP/s") : rate_text(rate(step.cost.bytes, seconds), "B/s");
    char text[96];
    std::snprintf(text, sizeof text, "%11s %7s  %-14s  ", time_text(seconds).c_str(),
                  percent_text(rate(step.microseconds, total)).c_str(), speed.c_str());
    console.result(concat(text, step.what, "  ", step.origin));
  }
}

nlohmann::json to_json(const std::vector<ProfiledStep>& profile) {
  nlohmann::json list = nlohmann::json::array();
  for (const ProfiledStep& step : profile)
    list.push_back({{"what", step.what},
                    {"origin", step.origin},
                    {"us", step.microseconds},
                    {"bytes", step.cost.bytes},
                    {"flops", step.cost.flops},
                    {"product", step.product}});
  return list;
}

}  // namespace gcomp::tools
