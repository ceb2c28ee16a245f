#include "tools/gcomp/pass_trace.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "ir/text/print.h"
#include "passes/pipeline.h"
#include "tools/gcomp/report.h"

namespace gcomp::tools {

PassTrace::PassTrace(const Console& console, std::string print_after) : console_(console), print_after_(std::move(print_after)) {
  if (!print_after_.empty() && print_after_ != "all") passes::require_pass(print_after_, "--print-after");
}

driver::CompileHooks PassTrace::hooks() {
  driver::CompileHooks hooks;
  hooks.phase = [this](std::string_view phase, double seconds) { rows_.push_back({std::string(phase), seconds, {}, false}); };
  hooks.pass = [this](std::string_view pass, const ir::Graph& graph, bool changed, double seconds) {
    rows_.push_back({std::string(pass), seconds, changed ? concat(graph.nodes().size(), " nodes") : "no change", true});
    if (print_after_ == "all" || print_after_ == pass)
      console_.result(concat("// ---- after ", pass, changed ? "" : " (no change)", "\n", ir::print(graph)));
  };
  hooks.internal_error = [this](const ir::Graph& graph, const std::string& error) {
    report_internal_error(console_, graph, error);
  };
  return hooks;
}

runtime::KernelSink PassTrace::kernels() {
  return [this](const runtime::KernelReport& report) {
    add("kernels", report.seconds,
        concat(report.kernels, report.kernels == 1 ? " kernel, " : " kernels, ",
               report.cached ? "warm: taken from the cache, 0 compiled" : "cold: compiled"));
  };
}

void PassTrace::add(const std::string& phase, double seconds, const std::string& note) {
  rows_.push_back({phase, seconds, note, false});
}

void PassTrace::report() const {
  double total = 0;
  for (const Row& row : rows_) {
    char text[64];
    std::snprintf(text, sizeof text, "%12.3f ms  ", 1e3 * row.seconds);
    console_.result(concat(text, row.pass ? "    " : "", row.name, row.note.empty() ? "" : "  (" + row.note + ")"));
    if (!row.pass) total += row.seconds;
  }
  char text[64];
  std::snprintf(text, sizeof text, "%12.3f ms  total", 1e3 * total);
  console_.result(text);
}

nlohmann::json PassTrace::json() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : rows_)
    rows.push_back({{"name", row.name}, {"seconds", row.seconds}, {"note", row.note}, {"pass", row.pass}});
  return rows;
}

}  // namespace gcomp::tools
