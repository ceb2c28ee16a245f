#include "ir/attributes.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "ir/base/hash.h"

namespace gcomp::ir {

namespace {

std::size_t hash_of(const Views& views) {
  std::size_t seed = views.size();
  for (const std::optional<StridedView>& view : views) {
    seed = hash_combine(seed, view ? static_cast<std::uint64_t>(view->offset) + 1 : 0);
    if (!view) continue;
    for (const auto* list : {&view->shape, &view->strides})
      for (const std::int64_t x : *list) seed = hash_combine(seed, static_cast<std::uint64_t>(x));
  }
  return seed;
}

}  // namespace

bool equal(const Attribute& a, const Attribute& b) {
  if (a.index() != b.index()) return false;
  if (auto* tensor = std::get_if<std::shared_ptr<const Tensor>>(&a)) {
    const auto& other = std::get<std::shared_ptr<const Tensor>>(b);
    return *tensor == other || **tensor == *other;
  }
  if (auto* real = std::get_if<double>(&a))
    return std::bit_cast<std::uint64_t>(*real) == std::bit_cast<std::uint64_t>(std::get<double>(b));
  return a == b;
}

std::size_t hash_of(const Attribute& attribute) {
  return hash_combine(attribute.index(), std::visit(
                                             [](const auto& value) -> std::size_t {
                                               using T = std::decay_t<decltype(value)>;
                                               if constexpr (std::is_same_v<T, std::shared_ptr<const Tensor>>) {
                                                 return hash_bytes(value->bytes());
                                               } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>> ||
                                                                    std::is_same_v<T, std::vector<double>>) {
                                                 std::size_t seed = value.size();
                                                 for (auto x : value) seed = hash_combine(seed, std::bit_cast<std::uint64_t>(x));
                                                 return seed;
                                               } else if constexpr (std::is_same_v<T, Views>) {
                                                 return hash_of(value);
                                               } else if constexpr (std::is_same_v<T, double>) {
                                                 return std::bit_cast<std::uint64_t>(value);
                                               } else {
                                                 return std::hash<T>{}(value);
                                               }
                                             },
                                             attribute));
}

const Views& Attributes::views(std::string_view name) const {
  static const Views kAllDense;
  return find(name) ? get<Views>(name) : kAllDense;
}

bool Attributes::operator==(const Attributes& other) const {
  return std::equal(begin(), end(), other.begin(), other.end(),
                    [](const auto& a, const auto& b) { return a.first == b.first && equal(a.second, b.second); });
}

std::size_t Attributes::compute_hash() const {
  std::size_t seed = values_.size();
  for (const auto& [name, value] : values_) seed = hash_combine(hash_combine(seed, std::hash<std::string>{}(name)), hash_of(value));
  std::atomic_ref(hash_).store(seed, std::memory_order_relaxed);
  return seed;
}

}  // namespace gcomp::ir
