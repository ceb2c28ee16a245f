#include "runtime/files/strict_json.h"

#include <string>
#include <unordered_set>
#include <vector>

#include "ir/base/error.h"

namespace gcomp::runtime {

nlohmann::json parse_strict_json(std::string_view text, int depth) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::unordered_set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int level, Event event, nlohmann::json& value) {
    if (event == Event::object_start || event == Event::array_start)
      check_user(level < depth, "JSON nested deeper than ", depth, " levels");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      check_user(keys.back().insert(key).second, "JSON with the key '", key, "' twice");
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::exception&) { throw UserError("it is no valid JSON"); }
}

}  // namespace gcomp::runtime
