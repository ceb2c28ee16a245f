// Attributes of nodes: a small name -> value map with generic equality, hashing and text, written once for all ops.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/tensor.h"
#include "ir/strided_view.h"

namespace gcomp::ir {

/// One attribute value. Tensors are shared and immutable; they compare by contents.
using Attribute = std::variant<bool, std::int64_t, double, std::string, DType, std::vector<std::int64_t>, std::vector<double>,
                               std::shared_ptr<const Tensor>, Views>;

bool equal(const Attribute& a, const Attribute& b);
std::size_t hash_of(const Attribute& attribute);

/// Kept by name, side by side: a node has few.
class Attributes {
 public:
  using Entry = std::pair<std::string, Attribute>;

  Attributes() = default;
  Attributes(std::initializer_list<Entry> values) {
    values_.reserve(values.size());
    for (const Entry& entry : values) set(entry.first, entry.second);
  }

  const Attribute* find(std::string_view name) const {
    const auto it = place_of(name);
    return it == values_.end() || it->first != name ? nullptr : &it->second;
  }
  /// Throws InternalError where the attribute is missing or of another type: inference has checked both before.
  template <class T>
  const T& get(std::string_view name) const {
    const Attribute* found = find(name);
    check_internal(found && std::holds_alternative<T>(*found), "attribute '", name, "' is missing or has another type");
    return std::get<T>(*found);
  }
  std::int64_t integer(std::string_view name) const { return get<std::int64_t>(name); }
  const std::vector<std::int64_t>& integers(std::string_view name) const { return get<std::vector<std::int64_t>>(name); }
  bool flag(std::string_view name) const { return get<bool>(name); }
  double real(std::string_view name) const { return get<double>(name); }
  const std::string& text(std::string_view name) const { return get<std::string>(name); }
  /// All dense where the attribute is missing.
  const Views& views(std::string_view name) const;

  void set(std::string name, Attribute value) {
    hash_ = 0;
    const auto it = place_of(name);
    if (it == values_.end() || it->first != name) values_.emplace(it, std::move(name), std::move(value));
    else values_[static_cast<std::size_t>(it - values_.begin())].second = std::move(value);
  }
  void erase(std::string_view name) {
    hash_ = 0;
    if (const auto it = place_of(name); it != values_.end() && it->first == name) values_.erase(it);
  }
  bool empty() const { return values_.empty(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

  bool operator==(const Attributes& other) const;
  /// Of names and values; computed when first asked for.
  std::size_t hash() const {
    const std::size_t known = std::atomic_ref(hash_).load(std::memory_order_relaxed);
    return known != 0 ? known : compute_hash();
  }

 private:
  std::size_t compute_hash() const;
  std::vector<Entry>::const_iterator place_of(std::string_view name) const {
    return std::find_if(values_.begin(), values_.end(), [&](const Entry& entry) { return entry.first >= name; });
  }

  std::vector<Entry> values_;     ///< names ascend
  mutable std::size_t hash_ = 0;  ///< of `values_`; 0: not computed. Graphs that threads share are hashed by each of them
};

}  // namespace gcomp::ir
