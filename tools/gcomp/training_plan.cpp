// What gcomp train --plan-only prints beside what every run says before its first step.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gcomp/driver/training.h"
#include "ir/base/error.h"
#include "tools/gcomp/report.h"
#include "tools/gcomp/training_run.h"

namespace gcomp::tools {
namespace {

constexpr std::int64_t kColumns = 64, kRows = 8;

/// Of a rate, 0 to 1e-3.
std::string rate_text(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%9.3g", rate);
  return text;
}

/// The rate along what is left of the run: rows of equal height from 0 to the highest, a column for an equal part of the steps.
std::vector<std::string> drawn_schedule(const FitPlan& plan) {
  const std::int64_t first = plan.position.steps, left = plan.end() - first, columns = std::min(kColumns, left);
  if (left < 1) return {"all steps are done"};
  std::vector<double> rates;
  for (std::int64_t i = 0; i < columns; ++i)
    rates.push_back(plan.rate(first + i * (left - 1) / std::max<std::int64_t>(columns - 1, 1)));
  const double highest = *std::ranges::max_element(rates);
  std::vector<std::string> lines;
  for (std::int64_t row = kRows; row >= 1; --row) {
    std::string line = row == kRows ? rate_text(highest) : std::string(9, ' ');
    line += " |";
    for (const double rate : rates)
      line += highest > 0 && std::ceil(rate / highest * kRows) >= static_cast<double>(row) ? '*' : ' ';
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(line);
  }
  lines.push_back(rate_text(0) + " +" + std::string(static_cast<std::size_t>(columns), '-'));
  lines.push_back(concat(std::string(11, ' '), "step ", first + 1, " to ", plan.end()));
  return lines;
}

}  // namespace

void TrainingRun::report_plan(const FitPlan& plan) {
  runtime::HeldBytes held;
  for (const runtime::Executable* program : driver::step_programs_of(*trainer_).all()) {
    const runtime::HeldBytes own = program->held_bytes();
    held.arena += own.arena;
    held.constants += own.constants;
    held.inputs_and_outputs += own.inputs_and_outputs;
    held.workspace += own.workspace;
  }
  const std::int64_t states = driver::step_of(*trainer_).states().bytes();
  const std::int64_t total = states + held.arena + held.constants + held.inputs_and_outputs + held.workspace;
  console_.result(concat("plan: ", grouped(plan.steps), plan.steps == 1 ? " step" : " steps", " of ", plan.batch, " rows, ",
                         plan.steps_per_epoch, " an epoch",
                         plan.done > 0 ? concat(", ", grouped(plan.done), " of them done") : ""));
  console_.result(concat("memory of a step: ", bytes_text(total), ": parameters and other states ", bytes_text(states),
                         ", activations and gradients ", bytes_text(held.arena), ", constants ", bytes_text(held.constants),
                         ", inputs and outputs ", bytes_text(held.inputs_and_outputs), ", workspace of library calls ",
                         bytes_text(held.workspace)));
  console_.result(concat("learning rate: ", plan.schedule.empty() ? "constant" : plan.schedule,
                         flags_.warmup_steps > 0 ? concat(" after ", flags_.warmup_steps, " steps of warm-up") : ""));
  for (const std::string& line : drawn_schedule(plan)) console_.result(line);
  console_.result("nothing was run");
  console_.result_json({{"plan",
                         {{"steps", plan.steps},
                          {"batch", plan.batch},
                          {"steps_per_epoch", plan.steps_per_epoch},
                          {"dropped_rows", plan.dropped_rows},
                          {"first_rate", plan.rate(plan.position.steps)},
                          {"last_rate", plan.rate(plan.end() - 1)},
                          {"memory",
                           {{"states", states},
                            {"arena", held.arena},
                            {"constants", held.constants},
                            {"inputs_and_outputs", held.inputs_and_outputs},
                            {"workspace", held.workspace},
                            {"total", total}}}}}});
}

}  // namespace gcomp::tools
