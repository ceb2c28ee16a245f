// The kinds of target there are.
#include "runtime/targets.h"

#include <algorithm>

#include "ir/base/error.h"
#include "runtime/backend.h"
#include "runtime/cpu/backend.h"
#include "runtime/cuda/backend.h"

namespace gcomp::runtime {
namespace {

constexpr const Backend* kBackends[] = {&cpu::kBackend, &cuda::kBackend};

}  // namespace

std::span<const Backend* const> backends() { return kBackends; }

const Backend& backend_of(const Target& target) {
  const auto number = static_cast<std::size_t>(target.kind);
  check_internal(number < std::size(kBackends) && kBackends[number]->kind == target.kind, "a kind of target without a backend");
  return *kBackends[number];
}

const Backend& backend_of(DeviceRequest request) {
  const auto found =
      std::find_if(std::begin(kBackends), std::end(kBackends), [&](const Backend* b) { return b->request == request; });
  check_internal(found != std::end(kBackends), "a request for a device without a backend");
  return **found;
}

std::string to_string(const Target& target) {
  const std::string name(backend_of(target).name);
  return target.architecture.empty() ? name : concat(name, ":", target.architecture);
}

Target parse_target(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  std::string forms;
  for (const Backend* backend : kBackends) {
    const bool plain = colon == text.npos, named = name == backend->name;
    if (named && plain && !backend->has_architecture) return {backend->kind, ""};
    if (named && !plain && backend->has_architecture && backend->has_architecture(text.substr(colon + 1)))
      return {backend->kind, std::string(text.substr(colon + 1))};
    forms += concat(forms.empty() ? "" : ", or ", backend->form);
  }
  throw UserError(concat("target '", text, "' is unknown; wanted ", forms), ExitCode::usage);
}

Target stored_target(std::int64_t kind, std::string architecture) {
  check_user(kind >= 0 && kind < static_cast<std::int64_t>(std::size(kBackends)), "target ", kind, " is unknown");
  return {static_cast<TargetKind>(kind), std::move(architecture)};
}

std::unique_ptr<Device> open_device(TargetKind kind, const DeviceOptions& options) {
  return backend_of(Target{kind, ""}).open(options);
}

}  // namespace gcomp::runtime
