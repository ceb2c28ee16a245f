// What a shared object says of itself, read from its bytes without loading it: loading runs code. The bytes are untrusted.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

namespace gcomp::runtime::cpu {

/// Why these bytes are no whole shared object for this kind of machine; "" where the loader can map all that they name.
std::string why_no_shared_object(std::span<const std::byte> object);

/// The text of an exported `const char NAME[]`, without its zero; nothing where there is none.
std::optional<std::string> exported_text(std::span<const std::byte> object, std::string_view name);

/// The names that it exports.
std::unordered_set<std::string> exported_names(std::span<const std::byte> object);

/// What these bytes are, for an error: "an empty file", "a text file of 12 bytes that begins 'hello'", "an ELF file of 64 bytes for
/// AArch64".
std::string describe_bytes(std::span<const std::byte> bytes);

}  // namespace gcomp::runtime::cpu
