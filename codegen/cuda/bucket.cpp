#include "codegen/cuda/bucket.h"

#include "codegen/kernel.h"
#include "codegen/kernel_writer.h"
#include "ir/base/error.h"

namespace gcomp::codegen::cuda {
namespace {

constexpr int kBucketThreads = 256;

/// A block of threads for each block of elements of a segment, whose buffers `declarations` name.
std::string bucket_kernel(std::string_view declarations, std::string_view statement) {
  return indented(concat("extern \"C\" __global__ void __launch_bounds__(", kBucketThreads, ", 1) ", kNamePlaceholder,
                         R"((const SegmentTable* table, int* fault) {
const int segment = gc_segment(table);
const long long begin = (blockIdx.x - table->first_block[segment]) * (long long))",
                         kBucketBlock, R"(, rest = table->extents[segment] - begin;
)",
                         declarations, R"(
const int count = (int)(rest < )",
                         kBucketBlock, " ? rest : ", kBucketBlock, R"();
for (int i = (int)threadIdx.x; i < count; i += )",
                         kBucketThreads, ") ", statement, R"(
}
)"));
}

}  // namespace

BucketTexts bucket_texts(DType dtype) {
  const std::string type(storage_type_text(dtype));
  return {.copy = bucket_kernel(concat("const ", type, "* const from = (const ", type, "*)table->pointers[segment * 2];\n", type,
                                       "* const to = (", type, "*)table->pointers[segment * 2 + 1];"),
                                "to[begin + i] = from[begin + i];"),
          .zero = bucket_kernel(concat(type, "* const to = (", type, "*)table->pointers[segment];\nconst ", type, " zero = {};"),
                                "to[begin + i] = zero;"),
          .threads = kBucketThreads};
}

}  // namespace gcomp::codegen::cuda
