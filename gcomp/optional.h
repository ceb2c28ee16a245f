// A value or none: what options need of std::optional, without its header, which is long.
#pragma once

namespace gcomp {

template <class T>
class Optional {
 public:
  constexpr Optional() = default;
  constexpr Optional(T value) : value_(static_cast<T&&>(value)), has_value_(true) {}
  /// From a std::optional.
  template <class Other>
  requires requires(const Other& other) { other.has_value(), T(*other); }
  constexpr Optional(const Other& other) : value_(other.has_value() ? T(*other) : T()), has_value_(other.has_value()) {}

  constexpr bool has_value() const { return has_value_; }
  constexpr explicit operator bool() const { return has_value_; }
  constexpr T& operator*() { return value_; }
  constexpr const T& operator*() const { return value_; }
  constexpr T* operator->() { return &value_; }
  constexpr const T* operator->() const { return &value_; }
  constexpr T value_or(T other) const { return has_value_ ? value_ : static_cast<T&&>(other); }

  bool operator==(const Optional&) const = default;

 private:
  T value_{};
  bool has_value_ = false;
};

}  // namespace gcomp
