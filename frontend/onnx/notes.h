// Names within the notes of an import, each of which is one line of about 200 characters at most.
#pragma once

#include <span>
#include <string>

namespace gcomp::frontend {

/// "'a', 'b' and 7 more": as many names as have room in a note, one at least.
std::string some_of(std::span<const std::string> names);

}  // namespace gcomp::frontend
