// The one owner of an object that is defined elsewhere: what the classes here need of std::unique_ptr, without its header.
#pragma once

namespace gcomp {

/// Throws UserError: an object was used that was moved from.
[[noreturn]] void throw_moved_from();

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

  T* operator->() const {
    if (!object_) throw_moved_from();
    return object_;
  }
  T& operator*() const { return *operator->(); }

 private:
  T* object_;
};

}  // namespace gcomp
