// The C interfaces of NVIDIA's libraries as far as gcomp calls them, declared here so that no CUDA header is needed to build.
#pragma once

#include "runtime/cuda/cublaslt_api.h"
#include "runtime/cuda/cudnn_api.h"
#include "runtime/cuda/driver_api.h"
#include "runtime/cuda/nvrtc_api.h"
