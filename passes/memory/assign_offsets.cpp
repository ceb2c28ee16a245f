#include "passes/memory/assign_offsets.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace gcomp::passes {
namespace {

enum class Fit : std::uint8_t { first, best };
using Order = std::vector<int>;

/// A range that has its offset; kept sorted by offset.
struct Placed {
  std::int64_t offset, end;
  int first, last;
};

std::int64_t find_gap(const std::vector<Placed>& placed, const LiveRange& range, Fit fit) {
  std::int64_t top = 0, best = -1, best_slack = 0;
  for (const Placed& p : placed) {
    if (p.first > range.last || p.last < range.first) continue;
    const std::int64_t slack = p.offset - top - range.bytes;
    if (slack >= 0 && (best < 0 || slack < best_slack)) {
      best = top;
      best_slack = slack;
      if (fit == Fit::first || slack == 0) break;
    }
    top = std::max(top, p.end);
  }
  return best < 0 ? top : best;
}

OffsetAssignment place(const std::vector<LiveRange>& ranges, const Order& order, Fit fit) {
  OffsetAssignment assignment{std::vector<std::int64_t>(ranges.size()), 0};
  std::vector<Placed> placed;
  placed.reserve(order.size());
  for (int number : order) {
    const LiveRange& range = ranges[static_cast<std::size_t>(number)];
    const std::int64_t offset = find_gap(placed, range, fit);
    assignment.offsets[static_cast<std::size_t>(number)] = offset;
    assignment.bytes = std::max(assignment.bytes, offset + range.bytes);
    auto at = std::upper_bound(placed.begin(), placed.end(), offset, [](std::int64_t o, const Placed& p) { return o < p.offset; });
    placed.insert(at, {offset, offset + range.bytes, range.first, range.last});
  }
  return assignment;
}

/// The orders to start from; ties keep the ranges' own order, so that equal inputs give equal packings.
std::vector<Order> first_orders(const std::vector<LiveRange>& ranges) {
  Order all;
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (ranges[i].bytes > 0) all.push_back(static_cast<int>(i));
  auto at = [&](int i) -> const LiveRange& { return ranges[static_cast<std::size_t>(i)]; };
  auto duration = [&](int i) { return static_cast<std::int64_t>(at(i).last) - at(i).first + 1; };
  auto area = [&](int i) { return static_cast<double>(at(i).bytes) * static_cast<double>(duration(i)); };
  auto sorted = [&](auto less) {
    Order order = all;
    std::stable_sort(order.begin(), order.end(), less);
    return order;
  };
  return {sorted([&](int a, int b) { return area(a) > area(b); }),
          sorted([&](int a, int b) { return at(a).bytes != at(b).bytes ? at(a).bytes > at(b).bytes : duration(a) > duration(b); }),
          sorted([&](int a, int b) { return duration(a) != duration(b) ? duration(a) > duration(b) : at(a).bytes > at(b).bytes; }),
          sorted([&](int a, int b) { return at(a).first != at(b).first ? at(a).first < at(b).first : duration(a) > duration(b); })};
}

/// Moves one range that ends at the top to an earlier turn, and at times two others anywhere.
void perturb(Order& order, const OffsetAssignment& assignment, const std::vector<LiveRange>& ranges, std::mt19937& random) {
  std::vector<std::size_t> tops;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto number = static_cast<std::size_t>(order[i]);
    if (assignment.offsets[number] + ranges[number].bytes == assignment.bytes) tops.push_back(i);
  }
  auto move_forward = [&](std::size_t from) {
    const std::size_t to = random() % (from + 1);
    std::rotate(order.begin() + static_cast<std::ptrdiff_t>(to), order.begin() + static_cast<std::ptrdiff_t>(from),
                order.begin() + static_cast<std::ptrdiff_t>(from) + 1);
  };
  if (!tops.empty()) move_forward(tops[random() % tops.size()]);
  if (tops.empty() || random() % 4 == 0) std::swap(order[random() % order.size()], order[random() % order.size()]);
}

