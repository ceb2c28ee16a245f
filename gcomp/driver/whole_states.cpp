#include "gcomp/driver/whole_states.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "ir/base/error.h"

namespace gcomp::driver {

using passes::ShardedState;
using runtime::StateEntry;
using runtime::StateRole;

WholeStates::WholeStates(std::shared_ptr<runtime::StateMemory> memory, std::vector<ShardedState> sharded,
                         Communicator* communicator, passes::Sharding sharding)
    : memory_(std::move(memory)), sharded_(std::move(sharded)), communicator_(communicator), sharding_(sharding) {
  std::erase_if(sharded_, [&](const ShardedState& one) {
    return !memory_->contains(one.own) || memory_->entry(one.own).role == StateRole::scratch;
  });
  check_internal(sharded_.empty() || communicator_, "a training of one process has shares of states");
}

const ShardedState* WholeStates::sharded(std::string_view name) const {
  const auto found = std::ranges::find(sharded_, name, &ShardedState::name);
  return found == sharded_.end() ? nullptr : &*found;
}

std::vector<const ShardedState*> WholeStates::held_in(std::string_view own) const {
  std::vector<const ShardedState*> held;
  for (const ShardedState& one : sharded_)
    if (one.own == own) held.push_back(&one);
  return held;
}

/// Of parameters each rank has the whole too, as new as the shares, unless the step itself gathers them.
const ShardedState* WholeStates::shares_of(std::string_view name) const {
  const ShardedState* one = sharded(name);
  const bool is_whole_too =
      one && sharding_ != passes::Sharding::parameters && memory_->entry(one->own).role == StateRole::parameter;
  return is_whole_too ? nullptr : one;
}

bool WholeStates::any_in_shares() const {
  return std::ranges::any_of(sharded_, [&](const ShardedState& one) { return shares_of(one.name) != nullptr; });
}

std::vector<StateEntry> WholeStates::entries() const {
  std::vector<StateEntry> entries;
  std::set<std::string, std::less<>> told;
  const auto tell = [&](std::string_view name, const StateEntry& entry) {
    if (told.emplace(name).second) entries.push_back(entry);
  };
  for (const StateEntry& entry : memory_->entries()) {
    const std::vector<const ShardedState*> held = held_in(entry.name);
    if (held.empty()) tell(entry.name, entry);
    for (const ShardedState* one : held) {
      StateEntry whole = entry;
      whole.name = one->name;
      whole.type = one->type;
      tell(one->name, whole);
    }
  }
  return entries;
}

bool WholeStates::contains(std::string_view name) const {
  return sharded(name) || (memory_->contains(name) && held_in(name).empty());
}

StateEntry WholeStates::entry(std::string_view name) const {
  const ShardedState* one = sharded(name);
  if (!one) return memory_->entry(name);
  StateEntry entry = memory_->entry(one->own);
  entry.name = one->name;
  entry.type = one->type;
  return entry;
}

Tensor WholeStates::gathered(const ShardedState& one) const {
  Tensor own = memory_->read(one.own);
  if (one.owner) {
    communicator_->broadcast(own.bytes(), static_cast<int>(*one.owner));
    return own;
  }
  Tensor all(one.type.dtype, {one.share * communicator_->size()});
  communicator_->all_gather(own.bytes(), all.bytes());
  Tensor whole(one.type);
  std::memcpy(whole.data(), all.data(), whole.bytes().size());
  return whole;
}

Tensor WholeStates::read(std::string_view name) const {
  if (const auto kept = collected_.find(name); kept != collected_.end()) return kept->second;
  const ShardedState* one = shares_of(name);
  return one ? gathered(*one) : memory_->read(name);
}

void WholeStates::write_share(const ShardedState& one, const Tensor& whole) {
  check_user(whole.type() == one.type, "state '", one.name, "' is ", to_string(one.type), ", the value written to it is ",
             to_string(whole.type()));
  const auto size = static_cast<std::int64_t>(size_of(one.type.dtype));
  const std::int64_t begin = one.begin(rank()), end = one.end(rank());
  if (one.owner && begin == end) return;  // another one's lies there
  Tensor own(one.own_type());
  if (end > begin) std::memcpy(own.data(), whole.data() + begin * size, static_cast<std::size_t>((end - begin) * size));
  memory_->write(one.own, own);
}

void WholeStates::write(std::string_view name, const Tensor& value) {
  const ShardedState* one = sharded(name);
  if (!shares_of(name)) memory_->write(name, value);
  if (one) write_share(*one, value);
}

std::vector<std::string> WholeStates::unwritten() const {
  // A whole copy that is unwritten beside a share that is not was bound later, by a program that takes it whole.
  std::vector<std::string> names;
  for (const std::string& name : memory_->unwritten()) {
    const std::vector<const ShardedState*> held = held_in(name);
    for (const ShardedState* one : held) names.push_back(one->name);
    if (held.empty() && !sharded(name)) names.push_back(name);
  }
  return names;
}

void WholeStates::gather_copies(std::span<const std::string> names) {
  for (const std::string& name : names)
    if (const ShardedState* one = shares_of(name); one && memory_->contains(name)) memory_->write(name, gathered(*one));
}

void WholeStates::collect(std::span<const std::string> names) {
  for (const std::string& name : names) {
    const ShardedState* one = shares_of(name);
    if (!one) continue;
    Tensor whole = gathered(*one);
    if (rank() == 0) collected_.insert_or_assign(name, std::move(whole));
  }
}

}  // namespace gcomp::driver
