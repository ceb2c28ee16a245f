// The table itself.
#include "data/arrays/formats.h"

#include "data/format.h"
#include "data/images/formats.h"

namespace gcomp::data {
namespace {

constexpr const Format* kFormats[] = {
    &kNpzFormat,
    &kShardFormat,
    &kTarFormat,
    &kImagesFormat,
};

}  // namespace

std::span<const Format* const> formats() { return kFormats; }

}  // namespace gcomp::data
