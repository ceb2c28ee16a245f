// The table itself.
#include "data/arrays/formats.h"

#include "data/format.h"
#include "data/images/formats.h"
#include "data/tables/formats.h"

namespace gcomp::data {
namespace {

constexpr const Format* kFormats[] = {
    &kNpzFormat,   &kNpyFormat, &kSafetensorsFormat, &kIdxFormat, &kCifarFormat, &kTokensFormat,
    &kShardFormat, &kTarFormat, &kImagesFormat,      &kCsvFormat, &kTsvFormat,
    &kTextFormat,  // any .txt that is UTF-8: after those with a form of their own
};

}  // namespace

std::span<const Format* const> formats() { return kFormats; }

}  // namespace gcomp::data
