#include "gcomp/driver/ranks.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "gcomp/driver/checkpoint_manifest.h"
#include "gcomp/driver/trainer_impl.h"
#include "ir/base/error.h"
#include "runtime/collective.h"

namespace gcomp::driver {

std::vector<std::string> Ranks::gather(const std::string& text) const {
  return several() ? runtime::gather_texts(*communicator_, text) : std::vector<std::string>{text};
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
  try {
    runtime::agree(*communicator_, [&] {
      try {
        work();
      } catch (const Error&) {
        own = std::current_exception();
        throw;
      }
    });
  } catch (const runtime::AgreedFailure& failure) {
    ended_ = true;
    if (own && failure.by_all()) std::rethrow_exception(own);
    throw;
  }
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

void share_choices(runtime::Device& device, Communicator* communicator, const std::function<void()>& time) {
  if (!communicator || communicator->size() == 1) return;
  const std::vector<std::string> of = runtime::gather_texts(*communicator, device.timed_choices().of);
  const auto shown = [&](std::size_t rank) { return of[rank].empty() ? "times nothing" : concat("times products on ", of[rank]); };
  for (std::size_t r = 1; r < of.size(); ++r)
    if (of[r] != of[0])
      throw UserError(concat("--tune: rank ", r, " of ", of.size(), " ", shown(r), ", and rank 0 ", shown(0),
                             "; what ranks compute has the same bits only where these are the same"));
  if (of[0].empty()) return;
  const bool first = communicator->rank() == 0;
  runtime::agree(*communicator, [&] {
    if (first) time();
  });
  const std::string choices = runtime::gather_texts(*communicator, first ? runtime::to_text(device.timed_choices()) : "")[0];
  if (!first) device.follow_choices(runtime::parse_timed_choices(choices));
}

RankOf rank_of(const runtime::DeviceOptions& options, passes::Sharding sharding) {
  const Communicator* communicator = options.communicator;
  if (!communicator) return {};
  return {communicator->rank(), communicator->size(), passes::takes_turns(sharding)};
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
