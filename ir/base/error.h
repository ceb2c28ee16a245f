// Throwing gcomp/error.h's exceptions, the only ones there are, with messages made of parts.
#pragma once

#include <initializer_list>
#include <ostream>
#include <string>
#include <utility>

#include "gcomp/error.h"

namespace gcomp {

/// A tensor has more elements than are counted.
class SizeError : public UserError {
 public:
  using UserError::UserError;
};

/// One argument of a message: what to stream, and how. Kept by reference, for the duration of one call.
/// Messages are joined by one function, not by a template of their own for each combination of types, of which there are hundreds.
class MessagePart {
 public:
  MessagePart(const char* text)
      : value_(text), print_([](std::ostream& out, const void* value) { out << static_cast<const char*>(value); }) {}
  template <class T>
  MessagePart(const T& value)
      : value_(&value), print_([](std::ostream& out, const void* value) { out << *static_cast<const T*>(value); }) {}
  void print(std::ostream& out) const { print_(out, value_); }

 private:
  const void* value_;
  void (*print_)(std::ostream& out, const void* value);
};
using MessageParts = std::initializer_list<MessagePart>;

std::string join_message(MessageParts parts);
[[noreturn]] void throw_internal(MessageParts parts);
[[noreturn]] void throw_user(MessageParts parts, ExitCode code = ExitCode::invalid);

/// Streams all arguments into one string.
template <class... Args>
std::string concat(const Args&... args) {
  return join_message({MessagePart(args)...});
}

/// Throws InternalError with the concatenated arguments when `condition` does not hold.
template <class... Args>
void check_internal(bool condition, const Args&... args) {
  if (!condition) throw_internal({MessagePart(args)...});
}

/// Throws UserError (exit 3) with the concatenated arguments when `condition` does not hold.
template <class... Args>
void check_user(bool condition, const Args&... args) {
  if (!condition) throw_user({MessagePart(args)...});
}

}  // namespace gcomp
