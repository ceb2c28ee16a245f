#include "runtime/device.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

#include "ir/base/error.h"
#include "runtime/backend.h"
#include "runtime/collective.h"

namespace gcomp::runtime {

namespace {

constexpr std::string_view kAutomatic = "auto";

std::optional<int> parse_ordinal(std::string_view digits) {
  int ordinal = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  return error == std::errc() && end == digits.data() + digits.size() && ordinal >= 0 ? std::optional(ordinal) : std::nullopt;
}

DeviceChoice choose_best(const DeviceOptions& options) {
  const Backend& fallback = *backends().front();
  std::string reason;
  for (const Backend* backend : backends().subspan(1)) {
    try {
      backend->require_all(options);
      return {backend, concat(backend->name, ": ", backend->presence), options.rank_on_host};
    } catch (const DeviceError& error) {
      // The cause alone: who wants the cure asks for the device, or runs gcomp doctor.
      const std::string text = error.what();
      if (reason.empty()) reason = text.substr(0, text.find(';'));
    }
  }
  return {&fallback, concat(fallback.name, ": ", reason), options.rank_on_host};
}

DeviceChoice choose_alone(DeviceRequest request, const DeviceOptions& options) {
  if (request == DeviceRequest::automatic) return choose_best(options);
  const Backend& backend = backend_of(request);
  try {
    if (backend.require) backend.require(options);
  } catch (const DeviceError& error) {
    throw DeviceError(concat("device ", backend.name, options.gpu ? concat(":", *options.gpu) : "",
                             " cannot be used: ", error.what(), "; or use --device ", backends().front()->name),
                      error.code());
  }
  return {&backend, concat(backend.name, ": as asked"), options.rank_on_host};
}

/// Ranks of lower number on the same machine.
int rank_on_host(Communicator& ranks) {
  const std::vector<std::string> hosts = gather_texts(ranks, ranks.host());
  const auto own = hosts.begin() + ranks.rank();
  return static_cast<int>(std::count(hosts.begin(), own, *own));
}

DeviceChoice choose_together(DeviceRequest request, DeviceOptions options) {
  Communicator& ranks = *options.communicator;
  options.rank_on_host = rank_on_host(ranks);
  DeviceChoice choice;
  agree(ranks, [&] { choice = choose_alone(request, options); });
  const std::vector<std::string> names = gather_texts(ranks, std::string(choice.backend->name));
  const std::vector<std::string> reasons = gather_texts(ranks, concat("(", ranks.host(), ") ", choice.reason));
  const auto other = std::find_if(names.begin(), names.end(), [&](const std::string& name) { return name != names[0]; });
  if (other == names.end()) return choice;
  const auto rank = static_cast<std::size_t>(other - names.begin());
  throw DeviceError(concat("the ranks take devices of two kinds: rank ", rank, " of ", ranks.size(), " ", reasons[rank],
                           ", and rank 0 ", reasons[0], "; give all of them --device ", backends().front()->name,
                           ", or each what --device ", names[0] == backends().front()->name ? *other : names[0], " needs"));
}

}  // namespace

std::string device_names() {
  std::vector<std::string> names;
  for (const Backend* backend : backends()) {
    names.emplace_back(backend->name);
    if (backend->numbered) names.push_back(concat(backend->name, ":N"));
  }
  std::string text(kAutomatic);
  for (std::size_t i = 0; i < names.size(); ++i) text += concat(i + 1 == names.size() ? " or " : ", ", names[i]);
  return text;
}

DeviceName parse_device(std::string_view text) {
  if (text == kAutomatic) return {DeviceRequest::automatic, {}};
  const std::size_t colon = std::min(text.find(':'), text.size());
  for (const Backend* backend : backends()) {
    if (text.substr(0, colon) != backend->name) continue;
    if (colon == text.size()) return {backend->request, {}};
    const auto ordinal = parse_ordinal(text.substr(colon + 1));
    if (backend->numbered && ordinal) return {backend->request, Optional<int>(*ordinal)};
  }
  throw UserError(concat("unknown device '", text, "': expected ", device_names()), ExitCode::usage);
}

DeviceChoice choose_device(DeviceRequest request, const DeviceOptions& options) {
  // A GPU's bits are its own: libraries and generations of GPUs differ.
  if (options.portable_bits && request == DeviceRequest::automatic) request = DeviceRequest::cpu;
  if (options.portable_bits && request != DeviceRequest::cpu)
    throw DeviceError("--portable-bits: results with the same bits on every machine are the CPU's; wanted --device cpu");
  const bool several = options.communicator && options.communicator->size() > 1;
  return several ? choose_together(request, options) : choose_alone(request, options);
}

std::unique_ptr<Executable> Device::load(Program program, std::shared_ptr<StateMemory> states,
                                         std::span<const std::byte> kernel_binary, int shards, Lane lane) {
  check_internal(lane == Lane::main || (program.inputs.empty() && program.outputs.empty()), "program '", program.name,
                 "' is to run beside others, and has inputs or outputs");
  return load_program(std::move(program), std::move(states), kernel_binary, shards, lane);
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
  DeviceOptions placed = options;
  placed.rank_on_host = choice.rank_on_host;
  return choice.backend->open(placed);
}

std::unique_ptr<Device> open_device(DeviceRequest request, const DeviceOptions& options) {
  return open_device(choose_device(request, options), options);
}

}  // namespace gcomp::runtime
