#include "ir/base/formula.h"

#include <charconv>
#include <cmath>

#include "ir/base/error.h"

namespace gcomp {
namespace {

using Kind = Formula::Kind;

/// What stands within brackets, and operators before an operand, nests no deeper.
constexpr int kDeepest = 64;

constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '/'; }

class FormulaParser {
 public:
  FormulaParser(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  Formula whole() {
    Formula found = sum();
    if (const char c = next()) fail(at_, at_ + 1, concat("found '", c, "', wanted an operator or the end"));
    return found;
  }
  std::vector<Formula> listed() {
    std::vector<Formula> found;
    do found.push_back(sum());
    while (take(','));
    if (const char c = next()) fail(at_, at_ + 1, concat("found '", c, "', wanted ',' or the end"));
    return found;
  }

 private:
  [[noreturn]] void fail(std::size_t begin, std::size_t end, const std::string& message) const {
    fail_at(what_, text_, begin, end, message);
  }

  /// The next character that is no space, '\0' at the end.
  char next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }
  std::string found() { return next() ? concat("'", text_.substr(at_, 1), "'") : std::string("the end"); }
  void expect(char c, std::string_view after) {
    if (!take(c)) fail(at_, at_ + 1, concat("found ", found(), ", wanted '", c, "' ", after));
  }

  static Formula joined(Kind kind, Formula a, Formula b) {
    Formula made{.kind = kind, .begin = a.begin, .end = b.end};
    made.operands.push_back(std::move(a));
    made.operands.push_back(std::move(b));
    return made;
  }

  Formula sum() {
    Formula left = product();
    for (char c = next(); c == '+' || c == '-'; c = next()) {
      ++at_;
      left = joined(c == '+' ? Kind::add : Kind::subtract, std::move(left), product());
    }
    return left;
  }

  Formula product() {
    Formula left = factor();
    for (char c = next(); c == '*' || c == '/'; c = next()) {
      ++at_;
      left = joined(c == '*' ? Kind::multiply : Kind::divide, std::move(left), factor());
    }
    return left;
  }

  Formula factor() {
    if (++depth_ > kDeepest) fail(at_, at_ + 1, concat("nests deeper than ", kDeepest));
    Formula made;
    if (next() == '-') {
      made.begin = at_++;
      made.kind = Kind::negate;
      made.operands.push_back(factor());
      made.end = made.operands[0].end;
      if (made.operands[0].kind == Kind::number) made = negated(std::move(made));
    } else {
      made = primary();
    }
    --depth_;
    return made;
  }

  /// A negative number is one.
  static Formula negated(Formula e) {
    Formula number = std::move(e.operands[0]);
    number.begin = e.begin;
    number.value = -number.value;
    number.text = "-" + number.text;
    return number;
  }

  Formula primary() {
    const char c = next();
    if (c == '(') {
      ++at_;
      Formula inner = sum();
      expect(')', "that closes the bracket");
      return inner;
    }
    if (c == '[') return list();
    if (is_digit(c) || c == '.') return number();
    if (is_letter(c) || c == '"' || c == '\'') return name_or_call();
    fail(at_, at_ + 1, concat("found ", found(), ", wanted a name or a number"));
  }

  Formula number() {
    Formula made{.kind = Kind::number, .begin = at_};
    const char* first = text_.data() + at_;
    const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), made.value);
    made.end = at_ + static_cast<std::size_t>(end - first);
    if (error != std::errc() || (made.end < text_.size() && is_word(text_[made.end])))
      fail(at_, std::max(made.end, at_ + 1), "this is no number");
    made.text = text_.substr(at_, made.end - at_);
    at_ = made.end;
    return made;
  }

  Formula list() {
    Formula made{.kind = Kind::list, .begin = at_++};
    if (!take(']')) {
      do made.operands.push_back(sum());
      while (take(','));
      expect(']', "or ',' after an element of the list");
    }
    made.end = at_;
    return made;
  }

  std::string quoted_text() {
    const std::size_t begin = at_;
    const char quote = text_[at_++];
    const std::size_t close = text_.find(quote, at_);
    if (close == std::string_view::npos) fail(begin, text_.size(), "this quote is not closed");
    std::string inside(text_.substr(at_, close - at_));
    at_ = close + 1;
    return inside;
  }

  std::string word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  Formula name_or_call() {
    Formula made{.kind = Kind::name, .begin = at_};
    made.quoted = !is_letter(text_[at_]);
    made.text = made.quoted ? quoted_text() : word();
    made.end = at_;
    if (!made.quoted && take('(')) {
      made.kind = Kind::call;
      if (!take(')')) {
        do argument(made);
        while (take(','));
        expect(')', "or ',' after an argument");
      }
      made.end = at_;
    }
    return made;
  }

  void argument(Formula& call) {
    next();
    const std::size_t begin = at_;
    if (at_ < text_.size() && is_letter(text_[at_])) {
      std::string name = word();
      if (take('=')) return option(call, std::move(name), begin);
      at_ = begin;
    }
    Formula value = sum();
    if (!call.options.empty())
      fail(value.begin, value.end, concat("an argument without a name comes after '", call.options.back().name, "='"));
    call.operands.push_back(std::move(value));
  }

  void option(Formula& call, std::string name, std::size_t begin) {
    for (const Formula::Option& other : call.options)
      if (other.name == name) fail(begin, begin + name.size(), concat("'", name, "' is given twice"));
    call.options.emplace_back(std::move(name), sum(), begin);
  }

  std::string_view text_, what_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Formula::Option::Option(std::string n, Formula v, std::size_t b) : name(std::move(n)), begin(b) { value_.push_back(std::move(v)); }

void fail_at(std::string_view what, std::string_view text, std::size_t begin, std::size_t end, std::string_view message,
             ExitCode code) {
  begin = std::min(begin, text.size());
  end = std::min(std::max(end, begin), text.size());
  // A long text is shown around the place.
  constexpr std::size_t kAround = 60;
  const std::size_t first = begin > kAround ? begin - kAround : 0, last = std::min(text.size(), end + kAround);
  throw UserError(
      concat(what, ": ", message, ", at column ", begin + 1, ": ", first > 0 ? "..." : "", text.substr(first, begin - first), ">>>",
             text.substr(begin, end - begin), "<<<", text.substr(end, last - end), last < text.size() ? "..." : ""),
      code);
}

std::string quoted_name(std::string_view name) {
  bool is_plain = !name.empty() && is_letter(name[0]);
  for (const char c : name) is_plain = is_plain && is_word(c);
  if (is_plain) return std::string(name);
  const char quote = name.find('"') == name.npos ? '"' : '\'';
  return concat(quote, name, quote);
}

Formula parse_formula(std::string_view text, std::string_view what) { return FormulaParser(text, what).whole(); }
std::vector<Formula> parse_formulas(std::string_view text, std::string_view what) { return FormulaParser(text, what).listed(); }

}  // namespace gcomp
