#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace gcomp::runtime {

inline constexpr std::size_t kSha256Digits = 64;

/// SHA-256 (FIPS 180-4) as 64 lower-case hexadecimal digits.
std::string sha256(std::span<const std::byte> bytes);
std::string sha256(std::string_view text);

/// The same of bytes that come in parts.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::span<const std::byte> bytes);
  /// To be called once, after the last part.
  std::string digest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The same of a file's contents, read a part at a time. Throws UserError where it cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace gcomp::runtime
