// Bytes of files that may be anything, or shrink while they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/files/descriptor.h"

namespace gcomp::data {

/// More than any image file has; a larger one is no image.
inline constexpr std::uint64_t kLargestImageFile = std::uint64_t{1} << 30;

/// A regular file, open for reading. Throws UserError with the path and the system's reason.
runtime::Descriptor open_file(const std::filesystem::path& path);
std::uint64_t size_of(const runtime::Descriptor& file, const std::string& where);
/// Fills `bytes` from `offset` on. Throws UserError beginning with `where` where the file ends before.
void read_at(const runtime::Descriptor& file, std::uint64_t offset, std::span<std::byte> bytes, const std::string& where);
/// A whole file of at most kLargestImageFile bytes; the vector's memory is kept.
void read_whole(const std::filesystem::path& path, std::vector<std::byte>& bytes);

}  // namespace gcomp::data
