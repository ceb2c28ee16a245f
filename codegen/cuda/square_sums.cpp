#include "codegen/cuda/square_sums.h"

#include "codegen/kernel.h"
#include "codegen/kernel_writer.h"
#include "ir/base/error.h"
#include "ir/square_sums.h"

namespace gcomp::codegen::cuda {

std::string square_sums_text(DType dtype) {
  using ir::kSquareSumBlock, ir::kSquareSumPlace;
  return indented(concat("extern \"C\" __global__ void __launch_bounds__(", kSquareSumThreads, ", 1) ", kNamePlaceholder,
                         R"((const SegmentTable* table, int* fault) {
__shared__ double shared[)",
                         kSquareSumThreads / 32, R"(];
const int segment = gc_segment(table);
const long long extent = table->extents[segment];
const )",
                         storage_type_text(dtype), "* const x = (const ", storage_type_text(dtype),
                         R"(*)table->pointers[segment * 2];
double* const sums = (double*)table->pointers[segment * 2 + 1];
const long long block = blockIdx.x - table->first_block[segment];
const long long begin = block * )",
                         kSquareSumBlock, R"(, rest = extent - begin;
const int count = (int)(rest < )",
                         kSquareSumBlock, " ? rest : ", kSquareSumBlock, R"();
double s = 0;
for (int i = (int)threadIdx.x; i < count; i += )",
                         kSquareSumThreads, R"() {
const double v = (double)x[begin + i];
s += v * v;
}
s = gc_combine_block<)",
                         kSquareSumThreads, R"(>(s, gc_combine_sum(), shared);
if (threadIdx.x != 0) return;
sums[block] = s;
if (rest <= )",
                         kSquareSumBlock, R"()
for (long long i = block + 1; i % )",
                         kSquareSumPlace, R"( != 0; ++i) sums[i] = 0;
}
)"));
}

}  // namespace gcomp::codegen::cuda
