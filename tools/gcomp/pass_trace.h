// Watching a compilation: the graph after a pass, and where the time went.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gcomp/driver/compile.h"
#include "runtime/device.h"
#include "tools/gcomp/console.h"

namespace gcomp::tools {

class PassTrace {
 public:
  /// `print_after` is "", the name of a pass, or "all". Throws UserError (exit 2) with the nearest name of a pass.
  PassTrace(const Console& console, std::string print_after);

  /// The hooks refer to this object.
  driver::CompileHooks hooks();
  runtime::KernelSink kernels();
  /// Adds a phase that the hooks do not see.
  void add(const std::string& phase, double seconds, const std::string& note = {});
  /// A table on stdout: phases, with the passes below theirs.
  void report() const;
  nlohmann::json json() const;

 private:
  struct Row {
    std::string name;
    double seconds = 0;
    std::string note;
    bool pass = false;
  };
  const Console& console_;
  std::string print_after_;
  std::vector<Row> rows_;
};

}  // namespace gcomp::tools
