// The one owner of an object that is defined elsewhere: what the classes here need of std::unique_ptr, without its header.
#pragma once

namespace gcomp {

/// `T` must be complete where an Owned<T> is made or destroyed, as in the source file of its class.
template <class T>
class Owned {
 public:
  explicit Owned(T* object) : object_(object) {}
  Owned(Owned&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Owned& operator=(Owned&& other) noexcept {
    T* object = object_;
    object_ = other.object_;
    other.object_ = object;
    return *this;
  }
  ~Owned() { delete object_; }

  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }

 private:
  T* object_;
};

}  // namespace gcomp
