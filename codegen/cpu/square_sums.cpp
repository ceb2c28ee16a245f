#include "codegen/cpu/square_sums.h"

#include "codegen/kernel.h"
#include "codegen/kernel_writer.h"
#include "ir/base/error.h"
#include "ir/square_sums.h"

namespace gcomp::codegen::cpu {

std::string square_sums_text(DType dtype) {
  using ir::kSquareSumBlock, ir::kSquareSumPlace;
  return indented(concat("extern \"C\" void ", kNamePlaceholder,
                         R"((void* const* p, long extent, long first, long last, int* fault) {
const )",
                         storage_type_text(dtype), "* const x = (const ", storage_type_text(dtype), R"(*)p[0];
double* const sums = (double*)p[1];
for (long block = first; block < last; ++block) {
long i = block * )",
                         kSquareSumBlock, R"(;
const long end = gc_least(i + )",
                         kSquareSumBlock, R"(, extent);
double s[16] = {};
for (; i + 16 <= end; i += 16)
for (int k = 0; k < 16; ++k) s[k] += (double)x[i + k] * (double)x[i + k];
for (int k = 0; i < end; ++i, ++k) s[k] += (double)x[i] * (double)x[i];
for (int width = 8; width > 0; width /= 2)
for (int k = 0; k < width; ++k) s[k] += s[k + width];
sums[block] = s[0];
}
const long blocks = extent > 0 ? (extent + )",
                         kSquareSumBlock - 1, ") / ", kSquareSumBlock, R"( : 1;
if (last == blocks)
for (long i = blocks; i % )",
                         kSquareSumPlace, R"( != 0; ++i) sums[i] = 0;
}
)"));
}

}  // namespace gcomp::codegen::cpu
