#include "ir/text/scanner.h"

#include <algorithm>
#include <charconv>

#include "ir/base/nearest.h"
#include "ir/text/spelling.h"

namespace gcomp::ir {
namespace {

constexpr std::size_t kShownColumns = 100;  ///< of a long line, about the column in question

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// One cell a byte, so that the mark stands under the right column whatever the text holds.
std::string printable(std::string_view line) {
  std::string out(line);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = c == '\t' ? ' ' : '?';
  return out;
}

}  // namespace

std::size_t Scanner::next() {
  for (;;) {
    while (peek() == ' ' || peek() == '\n' || peek() == '\t' || peek() == '\r') ++at_;
    if (peek() != '/' || peek(1) != '/') return at_;
    at_ = std::min(text_.find('\n', at_), text_.size());
  }
}

bool Scanner::accept(std::string_view symbol) {
  if (!looking_at(symbol)) return false;
  at_ += symbol.size();
  return true;
}

void Scanner::expect(std::string_view symbol, std::string_view where) {
  if (!accept(symbol)) fail(next(), "found ", found(), ", wanted '", symbol, "' ", where);
}

std::string_view Scanner::take(std::size_t count) {
  const std::string_view taken = text_.substr(at_, count);
  at_ += taken.size();
  return taken;
}

std::string_view Scanner::peek_word() {
  std::size_t end = next();
  if (end < text_.size() && is_digit(text_[end])) return "";
  while (end < text_.size() && is_name_character(text_[end])) ++end;
  return text_.substr(at_, end - at_);
}

bool Scanner::accept_word(std::string_view word) {
  if (peek_word() != word) return false;
  at_ += word.size();
  return true;
}

std::string_view Scanner::word(std::string_view what) {
  const std::string_view found_word = peek_word();
  if (found_word.empty()) fail(next(), "found ", found(), ", wanted ", what);
  return take(found_word.size());
}

std::string Scanner::name(char sigil, std::string_view what) {
  if (!accept(std::string_view(&sigil, 1))) fail(next(), "found ", found(), ", wanted ", what);
  if (peek() == '"') return quoted_text(what);
  std::size_t length = 0;
  while (is_name_character(peek(length))) ++length;
  if (length == 0) fail(at_, "found ", found(), " after '", sigil, "', wanted ", what);
  return std::string(take(length));
}

std::string Scanner::quoted_text(std::string_view what) {
  const std::size_t start = next();
  expect("\"", concat("before ", what));
  std::string out;
  for (;;) {
    const std::size_t at = at_;
    const char c = peek();
    if (at == text_.size() || c == '\n') fail(start, "the quoted name or text does not end on its line, wanted ", what);
    ++at_;
    if (c == '"') return out;
    if (c != '\\') {
      out += c;
      continue;
    }
    const char escape = peek();
    ++at_;
    if (escape == '"' || escape == '\\') out += escape;
    else if (escape == 'n') out += '\n';
    else if (escape == 't') out += '\t';
    else if (escape == 'x' && hex_digit(peek()) >= 0 && hex_digit(peek(1)) >= 0) {
      out += static_cast<char>(hex_digit(peek()) * 16 + hex_digit(peek(1)));
      at_ += 2;
    } else fail(at, "unknown escape, wanted \\\" \\\\ \\n \\t or \\xHH");
  }
}

std::int64_t Scanner::integer(std::string_view what) {
  const std::size_t start = next();
  std::int64_t value = 0;
  const auto end = std::from_chars(text_.data() + start, text_.data() + text_.size(), value);
  if (end.ec == std::errc::result_out_of_range) fail(start, "an integer of more than 64 bits, wanted ", what);
  if (end.ec != std::errc()) fail(start, "found ", found(), ", wanted ", what);
  at_ = static_cast<std::size_t>(end.ptr - text_.data());
  return value;
}

std::string_view Scanner::accept_number() {
  const std::size_t start = next();
  std::size_t end = start;
  auto at = [&](std::size_t i) { return i < text_.size() ? text_[i] : '\0'; };
  if (at(end) == '-') ++end;
  if (is_digit(at(end))) {
    auto digits = [&] {
      while (is_digit(at(end))) ++end;
    };
    digits();
    if (at(end) == '.' && is_digit(at(end + 1))) {
      ++end;
      digits();
    }
    const std::size_t sign = at(end + 1) == '-' || at(end + 1) == '+';
    if ((at(end) == 'e' || at(end) == 'E') && is_digit(at(end + 1 + sign))) {
      end += 1 + sign;
      digits();
    }
  } else {
    const std::size_t word_start = end;
    while (is_name_character(at(end))) ++end;
    const std::string_view word = text_.substr(word_start, end - word_start);
    const bool negative = word_start > start;
    if (word == "nan" && !negative && text_.substr(end, 3) == ":0x") {
      end += 3;
      while (hex_digit(at(end)) >= 0) ++end;
    } else if (word != "inf" && word != "nan" && (negative || (word != "true" && word != "false"))) {
      return "";
    }
  }
  return take(end - start);
}

std::string_view Scanner::hex_text() {
  const std::size_t start = next();
  expect("0x\"", "before hexadecimal data");
  std::size_t length = 0;
  while (hex_digit(peek(length)) >= 0) ++length;
  const std::string_view digits = take(length);
  if (peek() != '"') fail(peek() == '\0' || peek() == '\n' ? start : at_, "hexadecimal data does not end with '\"'");
  ++at_;
  return digits;
}

DType Scanner::dtype(std::string_view what) {
  const std::size_t start = next();
  const std::string_view found_word = peek_word();
  if (auto parsed = parse_dtype(found_word)) {
    at_ += found_word.size();
    return *parsed;
  }
  std::vector<std::string> names;
  for (DType d : kAllDTypes) names.emplace_back(name_of(d));
  fail(start, "found ", found(), ", wanted ", what, did_you_mean(found_word, names));
}

TensorType Scanner::type() {
  const std::size_t start = next();
  TensorType type{dtype("a type such as f32[64,784]"), {}};
  expect("[", "after the element type");
  while (!accept("]")) {
    if (!type.shape.empty()) expect(",", "between dimensions");
    const std::size_t at = next();
    type.shape.push_back(integer("a dimension"));
    if (type.shape.back() < 0) fail(at, "dimension ", type.shape.back(), " is negative");
  }
  try {
    type.bytes();
  } catch (const UserError& error) { fail(start, error.what()); }
  return type;
}

std::string Scanner::found() {
  const std::size_t start = next();
  if (start == text_.size()) return "the end of the text";
  std::size_t end = start;
  while (end < text_.size() && end - start < 40 && is_name_character(text_[end])) ++end;
  if (end == start) ++end;
  return "'" + printable(text_.substr(start, end - start)) + "'";
}

void Scanner::fail_at(std::size_t at, const std::string& message, ExitCode code) const {
  at = std::min(at, text_.size());
  // An error at the end of the text belongs to the last line that holds something.
  if (at == text_.size())
    while (at > 0 && (text_[at - 1] == '\n' || text_[at - 1] == ' ')) --at;
  const std::size_t before = text_.substr(0, at).rfind('\n');
  const std::size_t line_start = before == std::string_view::npos ? 0 : before + 1;
  const std::string_view line = text_.substr(line_start, std::min(text_.find('\n', line_start), text_.size()) - line_start);
  const auto number = first_line_ + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(line_start), '\n');
  const std::size_t column = at - line_start, from = column > kShownColumns ? column - kShownColumns / 2 : 0;
  throw UserError(concat(file_, ":", number, ":", column + 1, ": ", message, "\n  ", printable(line.substr(from, kShownColumns)),
                         "\n  ", std::string(column - from, ' '), "^"),
                  code);
}

}  // namespace gcomp::ir
