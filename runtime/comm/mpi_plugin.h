/* What gcomp and the plug-in for MPI agree on: a table of C functions, found by the symbol GCOMP_MPI_PLUGIN. The plug-in is the
 * only thing that links MPI, so that gcomp runs without one, and it is rebuilt for any other:
 *
 *   mpicxx -std=c++20 -O2 -shared -fPIC -I. runtime/comm/mpi_plugin.cpp -o libgcomp_mpi.so      (in gcomp's folder)
 *
 * Functions that give an int give 0 where all went well; else a text of what did not is in error(), of the calling thread. Sizes
 * are in bytes. Channels are communicators of all ranks, which number them alike: calls of channel 0 come from one thread, those of
 * channel 1, where there is one, from another. A call of channel 1 that waits leaves the processor to who can use it. */
#ifndef GCOMP_MPI_PLUGIN_H
#define GCOMP_MPI_PLUGIN_H

#include <stddef.h>

#define GCOMP_MPI_PLUGIN_VERSION 2
#define GCOMP_MPI_PLUGIN gcomp_mpi_plugin
#define GCOMP_MPI_PLUGIN_NAME "gcomp_mpi_plugin"

#ifdef __cplusplus
extern "C" {
#endif

struct GcompMpiPlugin {
  int version;                  /* GCOMP_MPI_PLUGIN_VERSION */
  const char* (*library)(void); /* "Open MPI v4.1.4, ..."; may be called before start() */
  int (*start)(void);           /* initializes MPI, unless the program has, and makes the channels */
  int (*stop)(void);            /* frees them, and finalizes MPI where start() initialized it; waits for all ranks */
  const char* (*error)(void);
  int (*rank)(void);
  int (*size)(void);
  const char* (*host)(void);
  int (*channels)(void); /* 2 where MPI serves several threads at the same time, else 1 */
  int (*all_to_all)(int channel, const void* send, void* receive, size_t part);
  int (*all_gather)(int channel, const void* send, void* receive, size_t part); /* receive may hold send at this rank's place */
  int (*broadcast)(int channel, void* data, size_t bytes, int root);
  void (*abort)(int exit_code);
};

extern const struct GcompMpiPlugin GCOMP_MPI_PLUGIN;

#ifdef __cplusplus
}
#endif

#endif
