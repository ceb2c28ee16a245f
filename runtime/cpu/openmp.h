// oneDNN as distributions build it brings OpenMP threads of its own. gcomp runs each library call on one thread of its pool, so
// those must stay out: a primitive takes the calling thread's OpenMP thread count both when it is created and when it runs.
#pragma once

namespace gcomp::runtime::cpu {

/// While it lives, OpenMP regions entered by this thread have one thread. Does nothing where no OpenMP runtime is loaded.
class SingleThreadedOpenMp {
 public:
  SingleThreadedOpenMp();
  ~SingleThreadedOpenMp();
  SingleThreadedOpenMp(const SingleThreadedOpenMp&) = delete;
  SingleThreadedOpenMp& operator=(const SingleThreadedOpenMp&) = delete;

 private:
  int before_ = 1;
};

}  // namespace gcomp::runtime::cpu
