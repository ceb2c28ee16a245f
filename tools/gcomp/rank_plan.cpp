#include "tools/gcomp/rank_plan.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "gcomp/driver/saved_model.h"
#include "ir/base/error.h"
#include "ir/base/units.h"
#include "ir/tree_sum.h"
#include "tools/gcomp/rate_flags.h"

namespace gcomp::tools {
namespace {

namespace scale = codegen::scale;
using runtime::CollectiveCall;
using runtime::CollectiveKind;
using runtime::Program;

const CollectiveCall* exchange_of(const runtime::Step& step) { return std::get_if<CollectiveCall>(&step); }

bool has_exchange(const Program& program) {
  return std::ranges::any_of(program.steps, [](const runtime::Step& step) { return exchange_of(step) != nullptr; });
}

scale::Costed costed_program(const RankPlan& plan, std::string_view name) {
  const auto found = std::ranges::find(plan.programs, name, [](const NamedProgram& p) -> std::string_view { return p.name; });
  if (found == plan.programs.end()) return {};
  return {&found->counted.program, found->counted.costs};
}

scale::StepTimes simulate_beside(const RankPlan& plan, const codegen::DeviceRates& rates, const scale::Links& links, int zero) {
  const scale::RankStep step =
      scale::rank_step(costed_program(plan, driver::kShardProgram), costed_program(plan, driver::kCountProgram),
                       costed_program(plan, driver::kTrainingProgram), rates, scale::Segments::together);
  return scale::simulate(step, plan.ranks, plan.shards, {.links = links, .zero = zero, .update_share = 1});
}

void add_fact(std::string& text, std::string_view name, const std::string& fact) {
  text += concat("  ", name, std::string(name.size() < 22 ? 22 - name.size() : 1, ' '), fact, "\n");
}

std::string step_text(double seconds, double compute) {
  return concat(time_text(seconds), ", exposed ", time_text(seconds - compute), ", efficiency ", percent_text(compute / seconds));
}

std::string exchange_lines(const RankPlan& plan, const scale::Links& links) {
  std::string text;
  for (const NamedProgram& program : plan.programs)
    for (std::size_t i = 0; i < program.counted.program.steps.size(); ++i) {
      const CollectiveCall* call = exchange_of(program.counted.program.steps[i]);
      if (!call) continue;
      const scale::ExchangeTime time = scale::time_of(*call, links);
      char line[200];
      std::snprintf(line, sizeof line, "    %-22s %4zu %-12s %12s %12s %12s %12s\n", program.name.c_str(), i,
                    std::string(name_of(call->kind)).c_str(), size_text(scale::sent_bytes(*call)).c_str(),
                    time_text(time.seconds()).c_str(), time_text(time.latency).c_str(), time_text(time.wire).c_str());
      text += line;
    }
  return text;
}

}  // namespace

std::int64_t RankPlan::runs_of(const std::string& program) const {
  if (program == driver::kShardProgram || program == driver::kCountProgram) return shards;
  const std::string_view combine = driver::kCombineProgram;
  if (!program.starts_with(combine)) return 1;
  int level = 0;
  std::from_chars(program.data() + combine.size(), program.data() + program.size(), level);
  return ir::additions_at(level, ir::own_nodes(shards * ranks, ranks, passes::takes_turns(sharding)));
}

RankTimes times_of(const RankPlan& plan, const codegen::DeviceRates& rates, const scale::Links& links) {
  RankTimes times;
  for (const NamedProgram& named : plan.programs) {
    const Program& program = named.counted.program;
    const auto runs = static_cast<double>(plan.runs_of(named.name));
    const bool of_shards = named.name == driver::kShardProgram || named.name == driver::kLockStepProgram;
    const bool exchanges = has_exchange(program) && !of_shards && named.name != driver::kTrainingProgram;
    times.in_shards = times.in_shards || (of_shards && has_exchange(program));
    for (const double seconds : scale::step_seconds({&program, named.counted.costs}, rates))
      (exchanges ? times.kernels : times.compute) += runs * seconds;
    for (const runtime::Step& step : program.steps)
      if (const CollectiveCall* call = exchange_of(step)) {
        const scale::ExchangeTime time = scale::time_of(*call, links);
        times.between += {runs * time.latency, runs * time.wire};
        times.sent_bytes += runs * scale::sent_bytes(*call);
      }
  }
  if (!times.in_shards) times.beside = simulate_beside(plan, rates, links, std::min(passes::stage_of(plan.sharding), 1));
  return times;
}

std::string describe_ranks(const RankPlan& plan, const codegen::DeviceRates& rates, const scale::Links& links) {
  const RankTimes times = times_of(plan, rates, links);
  std::string text = concat("a step of ", plan.ranks, " ranks with ", plan.shards,
                            plan.shards == 1 ? " micro-batch each\n" : " micro-batches each\n");
  add_fact(text, "links", text_of(links));
  add_fact(text, "sent", concat(size_text(times.sent_bytes), " from each rank"));
  add_fact(text, "exchanges",
           concat(time_text(times.exchange()), ": messages ", time_text(times.between.latency), ", bytes ",
                  time_text(times.between.wire), ", kernels that pack and add ", time_text(times.kernels)));
  add_fact(text, concat("computing on ", rates.name), concat(time_text(times.compute), " a rank at the least"));
  add_fact(text, "one after another", step_text(times.seconds(), times.compute));
  if (!times.in_shards)
    add_fact(
        text, "side by side",
        concat(step_text(times.beside.seconds, times.beside.compute), " (simulated, ZeRO ", passes::stage_of(plan.sharding), ")"));
  text += "    program                step exchange             sent         time      latency         wire\n";
  return text + exchange_lines(plan, links);
}

}  // namespace gcomp::tools
