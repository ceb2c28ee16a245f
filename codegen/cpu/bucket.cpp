#include "codegen/cpu/bucket.h"

#include "codegen/kernel.h"
#include "codegen/kernel_writer.h"
#include "ir/base/error.h"

namespace gcomp::codegen::cpu {
namespace {

/// A kernel over blocks of flat arrays.
std::string block_kernel(std::string_view declarations, std::string_view statement) {
  return indented(concat("extern \"C\" void ", kNamePlaceholder,
                         R"((void* const* p, long extent, long first, long last, int* fault) {
)",
                         declarations, R"(
const long end = gc_least(last * )",
                         kBucketBlock, R"(, extent);
for (long i = first * )",
                         kBucketBlock, "; i < end; ++i) ", statement, R"(
}
)"));
}

}  // namespace

BucketTexts bucket_texts(DType dtype) {
  const std::string type(storage_type_text(dtype));
  return {.copy = block_kernel(
              concat("const ", type, "* const from = (const ", type, "*)p[0];\n", type, "* const to = (", type, "*)p[1];"),
              "to[i] = from[i];"),
          .zero = block_kernel(concat(type, "* const to = (", type, "*)p[0];\nconst ", type, " zero = {};"), "to[i] = zero;")};
}

}  // namespace gcomp::codegen::cpu
