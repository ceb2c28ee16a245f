#include "tools/gcomp/report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

#include "ir/text/print.h"
#include "passes/training/training.h"
#include "runtime/files/atomic_file.h"

namespace gcomp::tools {
namespace {

/// A parameter's place in the report.
enum class Part { trained, tied, statistic, frozen };

struct PartRow {
  Part part;
  const char *title, *noun;
  bool always;  ///< whether the line stands where nothing is of this part
};
constexpr PartRow kParts[] = {{Part::trained, "trained: ", " parameter", true},
                              {Part::tied, "tied: ", " initializer", false},
                              {Part::statistic, "updated by each step: ", " running statistic", false},
                              {Part::frozen, "frozen: ", " initializer", true}};

Part part_of(const frontend::Parameter& p) {
  if (p.trained) return Part::trained;
  if (!p.tied_to.empty()) return Part::tied;
  return p.updated ? Part::statistic : Part::frozen;
}

const char* doubt(const frontend::Parameter& p) {
  if (!p.doubtful) return "";
  return p.trained ? "; doubtful: it may be a buffer, nothing in the file tells (--freeze it then)"
                   : "; doubtful: it may be a parameter, nothing in the file tells (--thaw it then)";
}

/// "val_14 (fc.weight)" where the file's name is not the model's.
std::string shown_name(const frontend::Parameter& p) {
  return p.likely_name.empty() ? p.name : concat(p.name, " (", p.likely_name, ")");
}

struct ReportRow {
  std::string name;
  const TensorType& type;
  std::string reason;
};

std::vector<ReportRow> rows_of(const frontend::ImportedModel& model, Part part) {
  std::vector<ReportRow> rows;
  for (const frontend::Parameter& p : model.parameters)
    if (part_of(p) == part) rows.push_back({shown_name(p), p.type, concat(p.reason, doubt(p))});
  if (part == Part::frozen)
    for (const frontend::FixedWeight& weight : model.fixed) rows.push_back({weight.name, weight.type, weight.place});
  return rows;
}

void report_part(const Console& console, const frontend::ImportedModel& model, const PartRow& part) {
  const std::vector<ReportRow> rows = rows_of(model, part.part);
  std::size_t width = 0;
  std::int64_t elements = 0;
  for (const ReportRow& row : rows) {
    elements += row.type.elements();
    width = std::max(width, std::min<std::size_t>(row.name.size(), 48));
  }
  if (rows.empty() && !part.always) return;
  console.say(concat(part.title, rows.size(), part.noun, rows.size() == 1 ? ", " : "s, ", grouped(elements), " values"));
  for (const ReportRow& row : rows) {
    const std::string pad(width > row.name.size() ? width - row.name.size() : 0, ' ');
    console.say(concat("  ", row.name, pad, "  ", to_string(row.type), "  ", row.reason));
  }
}

/// A note with its names and numbers taken out: equal for notes that say the same of different things.
std::string skeleton(const std::string& note) {
  std::string text;
  for (std::size_t i = 0; i < note.size(); ++i) {
    const std::size_t end = note[i] == '\'' ? note.find('\'', i + 1) : std::string::npos;
    if (end != std::string::npos) {
      for (const char* joint : {"?, ", "? and "})  // a list of names counts as one name
        if (text.ends_with(joint)) text.resize(text.size() - std::string_view(joint).size());
      text += '?';
      i = end;
    } else if (note[i] < '0' || note[i] > '9') text += note[i];
    else if (!text.ends_with('#')) text += '#';
  }
  return text;
}

/// The first name in quotes, with its quotes.
std::string first_name(const std::string& note) {
  const std::size_t begin = note.find('\''), end = note.find('\'', begin + 1);
  return end == std::string::npos ? note : note.substr(begin, end + 1 - begin);
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

std::vector<std::string> merge_notes(const std::vector<std::string>& notes) {
  constexpr std::size_t kNamed = 3, kLongLine = 180;
  std::vector<std::pair<std::string, std::vector<const std::string*>>> groups;
  for (const std::string& note : notes) {
    const std::string key = skeleton(note);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& known) { return known.first == key; });
    if (group == groups.end()) group = groups.insert(groups.end(), {key, {}});
    group->second.push_back(&note);
  }
  std::vector<std::string> merged;
  for (const auto& [key, members] : groups) {
    std::string& line = merged.emplace_back(*members[0]);
    if (members.size() == 1) continue;
    const std::size_t others = members.size() - 1, named = std::min(others, kNamed);
    line += concat("; and ", others, others == 1 ? " more note like this, of " : " more notes like this, of ");
    std::size_t shown = 0;
    for (std::size_t i = 1; i <= named && (shown == 0 || line.size() < kLongLine); ++i, ++shown)
      line += concat(i > 1 ? ", " : "", first_name(*members[i]));
    if (others > shown) line += " ...";
  }
  return merged;
}

void report_parameters(const Console& console, const frontend::ImportedModel& model) {
  for (const PartRow& row : kParts) report_part(console, model, row);
  for (const std::string& note : merge_notes(model.repairs)) console.say("note: " + note);
  report_unfolded(console, model);
}

void report_unfolded(const Console& console, const frontend::ImportedModel& model) {
  if (model.unfolded) console.say("note: " + *model.unfolded);
}

void report_outputs(const Console& console, const frontend::ImportedModel& model, const std::string& loss,
                    const std::string& output) {
  const std::vector<std::string>& names = model.outputs;
  if (output.empty()) return;  // the loss names what it looks at
  if (names.size() == 1 && !model.outputs_left_out.empty())
    return console.say(
        concat("loss: ", loss, " of '", output, "' ", to_string(model.output_types[0]), ", the only output that can be computed"));
  if (names.size() < 2) return;
  std::string all;
  for (std::size_t i = 0; i < names.size(); ++i)
    all += concat(i > 0 ? ", " : "", "'", names[i], "' ", to_string(model.output_types[i]));
  console.say(concat("loss: ", loss, " of '", output, "'", names[0] == output ? ", the first" : "", " of ", names.size(),
                     " outputs", model.outputs_left_out.empty() ? "" : " that can be computed", ": ", all,
                     " (--output NAME takes another)"));
}

void report_forms(const Console& console, const std::string& file, const frontend::FormCounts::Nodes& nodes,
                  std::string_view what) {
  std::string counts;
  for (const auto& [count, op] : {std::pair(nodes.batch_norms, "BatchNormalization"), std::pair(nodes.dropouts, "Dropout")})
    if (count > 0) counts += concat(counts.empty() ? "" : " and ", grouped(count), " ", op);
  if (!counts.empty()) console.say(concat("'", file, "': ", counts, " ", what));
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
