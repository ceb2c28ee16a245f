// A callable of any kind behind one signature: what gcomp needs of std::function, without its header, which is long.
#pragma once

#include <type_traits>

namespace gcomp {

template <class Signature>
class Function;

/// Copies copy the callable. Empty by default; an empty one does nothing and gives Result().
template <class Result, class... Arguments>
class Function<Result(Arguments...)> {
 public:
  Function() = default;
  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, Function> &&
           std::is_invocable_r_v<Result, std::remove_cvref_t<Callable>&, Arguments...>) Function(Callable&& callable) {
    if constexpr (requires { callable.operator bool(); })  // an empty std::function stays empty
      if (!callable) return;
    held_ = new Holder<std::remove_cvref_t<Callable>>(static_cast<Callable&&>(callable));
  }
  Function(const Function& other) : held_(other.held_ ? other.held_->clone() : nullptr) {}
  Function(Function&& other) noexcept : held_(other.held_) { other.held_ = nullptr; }
  Function& operator=(Function other) noexcept {
    Held* held = held_;
    held_ = other.held_;
    other.held_ = held;
    return *this;
  }
  ~Function() { delete held_; }

  explicit operator bool() const { return held_ != nullptr; }
  Result operator()(Arguments... arguments) const { return held_ ? held_->call(static_cast<Arguments&&>(arguments)...) : Result(); }

 private:
  struct Held {
    virtual ~Held() = default;
    virtual Held* clone() const = 0;
    virtual Result call(Arguments... arguments) = 0;
  };
  template <class Callable>
  struct Holder final : Held {
    template <class From>
    explicit Holder(From&& from) : callable(static_cast<From&&>(from)) {}
    Held* clone() const override { return new Holder(callable); }
    Result call(Arguments... arguments) override { return static_cast<Result>(callable(static_cast<Arguments&&>(arguments)...)); }
    Callable callable;
  };

  Held* held_ = nullptr;
};

}  // namespace gcomp
