// What a shared object says of itself, read from its bytes without loading it: loading runs code. The bytes are untrusted.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gcomp::runtime::cpu {

/// Why these bytes are no whole shared object for this kind of machine; "" where the loader can map all that they name.
std::string why_no_shared_object(std::span<const std::byte> object);

/// The text of an exported `const char NAME[]`, without its zero; nothing where there is none.
std::optional<std::string> exported_text(std::span<const std::byte> object, std::string_view name);

}  // namespace gcomp::runtime::cpu
