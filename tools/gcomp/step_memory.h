// What a training step of several programs keeps in memory: the last part of `--emit plan` with --micro-batches.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "gcomp/driver/compile.h"

namespace gcomp::tools {

class StepMemory {
 public:
  /// A program of the step; states that programs share count once.
  void add(const std::string& name, const driver::LoweredGraph& lowered);
  /// Bytes by what they are for, and the largest arena, which programs that run one after another share on a GPU.
  std::string describe() const;
  std::int64_t state_bytes() const;
  std::int64_t bytes() const { return state_bytes() + constants_ + io_ + arena_; }

 private:
  struct Held {
    ir::StateRole role = ir::StateRole::parameter;
    std::int64_t bytes = 0;
  };
  std::map<std::string, Held> states_;
  std::int64_t constants_ = 0, io_ = 0, arena_ = 0;
  std::string largest_;  // program
};

}  // namespace gcomp::tools
