// A text that many share: copies cost a count. For what each of a hundred thousand nodes carries and nobody edits.
#pragma once

#include <memory>
#include <ostream>
#include <string>

namespace gcomp {

class SharedText {
 public:
  SharedText() = default;
  SharedText(std::string text)  // NOLINT: a text is one
      : text_(text.empty() ? nullptr : std::make_shared<const std::string>(std::move(text))) {}
  SharedText(const char* text) : SharedText(std::string(text)) {}  // NOLINT: likewise

  bool empty() const { return !text_; }
  const std::string& str() const {
    static const std::string kNone;
    return text_ ? *text_ : kNone;
  }
  operator const std::string&() const { return str(); }  // NOLINT: likewise

  friend bool operator==(const SharedText& a, const SharedText& b) { return a.text_ == b.text_ || a.str() == b.str(); }
  friend std::string operator+(const SharedText& a, const std::string& b) { return a.str() + b; }
  friend std::string operator+(const std::string& a, const SharedText& b) { return a + b.str(); }
  friend std::ostream& operator<<(std::ostream& out, const SharedText& text) { return out << text.str(); }

 private:
  std::shared_ptr<const std::string> text_;
};

}  // namespace gcomp
