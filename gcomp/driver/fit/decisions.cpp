#include "gcomp/driver/fit/decisions.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

using nlohmann::json;

json finite_or_null(double value) { return std::isfinite(value) ? json(value) : json(); }
double number_or(const json& value, double other) { return value.is_null() ? other : value.get<double>(); }

/// Does `read`; what the JSON library throws becomes a UserError.
template <class Read>
void reading(const char* what, const Read& read) {
  try {
    read();
  } catch (const json::exception& error) {
    throw UserError(concat("the ", what, " of the checkpoint cannot be read: ", error.what()));
  }
}

}  // namespace

Decisions Decisions::of(const FitOptions& options, std::optional<Schedule>& schedule, std::span<const std::string> metrics,
                        bool keeps_files) {
  const auto needs_evaluations = [&](const std::string& flag) {
    if (!options.eval) throw UserError(concat(flag, ": there is no --eval-data to evaluate"), ExitCode::usage);
  };
  Decisions made;
  if (!options.early_stop.empty()) {
    needs_evaluations("--early-stop " + options.early_stop);
    made.early_stop.emplace(options.early_stop, metrics);
  }
  if (!options.save_best.empty()) {
    const std::string what = "--save-best " + options.save_best;
    needs_evaluations(what);
    if (!options.run && keeps_files) throw UserError(concat(what, ": there is no --run-dir to keep it in"), ExitCode::usage);
    made.best.emplace(follow_metric(options.save_best, metrics, what));
  }
  if (schedule && schedule->plateau()) {
    const std::string name = schedule->plateau()->metric(), what = concat("--schedule ", options.schedule);
    if (!options.eval && name != "loss") needs_evaluations(what);
    made.plateau_metric = follow_metric(name, metrics, what);
    schedule->plateau()->set_order(made.plateau_metric->higher_is_better, what);
  }
  if (options.skip_spikes > 0) made.spikes.emplace(options.skip_spikes);
  return made;
}

std::string schedule_state(const std::optional<Schedule>& schedule) {
  if (!schedule || !schedule->plateau()) return "null";
  const PlateauState& state = schedule->plateau()->state();
  return json{{"rate", state.rate}, {"best", finite_or_null(state.best)}, {"bad", state.bad}, {"cooldown", state.cooldown}}.dump();
}

void set_schedule_state(std::optional<Schedule>& schedule, const std::string& text) {
  if (!schedule || !schedule->plateau()) return;
  reading("schedule's state", [&] {
    const json object = json::parse(text);
    PlateauState state = schedule->plateau()->state();
    state.rate = object.at("rate").get<double>();
    state.best = number_or(object.at("best"), state.best);
    state.bad = object.at("bad").get<std::int64_t>();
    state.cooldown = object.at("cooldown").get<std::int64_t>();
    schedule->plateau()->set_state(state);
  });
}

std::string loop_state(const Decisions& decisions) {
  json object{{"epoch_loss", {{"sum", finite_or_null(decisions.epoch_loss.sum)}, {"rows", decisions.epoch_loss.rows}}},
              {"skipped_in_a_row", decisions.skipped_in_a_row}};
  if (decisions.evaluation_due) object["evaluation_due"] = true;
  if (decisions.early_stop)
    object["early_stop"] = {{"best", finite_or_null(decisions.early_stop->best().best())}, {"bad", decisions.early_stop->bad()}};
  if (decisions.best) object["best"] = {{"value", finite_or_null(decisions.best->best())}, {"step", decisions.best_step}};
  if (decisions.spikes)
    object["spikes"] = {{"losses", decisions.spikes->losses().values()}, {"norms", decisions.spikes->norms().values()}};
  return object.dump();
}

void set_loop_state(Decisions& decisions, const std::string& text) {
  reading("loop's state", [&] {
    const json object = json::parse(text);
    const json& epoch = object.at("epoch_loss");
    decisions.epoch_loss = {number_or(epoch.at("sum"), std::nan("")), epoch.at("rows").get<std::int64_t>()};
    decisions.skipped_in_a_row = object.at("skipped_in_a_row").get<std::int64_t>();
    decisions.evaluation_due = object.value("evaluation_due", false);
    if (decisions.early_stop) {
      const json& stop = object.at("early_stop");
      decisions.early_stop->set_state(number_or(stop.at("best"), decisions.early_stop->best().best()),
                                      stop.at("bad").get<std::int64_t>());
    }
    if (decisions.best) {
      decisions.best->set_best(number_or(object.at("best").at("value"), decisions.best->best()));
      decisions.best_step = object.at("best").at("step").get<std::int64_t>();
    }
    if (decisions.spikes)
      decisions.spikes->set_windows(object.at("spikes").at("losses").get<std::vector<double>>(),
                                    object.at("spikes").at("norms").get<std::vector<double>>());
  });
}

}  // namespace gcomp::driver
