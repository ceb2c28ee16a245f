// Options of gcomp train for the run as a whole: its folder, how often what is told, when it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gcomp/fit.h"
#include "tools/command_line/arguments.h"

namespace gcomp::tools {

struct FitFlags {
  std::string run_dir, config, early_stop, save_best, max_time, checkpoint_every, drop_last = "true";
  std::optional<std::int64_t> eval_every, log_every, keep, workers;
  std::int64_t prefetch = 4;
  std::string on_bad_sample = "stop";
  bool resume = false, overwrite = false, plan_only = false, print_config = false;

  void add(ArgumentParser& parser);
  /// Throws UserError (exit 2) for options that do not go together, and for a time that cannot be read.
  void check() const;
  EarlierRun earlier() const;
  /// Of the threads that read data.
  void add_loader(ArgumentParser& parser);
  /// Adds what they say. Throws as check().
  void apply(FitOptions& options) const;
};

/// "30s", "10m", "2h" or "1.5h" in seconds. Throws UserError (exit 2) that names `flag`.
double parse_duration(std::string_view text, const std::string& flag);

}  // namespace gcomp::tools
