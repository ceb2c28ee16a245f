#include "tools/gcomp/report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "ir/print.h"
#include "runtime/atomic_file.h"

namespace gcomp::tools {
namespace {

void report_list(const Console& console, const frontend::Model& model, bool trained) {
  std::size_t count = 0, width = 0;
  std::int64_t elements = 0;
  for (const frontend::Parameter& p : model.parameters) {
    if (p.trained != trained) continue;
    ++count;
    elements += p.type.elements();
    width = std::max(width, std::min<std::size_t>(p.name.size(), 48));
  }
  console.say(concat(trained ? "trained: " : "frozen: ", count, trained ? " parameter" : " initializer", count == 1 ? ", " : "s, ",
                     grouped(elements), " values"));
  for (const frontend::Parameter& p : model.parameters) {
    if (p.trained != trained) continue;
    const std::string pad(width > p.name.size() ? width - p.name.size() : 0, ' ');
    console.say(concat("  ", p.name, pad, "  ", to_string(p.type), "  ", p.reason,
                       p.doubtful ? "; doubtful: it may be a buffer, nothing in the file tells (--freeze it then)" : ""));
  }
}

}  // namespace

std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string bytes_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

void report_parameters(const Console& console, const frontend::Model& model) {
  report_list(console, model, true);
  report_list(console, model, false);
  for (const std::string& repair : model.repairs) console.say("note: " + repair);
}

void report_internal_error(const Console& console, const ir::Graph& graph, const std::string& error) {
  std::error_code failed;
  std::filesystem::path folder = std::filesystem::temp_directory_path(failed);
  const std::filesystem::path path = (failed ? std::filesystem::path("/tmp") : folder) / ("gcomp-" + graph.name() + "-failure.gir");
  try {
    const std::string text = ir::print(graph);
    runtime::write_file(path, std::as_bytes(std::span(text)));
  } catch (const std::exception& problem) {
    console.warn(concat("no reproducer could be saved: ", problem.what()));
    return;
  }
  console.error("gcomp failed on this graph: " + error);
  console.error("it is a fault of gcomp; the graph is saved, and this command shows the failure again:");
  console.error("  gcomp-opt " + path.string() + " --passes=all");
}

}  // namespace gcomp::tools
