// What artifacts and checkpoints both say as JSON, and how objects of such files are read: strictly, member by member.
#pragma once

#include <climits>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "gcomp/data_position.h"
#include "gcomp/driver/adaptation.h"
#include "gcomp/driver/original_model.h"
#include "ir/base/error.h"

namespace gcomp::driver {

/// Reads the members of one object, and in the end refuses those that nobody asked for.
class Members {
 public:
  using json = nlohmann::json;
  explicit Members(const json& object) : object_(object) { check_user(object.is_object(), "an object is missing"); }

  const json& at(const char* name) {
    known_.insert(name);
    check_user(object_.contains(name), "'", name, "' is missing");
    return object_.at(name);
  }
  bool has(const char* name) const { return object_.contains(name); }
  std::string text(const char* name) { return read<std::string>(name, &json::is_string, "text"); }
  bool boolean(const char* name) { return read<bool>(name, &json::is_boolean, "true or false"); }
  std::uint64_t natural(const char* name) { return read<std::uint64_t>(name, &json::is_number_unsigned, "a number from 0 on"); }
  /// From `least` on, and within an int64.
  std::int64_t integer(const char* name, std::int64_t least) {
    const auto value = read<std::int64_t>(name, &json::is_number_integer, "a whole number");
    check_user(value >= least && (!at(name).is_number_unsigned() || at(name).get<std::uint64_t>() <= INT64_MAX), "'", name, "' is ",
               at(name).dump(), ", wanted ", least, " or more");
    return value;
  }
  std::vector<std::string> names(const char* name) {
    std::vector<std::string> values;
    std::set<std::string> seen;
    for (const json& value : list(name)) {
      check_user(value.is_string() && seen.insert(value.get<std::string>()).second, "'", name, "' lists ", value.dump(),
                 " twice, or it is no name");
      values.push_back(value.get<std::string>());
    }
    return values;
  }
  std::vector<std::int64_t> integers(const char* name) {
    std::vector<std::int64_t> values;
    for (const json& value : list(name)) {
      check_user(value.is_number_integer(), "'", name, "' lists ", value.dump(), ", wanted whole numbers");
      values.push_back(value.get<std::int64_t>());
    }
    return values;
  }
  const json& list(const char* name) {
    check_user(at(name).is_array(), "'", name, "' is no list");
    return at(name);
  }
  void end() const {
    for (const auto& [name, value] : object_.items()) check_user(known_.count(name) > 0, "it has an unknown member '", name, "'");
  }

 private:
  template <class T>
  T read(const char* name, bool (json::*is)() const noexcept, const char* wanted) {
    check_user((at(name).*is)(), "'", name, "' is ", at(name).dump(), ", wanted ", wanted);
    return at(name).get<T>();
  }

  const json& object_;
  std::set<std::string> known_;
};

/// The member `sha256`: 64 lower-case hexadecimal digits.
std::string read_digest(Members& members);

nlohmann::json to_json(const DataPosition& position);
DataPosition position_of(const nlohmann::json& object);

nlohmann::json to_json(const OriginalModel& original);
OriginalModel original_of(const nlohmann::json& object);

nlohmann::json to_json(const Adaptation& lora);
Adaptation lora_of(const nlohmann::json& object);

}  // namespace gcomp::driver
