// Buckets on a GPU (codegen/bucket.h).
#pragma once

#include "codegen/bucket.h"
#include "ir/base/dtype.h"

namespace gcomp::codegen::cuda {

BucketTexts bucket_texts(DType dtype);

}  // namespace gcomp::codegen::cuda
