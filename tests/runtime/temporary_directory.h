// A directory for one test, removed with it; and file contents as bytes.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "ir/base/error.h"

namespace gcomp::runtime::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "gcomp-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw InternalError("no temporary directory");
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator());
  }

 private:
  std::filesystem::path path_;
};

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void put(const std::filesystem::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

/// The message of the UserError that `action` must throw.
inline std::string user_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) { return error.what(); }
  ADD_FAILURE() << "no UserError";
  return "";
}

/// Calls `read` on every truncation of `good` and on copies with one byte changed; each must return or throw a UserError. Returns
/// how many threw.
inline int survive_damage(const std::string& good, const std::function<void(const std::string&)>& read) {
  int refused = 0;
  const auto attempt = [&](const std::string& bytes, std::size_t at) {
    try {
      read(bytes);
    } catch (const UserError&) { ++refused; } catch (const std::exception& error) {
      ADD_FAILURE() << "byte " << at << ": " << error.what();
    }
  };
  for (std::size_t size = 0; size < good.size(); ++size) attempt(good.substr(0, size), size);
  for (std::size_t i = 0; i < good.size(); ++i)
    for (unsigned flip : {0x01u, 0x80u, 0xffu}) {
      std::string bad = good;
      bad[i] = static_cast<char>(static_cast<unsigned char>(bad[i]) ^ flip);
      attempt(bad, i);
    }
  return refused;
}

}  // namespace gcomp::runtime::test
