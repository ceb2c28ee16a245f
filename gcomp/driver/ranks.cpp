#include "gcomp/driver/ranks.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "gcomp/driver/checkpoint_manifest.h"
#include "gcomp/driver/trainer_impl.h"
#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// What is wrong on one rank, as a text: the exit code, the machine, and the message.
std::string error_text(const Error& error, const std::string& host) {
  return concat(static_cast<int>(error.code()), "\n", host, "\n", error.what());
}

struct RankFailure {
  int code = 0;
  std::string host, message;
};

RankFailure parse_failure(const std::string& text) {
  const std::size_t host = text.find('\n') + 1, message = text.find('\n', host) + 1;
  return {std::stoi(text), text.substr(host, message - 1 - host), text.substr(message)};
}

}  // namespace

std::vector<std::string> Ranks::gather(const std::string& text) const {
  if (!several()) return {text};
  const auto count = static_cast<std::size_t>(size());
  std::uint64_t length = text.size();
  std::vector<std::uint64_t> lengths(count);
  communicator_->all_gather(std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)));
  const std::size_t longest = *std::ranges::max_element(lengths);
  std::string own = text, all(longest * count, '\0');
  own.resize(longest);
  if (longest > 0) communicator_->all_gather(bytes_of(own), std::as_writable_bytes(std::span(all)));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < count; ++r) texts.push_back(all.substr(r * longest, lengths[r]));
  return texts;
}

std::string Ranks::from_first(const std::string& text) const {
  if (!several()) return text;
  std::uint64_t length = text.size();
  communicator_->broadcast(std::as_writable_bytes(std::span(&length, 1)), 0);
  std::string shared = text;
  shared.resize(length);
  if (length > 0) communicator_->broadcast(std::as_writable_bytes(std::span(shared)), 0);
  return shared;
}

void Ranks::agree(const std::function<void()>& work) const {
  if (!several()) return work();
  std::exception_ptr own;
  std::string text;
  try {
    work();
  } catch (const Error& error) {
    own = std::current_exception();
    text = error_text(error, communicator_->host());
  }
  const std::vector<std::string> texts = gather(text);
  const auto first = std::ranges::find_if(texts, [](const std::string& text) { return !text.empty(); });
  if (first == texts.end()) return;
  ended_ = true;
  const RankFailure failure = parse_failure(*first);
  const bool all = std::ranges::all_of(
      texts, [&](const std::string& text) { return !text.empty() && parse_failure(text).message == failure.message; });
  if (all) std::rethrow_exception(own);
  const std::string where = concat("rank ", first - texts.begin(), " of ", size(), " (", failure.host, "): ");
  throw Error(static_cast<ExitCode>(failure.code), where + failure.message);
}

RankFailed Ranks::failed(const Error& error) const {
  return {error.code(), concat("rank ", rank(), " of ", size(), " (", communicator_->host(), "): ", error.what())};
}

RankWish Ranks::joined(const RankWish& own) const {
  if (!several()) return own;
  wishes_.resize(static_cast<std::size_t>(size()));
  communicator_->all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(wishes_)));
  RankWish joined;
  for (const RankWish& wish : wishes_) {
    if (joined.end == 0) joined.end = wish.end;
    joined.checkpoint = joined.checkpoint || wish.checkpoint;
  }
  return joined;
}

void Ranks::require_same(const std::string& facts) const {
  const std::vector<std::string> texts = gather(facts);
  for (std::size_t r = 1; r < texts.size(); ++r) {
    const std::vector<ConfigDifference> differences = config_differences(texts[0], texts[r]);
    if (differences.empty()) continue;
    const auto shown = [](const std::string& value) { return value.empty() ? "none" : value; };
    const ConfigDifference& first = differences[0];
    throw UserError(concat("the ranks do not train the same: '", first.field, "' is ", shown(first.now), " on rank ", r, " of ",
                           size(), " and ", shown(first.checkpoint), " on rank 0",
                           differences.size() > 1 ? concat(" (", differences.size() - 1, " more differ)") : ""));
  }
}

Ranks ranks_of(const Trainer& trainer) { return Ranks(trainer.impl().options.device_options.communicator); }

void share_states(const Ranks& ranks, Trainer& trainer) {
  Communicator* communicator = trainer.impl().options.device_options.communicator;
  if (!ranks.several()) return;
  Trainer::Impl& impl = trainer.impl();
  for (const std::string& name : trainer.states()) {
    const auto restored = impl.restored.find(name);
    Tensor value(impl.states.entry(name).type);
    if (restored != impl.restored.end()) value = std::move(restored->second);
    else if (ranks.is_first()) value = impl.memory->read(name);
    communicator->broadcast({value.data(), static_cast<std::size_t>(value.type().bytes())}, 0);
    impl.states.write(name, value);
  }
  impl.restored.clear();
}

}  // namespace gcomp::driver
