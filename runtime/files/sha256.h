#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace gcomp::runtime {

/// SHA-256 (FIPS 180-4) as 64 lower-case hexadecimal digits.
std::string sha256(std::span<const std::byte> bytes);

/// The same of a file's contents, read a part at a time. Throws UserError where it cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace gcomp::runtime
