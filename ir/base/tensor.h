// The tensors of gcomp/tensor.h with all that is known of their element types and shapes.
#pragma once

#include "gcomp/tensor.h"
#include "ir/base/dtype.h"
#include "ir/base/shape.h"
