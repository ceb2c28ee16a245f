#include "codegen/cuda/interleaved_stores.h"

#include <algorithm>

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kMostInterleaved = 8;  // whose values are in registers until the last is known

/// Whether vectors of so many elements that begin at the index of the first lane are aligned to themselves.
bool begins_vectors(const Index& index, int lane_axis, std::int64_t width) {
  const auto divides = [&](std::int64_t number) { return number % width == 0; };
  const Index first = lane_axis < 0 ? index : at_origin(index, lane_axis);
  return divides(first.constant()) &&
         std::ranges::all_of(first.parts(), [&](const Index::Part& p) { return divides(p.coefficient); });
}

/// The stores that have the places behind those of `first`, up to its next lane; fewer where some are missing.
std::vector<const Store*> behind(const FlatNest& nest, const Store& first, std::int64_t count,
                                 const std::vector<const Store*>& stores) {
  std::vector<const Store*> found;
  for (std::int64_t place = 0; place < count; ++place) {
    const auto next = std::ranges::find_if(stores, [&](const Store* store) {
      return store->result == first.result && store->at == first.at + place &&
             nest.statements[at(store->statement)].axes == nest.statements[at(first.statement)].axes;
    });
    if (next == stores.end()) break;
    found.push_back(*next);
  }
  return found;
}

}  // namespace

std::vector<std::vector<const Store*>> take_interleaved(const FlatNest& nest, const Vectors& vectors,
                                                        std::vector<const Store*>& stores) {
  std::vector<std::vector<const Store*>> taken;
  for (const Store* first : std::vector(stores)) {
    const std::int64_t count = first->at.coefficient_of(vectors.lane_axis);
    if (count < 2 || count > kMostInterleaved || first->at.uses_nonlinearly(vectors.lane_axis)) continue;
    if (first->at.has_loaded() || !begins_vectors(first->at, vectors.lane_axis, vectors.width)) continue;
    const std::vector<const Store*> group = behind(nest, *first, count, stores);
    if (group.size() != static_cast<std::size_t>(count)) continue;
    std::erase_if(stores, [&](const Store* store) { return std::ranges::find(group, store) != group.end(); });
    taken.push_back(group);
  }
  return taken;
}

std::vector<std::vector<const Store*>> take_neighbours(const FlatNest& nest, std::vector<const Store*>& stores) {
  constexpr std::int64_t kMost = 16;
  std::vector<std::vector<const Store*>> taken;
  for (const Store* first : std::vector(stores)) {
    if (first->at.has_loaded() || std::ranges::find(stores, first) == stores.end()) continue;
    std::vector<const Store*> group = behind(nest, *first, kMost, stores);
    // Whole words, aligned.
    std::size_t count = kMost;
    while (count > group.size()) count /= 2;
    group.resize(count);
    if (count < 2 || interleaved_width(nest, {}, group) == 1) continue;
    std::erase_if(stores, [&](const Store* store) { return std::ranges::find(group, store) != group.end(); });
    taken.push_back(std::move(group));
  }
  return taken;
}

int interleaved_width(const FlatNest& nest, const Vectors& vectors, const std::vector<const Store*>& members) {
  const Store& first = *members[0];
  const auto size = static_cast<std::int64_t>(size_of(nest.results[at(first.result)])),
             all = static_cast<std::int64_t>(members.size()) * vectors.width;
  int width = vectors.width;
  while (size * 2 * width <= kWordBytes && all % (2 * width) == 0 && begins_vectors(first.at, vectors.lane_axis, 2 * width))
    width *= 2;
  return width;
}

}  // namespace gcomp::codegen::cuda
