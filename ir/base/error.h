// The only exception types that gcomp throws, and the exit codes that the tools map them to.
// Messages start lower-case and end without a period: where, what was found, what was wanted.
#pragma once

#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>

namespace gcomp {

/// Process exit codes of every tool; documented in the README.
enum class ExitCode : int {
  ok = 0,
  internal = 1,
  usage = 2,
  invalid = 3,      ///< invalid model, IR text or data
  unsupported = 4,  ///< an operator, dtype or attribute that gcomp does not support or cannot differentiate
  kernel_compile = 5,
  no_device = 6,
  out_of_memory = 7,
  numeric = 8,  ///< a loss or parameter became NaN or infinite
};

/// The base of all errors; catch this in an application.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// The model, the IR text, an option or the data is wrong.
class UserError : public Error {
 public:
  explicit UserError(const std::string& message, ExitCode code = ExitCode::invalid) : Error(code, message) {}
};

/// A tensor has more elements than are counted.
class SizeError : public UserError {
 public:
  using UserError::UserError;
};

/// A driver, library, compiler or memory of the machine failed.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message, ExitCode code = ExitCode::no_device) : Error(code, message) {}
};

/// gcomp itself is wrong.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ExitCode::internal, message) {}
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
