#include "runtime/device.h"

#include <charconv>
#include <cstdlib>

#include "ir/base/error.h"
#include "runtime/backend.h"

namespace gcomp::runtime {

DeviceName parse_device(std::string_view text) {
  if (text == "auto") return {DeviceRequest::automatic, 0};
  if (text == "cpu") return {DeviceRequest::cpu, 0};
  if (text == "cuda") return {DeviceRequest::cuda, 0};
  constexpr std::string_view kGpu = "cuda:";
  if (text.substr(0, kGpu.size()) == kGpu) {
    const std::string_view digits = text.substr(kGpu.size());
    int gpu = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), gpu);
    if (error == std::errc() && end == digits.data() + digits.size() && gpu >= 0) return {DeviceRequest::cuda, gpu};
  }
  throw UserError(concat("unknown device '", text, "': expected auto, cpu, cuda or cuda:N"), ExitCode::usage);
}

namespace {

DeviceChoice choose_best(const DeviceOptions& options) {
  const Backend& fallback = *backends().front();
  std::string reason;
  for (const Backend* backend : backends().subspan(1)) {
    try {
      backend->require_all(options);
      return {backend, concat(backend->name, ": ", backend->presence)};
    } catch (const DeviceError& error) {
      // The cause alone: who wants the cure asks for the device, or runs gcomp doctor.
      const std::string text = error.what();
      if (reason.empty()) reason = text.substr(0, text.find(';'));
    }
  }
  return {&fallback, concat(fallback.name, ": ", reason)};
}

}  // namespace

DeviceChoice choose_device(DeviceRequest request, const DeviceOptions& options) {
  if (request == DeviceRequest::automatic) return choose_best(options);
  const Backend& backend = backend_of(request);
  try {
    if (backend.require) backend.require(options);
  } catch (const DeviceError& error) {
    throw DeviceError(
        concat("device ", backend.name, " cannot be used: ", error.what(), "; or use --device ", backends().front()->name),
        error.code());
  }
  return {&backend, concat(backend.name, ": as asked")};
}

std::filesystem::path default_cache_directory() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache == '/') return std::filesystem::path(cache) / "gcomp";
  const char* home = std::getenv("HOME");
  if (home && *home == '/') return std::filesystem::path(home) / ".cache" / "gcomp";
  return {};
}

std::filesystem::path cache_directory_of(const DeviceOptions& options) {
  return options.cache_directory.empty() ? default_cache_directory() : std::filesystem::path(options.cache_directory.string());
}

std::unique_ptr<Device> open_device(const DeviceChoice& choice, const DeviceOptions& options) {
  return choice.backend->open(options);
}

std::unique_ptr<Device> open_device(DeviceRequest request, const DeviceOptions& options) {
  return open_device(choose_device(request, options), options);
}

}  // namespace gcomp::runtime
