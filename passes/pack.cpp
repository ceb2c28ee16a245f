#include "passes/pack.h"

#include <algorithm>
#include <numeric>
#include <random>

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

Packing place(const std::vector<LiveRange>& ranges, const Order& order, Fit fit) {
  Packing packing{std::vector<std::int64_t>(ranges.size()), 0};
  std::vector<Placed> placed;
  placed.reserve(order.size());
  for (int number : order) {
    const LiveRange& range = ranges[static_cast<std::size_t>(number)];
    const std::int64_t offset = find_gap(placed, range, fit);
    packing.offsets[static_cast<std::size_t>(number)] = offset;
    packing.bytes = std::max(packing.bytes, offset + range.bytes);
    auto at = std::upper_bound(placed.begin(), placed.end(), offset, [](std::int64_t o, const Placed& p) { return o < p.offset; });
    placed.insert(at, {offset, offset + range.bytes, range.first, range.last});
  }
  return packing;
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
void perturb(Order& order, const Packing& packing, const std::vector<LiveRange>& ranges, std::mt19937& random) {
  std::vector<std::size_t> tops;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto number = static_cast<std::size_t>(order[i]);
    if (packing.offsets[number] + ranges[number].bytes == packing.bytes) tops.push_back(i);
  }
  auto move_forward = [&](std::size_t from) {
    const std::size_t to = random() % (from + 1);
    std::rotate(order.begin() + static_cast<std::ptrdiff_t>(to), order.begin() + static_cast<std::ptrdiff_t>(from),
                order.begin() + static_cast<std::ptrdiff_t>(from) + 1);
  };
  if (!tops.empty()) move_forward(tops[random() % tops.size()]);
  if (tops.empty() || random() % 4 == 0) std::swap(order[random() % order.size()], order[random() % order.size()]);
}

}  // namespace

Packing pack(const std::vector<LiveRange>& ranges, const PackOptions& options) {
  Packing best;
  Order best_order;
  Fit best_fit = Fit::first;
  std::int64_t work = options.work;
  // One placement compares about half of all pairs, and handles each range.
  const auto cost = static_cast<std::int64_t>(ranges.size() * (ranges.size() / 2 + 50));
  auto attempt = [&](const Order& order, Fit fit) {
    Packing packing = place(ranges, order, fit);
    work -= cost;
    const bool better = best_order.empty() || packing.bytes < best.bytes;
    if (better || packing.bytes == best.bytes) {
      best = std::move(packing);
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
