// Processes that a launcher started together, told by the variables that it sets. Nothing here reads the environment by itself.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gcomp::runtime::comm {

/// A variable of the environment, null where it is unset: getenv.
using Environment = std::function<const char*(const char*)>;

struct Launched {
  std::string launcher;  ///< "mpirun (Open MPI)", "srun", ...
  int rank = 0, size = 1;
  int on_this_machine = 1;  ///< ranks; 1 where the launcher does not say

  bool operator==(const Launched&) const = default;
};

/// By Open MPI's variables, those of PMI (MPICH, Intel MPI), or those of srun where it starts MPI processes; none where there is no
/// launcher. Throws UserError (exit 2) for variables that are no numbers or do not fit each other.
std::optional<Launched> launched_by(const Environment& variable);

struct MpirunRequest {
  int ranks = 1;
  std::string program;                 ///< its path
  std::vector<std::string> arguments;  ///< without the program's name
  bool is_root = false;                ///< Open MPI then wants to be told that this is meant
  int processors = 1;
};
/// The words of the command that starts so many copies: mpirun's own options, the program, its arguments. Ranks are bound to no
/// processor, as each has threads of its own.
std::vector<std::string> mpirun_command(const MpirunRequest& request);

/// What mpirun says on stderr, line by line, as a user of gcomp is to see it: ranks say by themselves why they end, so that of
/// mpirun's blocks of explanation only what no rank could say is left: one that a signal ended, or what mpirun itself lacks.
class MpirunReport {
 public:
  /// What to show now of one more line, which has no end of line; often the line itself, or "".
  std::string line(const std::string& line);
  /// What is left at the end.
  std::string end();
  /// The signal that ended a rank, where mpirun has said so.
  const std::optional<int>& signal() const { return signal_; }

 private:
  std::string shown(const std::string& block);

  std::optional<int> signal_;
  bool in_block_ = false;
  std::string block_;
};

}  // namespace gcomp::runtime::comm
