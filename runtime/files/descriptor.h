// An open file that closes itself.
#pragma once

#include <unistd.h>

#include <utility>

namespace gcomp::runtime {

class Descriptor {
 public:
  Descriptor() = default;
  /// Takes what open() gave; a negative number is no file.
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }

  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }
  /// Closes now; what close() returns, 0 where nothing is open.
  int close() { return value_ >= 0 ? ::close(std::exchange(value_, -1)) : 0; }

 private:
  int value_ = -1;
};

}  // namespace gcomp::runtime
