// The folder of a training: what it was asked for, what it said, how it went, and what came of it.
//
//   config.json      every option with its value and where that came from
//   run.json         versions, seeds, hardware, SHA-256 of model and data, and how the run ended
//   metrics.jsonl    a JSON object a line for each step and evaluation; metrics.csv has its numbers as a table
//   events.out.*     the same for TensorBoard
//   log.txt          what was said
//   last.onnx        the weights at the end, or at an interruption; last.gcx where the model came from no ONNX file. Beyond 2 GiB
//                    weights are in last.onnx.data, as of best.onnx in best.onnx.data
//   best.onnx        with FitOptions::save_best, what was evaluated best: the averages where there are any
//   checkpoints/     with FitOptions::checkpoint_every
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gcomp/owned.h"
#include "gcomp/path.h"

namespace gcomp {

/// What becomes of a run that is there already.
enum class EarlierRun : std::uint8_t {
  refuse,
  resume,     ///< it goes on; where there is none, or nothing to go on from, a new one starts
  overwrite,  ///< it is removed when the new one's first step is about to run
};

/// While it is alive no other process has the folder. That ends with the process, however it ends.
class RunDirectory {
 public:
  /// Makes the folder where there is none. Throws UserError where it cannot be written, another process has it, it holds a run that
  /// is to be refused (exit 2), or other files and no run.
  explicit RunDirectory(const Path& path, EarlierRun earlier = EarlierRun::refuse);
  RunDirectory(RunDirectory&&) noexcept;
  RunDirectory& operator=(RunDirectory&&) noexcept;
  /// A folder that the constructor made and in which nothing began is removed.
  ~RunDirectory();

  const std::string& path() const;
  /// Whether there is a run that goes on.
  bool goes_on() const;
  /// Of a run that goes on what its newest checkpoint says of DeviceOptions::tune: for DeviceOptions::timed_choices of the device
  /// that it goes on with. "" where nothing was timed. Throws UserError where a later gcomp wrote it otherwise.
  std::string timed_choices() const;
  /// A line for log.txt, once the run has begun; those from before come first.
  void log(std::string_view line);
  /// What config.json is to hold: a JSON object. Without it, fit() writes its FitOptions.
  void set_config(std::string_view json);

  struct Impl;  // gcomp/driver/fit/run_directory.h, in the source tree
  Impl& impl() { return *impl_; }
  const Impl& impl() const { return *impl_; }

 private:
  Owned<Impl> impl_;
};

}  // namespace gcomp
