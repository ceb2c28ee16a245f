// What NVIDIA's own cuDNN looks up in a driver before it offers the engines that it compiles at run time. Offline (cudnn/offline)
// none of it is called; if it were, it would not be supported.
#define GCOMP_LOOKED_UP(NAME) \
  extern "C" __attribute__((visibility("default"))) int NAME() { return 801; }

GCOMP_LOOKED_UP(cuCtxGetCurrent)
GCOMP_LOOKED_UP(cuCtxGetLimit)
GCOMP_LOOKED_UP(cuCtxPopCurrent)
GCOMP_LOOKED_UP(cuCtxPushCurrent)
GCOMP_LOOKED_UP(cuKernelGetAttribute)
GCOMP_LOOKED_UP(cuKernelGetFunction)
GCOMP_LOOKED_UP(cuKernelSetAttribute)
GCOMP_LOOKED_UP(cuLaunchCooperativeKernel)
GCOMP_LOOKED_UP(cuLaunchKernelEx)
GCOMP_LOOKED_UP(cuLibraryGetKernel)
GCOMP_LOOKED_UP(cuLibraryLoadData)
GCOMP_LOOKED_UP(cuLibraryLoadFromFile)
GCOMP_LOOKED_UP(cuLibraryUnload)
GCOMP_LOOKED_UP(cuLinkAddData)
GCOMP_LOOKED_UP(cuLinkComplete)
GCOMP_LOOKED_UP(cuLinkCreate)
GCOMP_LOOKED_UP(cuLinkDestroy)
GCOMP_LOOKED_UP(cuOccupancyMaxPotentialClusterSize)
GCOMP_LOOKED_UP(cuStreamGetCtx)
