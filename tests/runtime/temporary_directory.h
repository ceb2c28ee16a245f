// What tests of files need: a directory of their own, and the errors that damaged files must give.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ir/base/error.h"
#include "tests/temporary_directory.h"

namespace gcomp::runtime::test {

using gcomp::test::contents;
using gcomp::test::put;
using gcomp::test::TemporaryDirectory;

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
