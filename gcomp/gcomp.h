// The C++ API of gcomp in one include. Link gcomp::gcomp.
#pragma once

#include "gcomp/model.h"
#include "gcomp/predictor.h"
#include "gcomp/tensor_view.h"
#include "gcomp/trainer.h"
#include "ir/base/error.h"
#include "ir/base/version.h"
