#include "data/source.h"

#include "ir/base/error.h"

namespace gcomp::data {

std::string Source::where(std::int64_t row) const { return concat("'", source(), "', row ", row); }

}  // namespace gcomp::data