/// Memory that no range is using, as time passes.
class FreeGaps {
 public:
  /// Takes the smallest gap that fits, and of those the lowest; at the top where none does.
  std::int64_t take(std::int64_t bytes) {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit == by_size_.end()) return take_top(bytes);
    const auto [size, offset] = *fit;
    erase(offset, size);
    if (size > bytes) insert(offset + bytes, size - bytes);
    return offset;
  }

  void give_back(std::int64_t offset, std::int64_t bytes) {
    auto after = by_offset_.lower_bound(offset);
    if (after != by_offset_.end() && after->first == offset + bytes) {
      const std::int64_t size = after->second;
      erase(offset + bytes, size);
      bytes += size;
    }
    after = by_offset_.lower_bound(offset);
    if (after != by_offset_.begin()) {
      const auto [start, size] = *std::prev(after);
      if (start + size == offset) {
        erase(start, size);
        offset = start;
        bytes += size;
      }
    }
    insert(offset, bytes);
  }

  std::int64_t top() const { return top_; }

 private:
  std::int64_t take_top(std::int64_t bytes) {
    std::int64_t offset = top_;
    if (!by_offset_.empty() && by_offset_.rbegin()->first + by_offset_.rbegin()->second == top_) {
      const auto [start, size] = *by_offset_.rbegin();
      offset = start;
      erase(start, size);
    }
    top_ = offset + bytes;
    return offset;
  }

  void insert(std::int64_t offset, std::int64_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }

  void erase(std::int64_t offset, std::int64_t bytes) {
    by_offset_.erase(offset);
    by_size_.erase({bytes, offset});
  }

  std::map<std::int64_t, std::int64_t> by_offset_;
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;
  std::int64_t top_ = 0;
};

/// Time for many ranges: a step costs the logarithm of their number.
OffsetAssignment place_in_time(const std::vector<LiveRange>& ranges) {
  OffsetAssignment assignment{std::vector<std::int64_t>(ranges.size()), 0};
  auto at = [&](int i) -> const LiveRange& { return ranges[static_cast<std::size_t>(i)]; };
  Order begins;
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (ranges[i].bytes > 0) begins.push_back(static_cast<int>(i));
  Order ends = begins;
  std::stable_sort(begins.begin(), begins.end(), [&](int a, int b) {
    return at(a).first != at(b).first ? at(a).first < at(b).first : at(a).bytes > at(b).bytes;
  });
  std::stable_sort(ends.begin(), ends.end(), [&](int a, int b) { return at(a).last < at(b).last; });
  FreeGaps gaps;
  auto ended = ends.begin();
  for (int i : begins) {
    for (; at(*ended).last < at(i).first; ++ended)
      gaps.give_back(assignment.offsets[static_cast<std::size_t>(*ended)], at(*ended).bytes);
    assignment.offsets[static_cast<std::size_t>(i)] = gaps.take(at(i).bytes);
  }
  assignment.bytes = gaps.top();
  return assignment;
}

}  // namespace

OffsetAssignment assign_offsets(const std::vector<LiveRange>& ranges, const OffsetOptions& options) {
  if (ranges.size() > options.most_compared) return place_in_time(ranges);
  OffsetAssignment best;
  Order best_order;
  Fit best_fit = Fit::first;
  std::int64_t work = options.work;
  // One placement compares about half of all pairs, and handles each range.
  const auto cost = static_cast<std::int64_t>(ranges.size() * (ranges.size() / 2 + 50));
  auto attempt = [&](const Order& order, Fit fit) {
    OffsetAssignment assignment = place(ranges, order, fit);
    work -= cost;
    const bool better = best_order.empty() || assignment.bytes < best.bytes;
    if (better || assignment.bytes == best.bytes) {
      best = std::move(assignment);
      best_order = order;
      best_fit = fit;
    }
    return better;
  };
  for (const Order& order : first_orders(ranges)) {
    if (order.empty()) return {std::vector<std::int64_t>(ranges.size()), 0};
    for (Fit fit : {Fit::first, Fit::best}) {
      if (!best_order.empty() && (best.bytes <= options.enough || work < cost)) return best;
      attempt(order, fit);
    }
  }
  std::mt19937 random(options.seed);
  while (best.bytes > options.enough && work >= cost) {
    Order order = best_order;
    perturb(order, best, ranges, random);
    attempt(order, best_fit);
  }
  return best;
}

}  // namespace gcomp::passes
