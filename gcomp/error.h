// The exceptions that gcomp throws, and the exit codes that the command maps them to.
// Messages start lower-case and end without a period: where, what was found, what was wanted.
#pragma once

#include <new>  // defines std::exception, with which std::bad_alloc begins: <exception> is long
#include <string>

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
class Error : public std::exception {
 public:
  Error(ExitCode code, std::string message) : message_(std::move(message)), code_(code) {}
  const char* what() const noexcept override { return message_.c_str(); }
  ExitCode code() const { return code_; }

 private:
  std::string message_;
  ExitCode code_;
};

/// The model, the IR text, an option or the data is wrong.
class UserError : public Error {
 public:
  explicit UserError(std::string message, ExitCode code = ExitCode::invalid) : Error(code, std::move(message)) {}
};

/// A driver, library, compiler or memory of the machine failed.
class DeviceError : public Error {
 public:
  explicit DeviceError(std::string message, ExitCode code = ExitCode::no_device) : Error(code, std::move(message)) {}
};

/// gcomp itself is wrong.
class InternalError : public Error {
 public:
  explicit InternalError(std::string message) : Error(ExitCode::internal, std::move(message)) {}
};

}  // namespace gcomp
