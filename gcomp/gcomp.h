// The C++ API of gcomp in one include. Link gcomp::gcomp. Beside it stand ops.h (what a model written in C++ computes), arrays.h
// (NumPy's files), gradients.h, and loaded_model.h, which gcomp::runtime alone is enough for.
#pragma once

#include "gcomp/error.h"
#include "gcomp/model.h"
#include "gcomp/predictor.h"
#include "gcomp/tensor_view.h"
#include "gcomp/trainer.h"
#include "gcomp/version.h"
