// A sequence of numbers 0 .. n-1 of which any two can be compared, and any one moved, without touching the others.
//
// A list whose elements carry ascending tags. Where two neighbours leave no tag between them, the smallest range of tags around
// them that is sparse enough is spread evenly (Bender et al., "Two simplified algorithms for maintaining order in a list", 2002).
#pragma once

#include <cstdint>
#include <vector>

namespace gcomp::passes {

class MovableOrder {
 public:
  MovableOrder() = default;
  /// The numbers of `sequence`, each below `size` and there once.
  MovableOrder(const std::vector<int>& sequence, std::size_t size);

  bool before(int a, int b) const { return at(a).tag < at(b).tag; }
  /// -1 at the ends.
  int first() const { return first_; }
  int next(int a) const { return at(a).next; }

  void erase(int a);
  void insert_after(int where, int a);
  void move_after(int where, int a) {
    erase(a);
    insert_after(where, a);
  }

 private:
  struct Place {
    std::uint64_t tag = 0;
    int previous = -1, next = -1;
  };

  Place& at(int a) { return places_[static_cast<std::size_t>(a)]; }
  const Place& at(int a) const { return places_[static_cast<std::size_t>(a)]; }
  bool has_room_after(int a) const;
  void make_room(int around);

  std::vector<Place> places_;
  int first_ = -1;
};

}  // namespace gcomp::passes
