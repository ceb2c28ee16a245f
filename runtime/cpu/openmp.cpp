#include "runtime/cpu/openmp.h"

#include <dlfcn.h>

namespace gcomp::runtime::cpu {
namespace {

// Looked up, not linked: the runtime that matters is the one that oneDNN was linked with, libgomp or libomp.
struct OpenMp {
  int (*get_max_threads)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  void (*set_num_threads)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
};

const OpenMp& openmp() {
  static const OpenMp functions;
  return functions;
}

}  // namespace

SingleThreadedOpenMp::SingleThreadedOpenMp() {
  if (!openmp().get_max_threads || !openmp().set_num_threads) return;
  before_ = openmp().get_max_threads();
  openmp().set_num_threads(1);
}

SingleThreadedOpenMp::~SingleThreadedOpenMp() {
  if (openmp().set_num_threads) openmp().set_num_threads(before_);
}

}  // namespace gcomp::runtime::cpu
