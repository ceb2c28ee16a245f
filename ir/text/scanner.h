// A cursor over IR text for the parsers: small tokens, comments skipped, and errors that show their line.
#pragma once

#include <string>
#include <string_view>

#include "ir/base/error.h"
#include "ir/base/tensor.h"

namespace gcomp::ir {

class Scanner {
 public:
  Scanner(std::string_view text, std::string file, int first_line) : text_(text), file_(std::move(file)), first_line_(first_line) {}

  /// Past spaces, line breaks and comments; the offset of what comes next.
  std::size_t next();
  bool at_end() { return next() == text_.size(); }
  void seek(std::size_t at) { at_ = at; }

  bool looking_at(std::string_view symbol) { return text_.substr(next(), symbol.size()) == symbol; }
  bool accept(std::string_view symbol);
  /// `where` completes "wanted SYMBOL ...", as in "after the operands".
  void expect(std::string_view symbol, std::string_view where);

  /// A word: letters, digits, '_' and '.', no digit first; "" where there is none.
  std::string_view peek_word();
  bool accept_word(std::string_view word);
  std::string_view word(std::string_view what);
  /// %x or %"any text": the sigil, then a name.
  std::string name(char sigil, std::string_view what);
  std::string quoted_text(std::string_view what);
  std::int64_t integer(std::string_view what);
  /// The spelling of a number, "inf", "nan", "nan:0x...", "true" or "false"; "" where there is none.
  std::string_view accept_number();
  /// The hexadecimal digits of 0x"...".
  std::string_view hex_text();
  DType dtype(std::string_view what);
  TensorType type();

  /// Throws UserError "FILE:LINE:COLUMN: message" with the line and a mark under the column.
  [[noreturn]] void fail_at(std::size_t at, const std::string& message, ExitCode code = ExitCode::invalid) const;
  template <class... Args>
  [[noreturn]] void fail(std::size_t at, const Args&... args) const {
    fail_at(at, concat(args...));
  }
  /// What stands next, for "found ...".
  std::string found();

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  std::string_view take(std::size_t count);

  std::string_view text_;
  std::string file_;
  int first_line_ = 1;
  std::size_t at_ = 0;
};

}  // namespace gcomp::ir
