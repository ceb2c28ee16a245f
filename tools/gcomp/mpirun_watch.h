// Whether mpirun still has somebody to wait for. Open MPI's mpirun can stop for good in its own end, when a rank was killed as it
// began: what started it would wait for ever.
#pragma once

#include <sys/types.h>

#include <optional>

namespace gcomp::tools {

class MpirunWatch {
 public:
  explicit MpirunWatch(pid_t mpirun) : mpirun_(mpirun) {}

  /// Asked every few seconds in which mpirun says nothing: whether for some questions now it has had no child that lives.
  bool is_left_alone();
  /// How a child ended that mpirun has not taken note of, as waitpid() has it.
  std::optional<int> left_status() const { return left_status_; }

 private:
  pid_t mpirun_;
  bool had_children_ = false;
  int questions_alone_ = 0;
  std::optional<int> left_status_;
};

}  // namespace gcomp::tools
