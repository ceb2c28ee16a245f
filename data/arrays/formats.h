// Formats of arrays with rows of equal size.
#pragma once

#include "data/format.h"

namespace gcomp::data {

extern const Format kNpzFormat, kNpyFormat, kSafetensorsFormat, kIdxFormat, kCifarFormat, kTokensFormat, kTextFormat;

}  // namespace gcomp::data
