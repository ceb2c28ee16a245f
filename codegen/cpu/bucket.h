// Buckets on the CPU (codegen/bucket.h).
#pragma once

#include "codegen/bucket.h"
#include "ir/base/dtype.h"

namespace gcomp::codegen::cpu {

BucketTexts bucket_texts(DType dtype);

}  // namespace gcomp::codegen::cpu
