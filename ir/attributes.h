// Attributes of nodes: a small name -> value map with generic equality, hashing and text, written once for all ops.
#pragma once

#include <cstdint>
#include <map>
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

class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Attribute>> values) : values_(values) {}

  const Attribute* find(std::string_view name) const {
    auto it = values_.find(name);
    return it == values_.end() ? nullptr : &it->second;
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

  void set(std::string name, Attribute value) { values_.insert_or_assign(std::move(name), std::move(value)); }
  void erase(std::string_view name) {
    if (auto it = values_.find(name); it != values_.end()) values_.erase(it);
  }
  bool empty() const { return values_.empty(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

  bool operator==(const Attributes& other) const;
  std::size_t hash() const;

 private:
  std::map<std::string, Attribute, std::less<>> values_;
};

}  // namespace gcomp::ir
