// The name of a file or folder, given as text or as a std::filesystem::path, whose header is long.
#pragma once

#include <string>
#include <string_view>

namespace gcomp {

class Path {
 public:
  Path() = default;
  Path(const char* text) : text_(text) {}
  Path(std::string text) : text_(std::move(text)) {}
  Path(std::string_view text) : text_(text) {}
  /// From a std::filesystem::path.
  template <class FilePath>
  requires requires(const FilePath& path) { path.lexically_normal().string(); }
  Path(const FilePath& path) : text_(path.string()) {}

  const std::string& string() const { return text_; }
  bool empty() const { return text_.empty(); }
  bool operator==(const Path&) const = default;

 private:
  std::string text_;
};

}  // namespace gcomp
