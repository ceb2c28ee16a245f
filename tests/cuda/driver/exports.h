// Every function that the emulated libcuda exports, with the types that the runtime calls it by: a definition that differs does
// not compile.
#pragma once

#include "runtime/cuda/driver_api.h"
#include "tests/cuda/driver/driver.h"

namespace gcomp::emulated {

#define GCOMP_DECLARE(RESULT, NAME, PARAMETERS) GCOMP_EXPORT RESULT NAME PARAMETERS;
GCOMP_CUDA_DRIVER_FUNCTIONS(GCOMP_DECLARE)
#undef GCOMP_DECLARE

// Beside CUDA's: for the other emulated libraries, and for tests within a process.

/// Queues work of a library in a stream. `work` gives 0 or a CUresult, and is called once, or, in a captured graph, at each launch;
/// `release` frees `data` when neither can happen again.
GCOMP_EXPORT int gcompEmulatedQueue(CUstream stream, const char* label, int (*work)(void* data), void (*release)(void* data),
                                    void* data);
/// Has the work that runs now have taken so long, where times are told.
GCOMP_EXPORT void gcompEmulatedTook(long long microseconds);
/// Runs all that is queued, as a device does by itself in the end; from any thread.
GCOMP_EXPORT void gcompEmulatedProgress();
/// Of the GPU whose context is current; an error where none is.
GCOMP_EXPORT int gcompEmulatedUuid(CUuuid* uuid);
/// Whether live device or pinned memory holds all these bytes.
GCOMP_EXPORT int gcompEmulatedHolds(const void* address, std::size_t bytes);
/// How often an event was counted: a function's name, or "kernel", "copy", "synchronising".
GCOMP_EXPORT long long gcompEmulatedCount(const char* name);
/// A figure of the report: "device_allocations", "streams", ...
GCOMP_EXPORT long long gcompEmulatedFigure(const char* name);
/// Forgets everything and reads the environment again.
GCOMP_EXPORT void gcompEmulatedReset();

}  // namespace gcomp::emulated
