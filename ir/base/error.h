// The only exception types that gcomp throws, and the exit codes that the tools map them to.
// Messages start lower-case and end without a period: where, what was found, what was wanted.
#pragma once

#include <sstream>
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

/// Streams all arguments into one string.
template <class... Args>
std::string concat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

/// Throws InternalError with the concatenated arguments when `condition` does not hold.
template <class... Args>
void check_internal(bool condition, const Args&... args) {
  if (!condition) throw InternalError(concat(args...));
}

/// Throws UserError (exit 3) with the concatenated arguments when `condition` does not hold.
template <class... Args>
void check_user(bool condition, const Args&... args) {
  if (!condition) throw UserError(concat(args...));
}

}  // namespace gcomp
