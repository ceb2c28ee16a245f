// Reading sources in tests, and the files that they read.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/format.h"
#include "ir/base/error.h"
#include "ir/base/tensor.h"
#include "tests/temporary_directory.h"

namespace gcomp::data::test {

namespace fs = std::filesystem;
using gcomp::test::contents;
using gcomp::test::put;
using gcomp::test::TemporaryDirectory;

/// tests/fixtures/data/arrays (make_arrays.py).
inline fs::path array_fixture(const std::string& name) { return fs::path(GCOMP_SOURCE_DIR) / "tests/fixtures/data/arrays" / name; }

/// A folder of ../shared/data (or of GCOMP_SHARED), where it is there.
inline std::optional<fs::path> shared_data(const std::string& name) {
  const char* variable = std::getenv("GCOMP_SHARED");
  for (const fs::path& path :
       {fs::path(variable ? variable : ""), fs::path(GCOMP_SHARED_DIR), fs::path(GCOMP_SOURCE_DIR) / ".." / "shared"})
    if (!path.empty() && fs::exists(path / "data" / name)) return path / "data" / name;
  return std::nullopt;
}

inline std::unique_ptr<Source> open_spec(const std::string& spec, std::span<const WantedArray> wanted = {}) {
  return open(parse_spec(spec), wanted);
}

/// An input of integers with rows of so many, as a language model has.
inline std::vector<WantedArray> token_input(std::int64_t length, DType dtype = DType::i64, const std::string& name = "tokens") {
  return {{.name = name, .dtype = dtype, .row = Shape{length}}, {.name = "label", .input = false}};
}

/// The position of an array; the test fails where there is none.
inline std::size_t array_of(const Source& source, const std::string& name) {
  const std::vector<NamedType> arrays = source.arrays();
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (arrays[i].first == name) return i;
  ADD_FAILURE() << "no array " << name;
  return 0;
}

inline Tensor row_of(const Source& source, const std::string& name, std::int64_t row) {
  const std::size_t array = array_of(source, name);
  Tensor fetched(source.arrays()[array].second);
  source.fetch(array, row, fetched.bytes());
  return fetched;
}

inline std::vector<std::int64_t> integers(const Source& source, const std::string& name, std::int64_t row) {
  return row_of(source, name, row).to_integers();
}

inline std::vector<std::string> array_names(const Source& source) {
  std::vector<std::string> names;
  for (const auto& [name, type] : source.arrays()) names.push_back(name);
  return names;
}

/// Element i, j, k is 100 i + 10 j + k, as make_arrays.py writes them.
inline void expect_counted(const Source& source, const std::string& name) {
  for (std::int64_t i = 0; i < source.rows(); ++i) {
    const Tensor row = row_of(source, name, i);
    const Shape& shape = row.shape();
    const std::int64_t inner = shape.size() > 1 ? shape[1] : 1;
    for (std::int64_t e = 0; e < row.elements(); ++e) {
      const std::int64_t wanted = 100 * i + 10 * (e / inner) + (shape.size() > 1 ? e % inner : 0);
      EXPECT_EQ(row.at(e), static_cast<double>(row.dtype() == DType::u8 ? wanted % 256 : wanted)) << name << " " << i;
    }
  }
}

/// The message of the UserError that `action` ends in, "" where it does not.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const UserError& error) { return error.what(); }
  return "";
}

inline void expect_contains(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
}

/// Opening fails with a message that has all of these.
inline void expect_refused(const std::string& spec, std::initializer_list<const char*> parts) {
  expect_contains(error_of([&] { open_spec(spec, token_input(4)); }), parts);
}

/// Numbers as bytes, little-endian.
template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string bytes;
  for (const T value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  return bytes;
}

/// Big-endian, 32 bits each.
inline std::string big_endian(std::initializer_list<std::uint32_t> values) {
  std::string bytes;
  for (const std::uint32_t value : values)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

/// Resident bytes of this process that belong to no file.
inline std::int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::int64_t all = 0, resident = 0, shared = 0;
  in >> all >> resident >> shared;
  return (resident - shared) * 4096;
}

}  // namespace gcomp::data::test
