#include "passes/memory/movable_order.h"

#include "ir/base/error.h"

namespace gcomp::passes {
namespace {

constexpr int kTagBits = 62;
constexpr std::uint64_t kTags = std::uint64_t{1} << kTagBits;
constexpr std::uint64_t kStep = std::uint64_t{1} << 30;  // between neighbours at first

}  // namespace

MovableOrder::MovableOrder(const std::vector<int>& sequence, std::size_t size) : places_(size) {
  std::uint64_t tag = kStep;
  int last = -1;
  for (int a : sequence) {
    at(a) = {tag, last, -1};
    (last < 0 ? first_ : at(last).next) = a;
    last = a;
    tag += kStep;
  }
}

void MovableOrder::erase(int a) {
  const Place place = at(a);
  (place.previous < 0 ? first_ : at(place.previous).next) = place.next;
  if (place.next >= 0) at(place.next).previous = place.previous;
}

bool MovableOrder::has_room_after(int a) const {
  const int next = at(a).next;
  return (next < 0 ? kTags : at(next).tag) - at(a).tag > 1;
}

void MovableOrder::insert_after(int where, int a) {
  if (!has_room_after(where)) make_room(where);
  const int next = at(where).next;
  const std::uint64_t low = at(where).tag, high = next < 0 ? std::min(low + 2 * kStep, kTags) : at(next).tag;
  at(a) = {low + (high - low) / 2, where, next};
  at(where).next = a;
  if (next >= 0) at(next).previous = a;
}

/// Spreads the elements of the smallest range of 2^k tags around one that holds at most (4/3)^k of them.
void MovableOrder::make_room(int around) {
  int low = around, high = around;
  std::uint64_t count = 1;
  double most = 1;
  for (int bits = 1; bits <= kTagBits; ++bits) {
    most *= 4.0 / 3.0;
    const std::uint64_t start = at(around).tag >> bits << bits, size = std::uint64_t{1} << bits;
    for (; at(low).previous >= 0 && at(at(low).previous).tag >= start; ++count) low = at(low).previous;
    for (; at(high).next >= 0 && at(at(high).next).tag - start < size; ++count) high = at(high).next;
    if (static_cast<double>(count) > most || size / count < 2) continue;
    std::uint64_t tag = start;
    for (int a = low;; a = at(a).next) {
      at(a).tag = tag;
      tag += size / count;
      if (a == high) return;
    }
  }
  throw InternalError("an order of units has no tags left");
}

}  // namespace gcomp::passes
