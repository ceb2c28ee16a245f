// How readers of files get at bytes, wherever these come from.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace gcomp::runtime {

/// Fills the span with the next bytes of a file or throws UserError.
using ReadBytes = std::function<void(std::span<std::byte>)>;

}  // namespace gcomp::runtime
