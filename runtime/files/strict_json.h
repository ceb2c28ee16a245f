// JSON from untrusted files: no key twice, no deep nesting, errors as UserError.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace gcomp::runtime {

/// Throws UserError (without a file's name) where `text` is no JSON, has an object with one key twice, or nests deeper than
/// `depth`.
nlohmann::json parse_strict_json(std::string_view text, int depth);

}  // namespace gcomp::runtime
