// Bytes that several tensors read where they lie: what they need of std::shared_ptr, without its header.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace gcomp {

/// Copies share the bytes; any thread may hold one.
class SharedBytes {
 public:
  SharedBytes() = default;
  /// `keeper` owns the bytes, which nobody changes from now on: a std::shared_ptr, say. It is moved in, and goes with the last
  /// copy.
  template <class Keeper>
  SharedBytes(std::span<const std::byte> bytes, Keeper keeper) : bytes_(bytes), held_(new Of<Keeper>(std::move(keeper))) {}
  SharedBytes(const SharedBytes& other) noexcept : bytes_(other.bytes_), held_(share(other.held_)) {}
  SharedBytes(SharedBytes&& other) noexcept : bytes_(std::exchange(other.bytes_, {})), held_(std::exchange(other.held_, nullptr)) {}
  SharedBytes& operator=(SharedBytes other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(held_, other.held_);
    return *this;
  }
  ~SharedBytes() { drop(held_); }

  /// Whether there are any, be they none in number.
  explicit operator bool() const { return held_ != nullptr; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  struct Held {
    virtual ~Held() = default;
    long users = 1;
  };
  template <class Keeper>
  struct Of : Held {
    explicit Of(Keeper keeper) : keeper(std::move(keeper)) {}
    Keeper keeper;
  };
  static Held* share(Held* held) noexcept;
  static void drop(Held* held) noexcept;

  std::span<const std::byte> bytes_;
  Held* held_ = nullptr;
};

}  // namespace gcomp
