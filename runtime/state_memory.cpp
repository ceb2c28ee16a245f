#include "runtime/state_memory.h"

#include <algorithm>

#include "ir/base/error.h"

namespace gcomp::runtime {
namespace {

/// Single-character insertions, deletions and substitutions from one to the other.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t substituted = diagonal + (from[i - 1] != to[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[to.size()];
}

}  // namespace

std::size_t StateMemory::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found != index_.end()) return found->second;
  if (entries_.empty()) throw UserError(concat("state '", name, "' is unknown: the program has no states"));
  const auto nearest = std::min_element(entries_.begin(), entries_.end(), [&](const StateEntry& a, const StateEntry& b) {
    return edit_distance(name, a.name) < edit_distance(name, b.name);
  });
  throw UserError(concat("state '", name, "' is unknown: the nearest of ", entries_.size(), " states is '", nearest->name, "'"));
}

void StateMemory::add_new_states(const Program& program) {
  for (const State& state : program.states) {
    const Buffer& buffer = program.buffers.at(static_cast<std::size_t>(state.buffer));
    const auto found = index_.find(buffer.name);
    if (found == index_.end()) {
      index_.emplace(buffer.name, entries_.size());
      entries_.push_back({.name = buffer.name, .type = buffer.type, .role = state.role, .fill = state.fill});
      continue;
    }
    const StateEntry& known = entries_[found->second];
    check_user(known.type == buffer.type, "program '", program.name, "': state '", buffer.name, "' is ", to_string(buffer.type),
               ", but the model's other programs hold it as ", to_string(known.type));
  }
}

void StateMemory::bind(const Program& program) {
  const std::size_t first = entries_.size();
  add_new_states(program);
  if (first == entries_.size()) return;
  allocate(first);
  for (std::size_t i = first; i < entries_.size(); ++i) {
    const StateEntry& entry = entries_[i];
    if (!entry.fill || *entry.fill == 0.0) continue;
    const double value[] = {*entry.fill};
    copy_to_device(i, Tensor::of(entry.type.dtype, entry.type.shape, value).bytes());
  }
}

Tensor StateMemory::read(std::string_view name) const {
  const std::size_t index = find(name);
  Tensor value(entries_[index].type);
  copy_from_device(index, value.bytes());
  return value;
}

void StateMemory::read(std::string_view name, std::span<std::byte> host) const {
  const std::size_t index = find(name);
  check_internal(host.size() == static_cast<std::size_t>(entries_[index].type.bytes()), "state '", name, "' has ",
                 entries_[index].type.bytes(), " bytes, the memory for it ", host.size());
  copy_from_device(index, host);
}

void StateMemory::write(std::string_view name, const Tensor& value) {
  const std::size_t index = find(name);
  StateEntry& entry = entries_[index];
  check_user(entry.type == value.type(), "state '", name, "' is ", to_string(entry.type), ", the value written to it is ",
             to_string(value.type()));
  copy_to_device(index, value.bytes());
  entry.written = true;
}

std::vector<std::string> StateMemory::unwritten() const {
  std::vector<std::string> names;
  for (const StateEntry& entry : entries_)
    if (!entry.fill && !entry.written) names.push_back(entry.name);
  return names;
}

std::int64_t StateMemory::bytes() const {
  std::int64_t total = 0;
  for (const StateEntry& entry : entries_) total += entry.type.bytes();
  return total;
}

}  // namespace gcomp::runtime
