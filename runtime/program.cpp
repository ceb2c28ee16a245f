#include "runtime/program.h"

#include <algorithm>
#include <string>

#include "ir/base/error.h"

namespace gcomp::runtime {
namespace {

bool is_architecture(std::string_view text) {
  if (text.substr(0, 3) != "sm_" || text.size() < 5 || text.size() > 8) return false;
  const auto digits = std::find_if_not(text.begin() + 3, text.end(), [](char c) { return c >= '0' && c <= '9'; });
  const auto suffix = static_cast<std::size_t>(text.end() - digits);  // sm_90a, sm_100f
  return digits - text.begin() >= 5 && (suffix == 0 || (suffix == 1 && (*digits == 'a' || *digits == 'f')));
}

}  // namespace

std::string to_string(const Target& target) {
  if (target.kind == TargetKind::cpu) return "cpu";
  return target.architecture.empty() ? "cuda" : "cuda:" + target.architecture;
}

Target parse_target(std::string_view text) {
  if (text == "cpu") return {};
  constexpr std::string_view kCuda = "cuda:";
  if (text.substr(0, kCuda.size()) == kCuda && is_architecture(text.substr(kCuda.size()))) {
    std::string architecture(text.substr(kCuda.size()));
    if (std::stoi(architecture.substr(3)) < kOldestArchitecture)
      throw UserError(
          concat("target '", text, "': gcomp needs sm_", kOldestArchitecture, " (Turing, 2018) or newer, such as cuda:sm_90"),
          ExitCode::usage);
    return {TargetKind::cuda, std::move(architecture)};
  }
  throw UserError(concat("target '", text, "' is unknown; wanted cpu, or cuda:ARCHITECTURE such as cuda:sm_90"), ExitCode::usage);
}

std::optional<std::size_t> find_port(const std::vector<Port>& ports, Role role) {
  const auto found = std::find_if(ports.begin(), ports.end(), [&](const Port& port) { return port.role == role; });
  return found == ports.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - ports.begin()));
}

const std::string& origin_of(const Step& step) {
  return *visit_step(
      step, [](const KernelLaunch& launch) { return &launch.origin; }, [](const MatmulCall& call) { return &call.origin; },
      [](const ConvolutionCall& call) { return &call.origin; });
}

int fault_of(const Step& step) {
  return visit_step(
      step, [](const KernelLaunch& launch) { return launch.fault; },
      [](const MatmulCall&) { return 0; },  // nor does its epilogue raise any (runtime/validate.h)
      [](const ConvolutionCall&) { return 0; });
}

std::int64_t bias_elements(const MatmulCall& call, EpilogueKind kind) {
  return kind == EpilogueKind::bias_gradient_a ? call.m : call.n;
}

}  // namespace gcomp::runtime
