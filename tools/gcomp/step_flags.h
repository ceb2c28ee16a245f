// Options of gcomp train and gcomp compile --train for what a step does beside loss and optimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gcomp/driver/step_settings.h"
#include "gcomp/trainer.h"
#include "tools/command_line/arguments.h"
#include "tools/gcomp/console.h"

namespace gcomp::tools {

struct StepFlags {
  std::vector<std::string> groups;
  std::optional<double> clip_norm, clip_value, ema, skip_spikes;
  bool skip_non_finite = false, sync_batchnorm = false;
  std::int64_t micro_batches = 1;
  std::string recompute, loss_chunks = "1";
  int zero = 1;
  double bucket_mib = 32;

  void add(ArgumentParser& parser);
  /// Throws UserError (exit 2) for what is out of range. `learning_rate` is the base rate.
  driver::StepSettings parse(double learning_rate) const;
};

void add_micro_batches(ArgumentParser& parser, std::int64_t& micro_batches);
void add_recompute(ArgumentParser& parser, std::string& recompute);
void add_loss_chunks(ArgumentParser& parser, std::string& loss_chunks);
/// StepSettings::loss_chunks of the flag's text. Throws UserError (exit 2) for what is no number of parts.
std::int64_t parse_loss_chunks(const std::string& loss_chunks);
/// StepSettings::most_memory of the flag's text. Throws UserError (exit 2) for what is no size.
std::optional<std::int64_t> parse_recompute(const std::string& recompute);

/// One line for each group with its counts and rate, and one for what is in none; nothing where there are no groups.
void report_groups(const Console& console, Trainer& trainer, double learning_rate);

}  // namespace gcomp::tools
