// What an error leaves of a training: the steps before it, where their states are known to be whole.
#include "gcomp/driver/checkpoint_folder.h"
#include "gcomp/driver/fit/loop.h"
#include "gcomp/driver/fit/run_directory.h"
#include "ir/base/error.h"

namespace gcomp::driver {

/// Whether the states are, on all ranks, those after the last step that was started.
bool FitLoop::stands() {
  if (in_step_ || (ranks_.several() && !ranks_.have_ended())) return false;  // the other ranks do not know of the error
  try {
    take_losses(started_steps_ - 1, 0);
  } catch (const std::exception&) { return false; }
  for (const std::string& answer : ranks_.gather(has_finite_weights() ? "finite" : ""))
    if (answer.empty()) return false;
  return result_.steps == 0 || result_.skipped < result_.steps;
}

void FitLoop::keep_last_step(FitFailure& left) {
  const std::int64_t done = *left.stands_after;
  if (is_kept_ && checkpointed_steps_ != done) try {
      checkpoint(done - 1);
    } catch (const std::exception& error) { left.tolerated.emplace_back(error.what()); }
  position_.steps = done;
  trainer_.set_data_position(position_);
}

FitFailure FitLoop::leave() {
  leaving_ = true;
  FitFailure left;
  if (stands()) left.stands_after = first_ + result_.steps;
  left.steps = result_.steps;
  if (loader_) close_loader();
  left.tolerated = result_.tolerated;
  if (left.has_trained()) keep_last_step(left);
  trainer_.set_learning_rate(base_rate_);
  if (checkpoints_) checkpoints_->finish();
  if (!run_) return left;
  if (checkpoints_ && !checkpoints_->failures().empty()) left.tolerated.push_back(checkpoints_->failures());
  const std::vector<StepFolder> folders = step_folders(run_->checkpoints());
  if (!folders.empty()) left.checkpoint = folders.front().path.string();
  return left;
}

}  // namespace gcomp::driver
