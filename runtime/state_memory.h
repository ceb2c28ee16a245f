// The states of one model on one device: parameters, running statistics, optimizer moments, counters. Programs of the same model
// (its training step, its forward pass) bind the same states by name and so see each other's writes.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/tensor.h"
#include "runtime/program.h"

namespace gcomp::runtime {

struct StateEntry {
  std::string name;
  TensorType type;
  StateRole role = StateRole::parameter;
  std::optional<double> fill;  ///< initial value of every element; without it the state is zero until the host writes it
  bool written = false;        ///< by the host, since it was bound

  bool operator==(const StateEntry&) const = default;
};

/// Device memory behind names. The base class checks; a device's subclass allocates and copies.
class StateMemory {
 public:
  virtual ~StateMemory() = default;
  StateMemory(const StateMemory&) = delete;
  StateMemory& operator=(const StateMemory&) = delete;

  /// Adds the program's states that are not there yet, each filled with its initial value or zeros. Throws UserError where a
  /// state of the same name has another type, DeviceError (exit 7) where memory runs out.
  void bind(const Program& program);

  /// In the order in which they were bound.
  std::span<const StateEntry> entries() const { return entries_; }
  bool contains(std::string_view name) const { return index_.find(name) != index_.end(); }
  /// Throws UserError naming the nearest state where there is none of this name.
  const StateEntry& entry(std::string_view name) const { return entries_[find(name)]; }

  /// A copy of the state; waits for the device.
  Tensor read(std::string_view name) const;
  /// The same into memory of the caller, as many bytes as the state has.
  void read(std::string_view name, std::span<std::byte> host) const;
  /// Throws UserError where the name is unknown or the type differs.
  void write(std::string_view name, const Tensor& value);
  /// Names of states that have no initial value and that the host has not written.
  std::vector<std::string> unwritten() const;
  std::int64_t bytes() const;

 protected:
  StateMemory() = default;
  /// The entry's place in entries().
  std::size_t find(std::string_view name) const;
  /// Memory for the entries from `first` to the end, zero-filled.
  virtual void allocate(std::size_t first) = 0;
  virtual void copy_from_device(std::size_t entry, std::span<std::byte> host) const = 0;
  virtual void copy_to_device(std::size_t entry, std::span<const std::byte> host) = 0;

 private:
  void add_new_states(const Program& program);

  std::vector<StateEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace gcomp::runtime
