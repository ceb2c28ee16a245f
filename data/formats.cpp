// The table itself.
#include "data/arrays/formats.h"

#include "data/format.h"

namespace gcomp::data {
namespace {

constexpr const Format* kFormats[] = {
    &kNpzFormat,
};

}  // namespace

std::span<const Format* const> formats() { return kFormats; }

}  // namespace gcomp::data
