#include "runtime/timed_choices.h"

#include <algorithm>

#include "ir/base/error.h"

namespace gcomp::runtime {
namespace {

constexpr std::string_view kTitle = "timed choices ", kVersion = "1";

/// The next line, of which the text is relieved. Throws where none ends.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  check_user(end != text.npos, "timed choices: a line without an end");
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

}  // namespace

std::string to_text(const TimedChoices& choices) {
  if (choices.of.empty()) return {};
  std::string text = concat(kTitle, kVersion, "\n", choices.of, "\n");
  for (const auto& [product, choice] : choices.chosen) text += concat(product, "\t", choice, "\n");
  return text;
}

TimedChoices parse_timed_choices(std::string_view text) {
  TimedChoices choices;
  if (text.empty()) return choices;
  const std::string_view title = take_line(text);
  check_user(title.starts_with(kTitle), "timed choices: they begin with '", title, "', wanted '", kTitle, kVersion, "'");
  const std::string_view written = title.substr(kTitle.size());
  check_user(written == kVersion, "timed choices: they have version ", written, ", this gcomp reads ", kVersion);
  choices.of = take_line(text);
  check_user(!choices.of.empty(), "timed choices: they do not say of which device");
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    const std::size_t tab = line.find('\t');
    check_user(tab != line.npos && tab > 0 && tab + 1 < line.size() && line.find('\t', tab + 1) == line.npos,
               "timed choices: no product and its choice, '", line, "'");
    check_user(choices.chosen.emplace(line.substr(0, tab), line.substr(tab + 1)).second, "timed choices: twice of '",
               line.substr(0, tab), "'");
  }
  return choices;
}

std::string difference(const std::string& before, const TimedChoices& now) {
  const TimedChoices old = parse_timed_choices(before);
  if (old.of.empty() && now.of.empty()) return {};
  if (old.of.empty()) return "none are kept there";
  if (now.of.empty()) return concat("they were made on ", old.of, ", and nothing is timed here");
  if (old.of != now.of) return concat("they were made on ", old.of, ", and this is ", now.of);
  const auto others = std::ranges::count_if(old.chosen, [&](const auto& one) {
    const auto found = now.chosen.find(one.first);
    return found == now.chosen.end() || found->second != one.second;
  });
  return others == 0 ? std::string() : concat(others, " of ", old.chosen.size(), " could not be taken");
}

}  // namespace gcomp::runtime
