// The names of a graph's values: which are taken, and by whom.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gcomp::ir {

/// Of names that lie elsewhere and neither move nor change while they are in it. Most are numbers, given in order, and are found in
/// that order; the others by open addressing, 16 bytes an entry, and compared with where all 64 bits of their hashes agree.
class NameTable {
 public:
  /// False if the name is taken.
  bool insert(const std::string& name);
  /// Forgets the name, which must be there.
  void erase(std::string_view name);
  /// Where it stands; null where it is free.
  const std::string* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }

 private:
  struct Entry {
    std::size_t hash = 0;
    const std::string* name = nullptr;  ///< null: free
  };

  std::size_t place_of(std::string_view name, std::size_t hash) const;
  void reserve(std::size_t count);
  void rebuild(std::size_t size);

  std::vector<const std::string*> numbers_;  ///< those that are numbers, by number; null: free
  std::vector<Entry> entries_;               ///< a power of two; at most half of them taken
  std::size_t count_ = 0;                    ///< of `entries_`
};

}  // namespace gcomp::ir
