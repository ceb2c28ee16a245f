// Formats of tables: text with a record a line.
#pragma once

#include "data/format.h"

namespace gcomp::data {

extern const Format kCsvFormat, kTsvFormat;

}  // namespace gcomp::data
