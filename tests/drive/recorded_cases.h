// Trainings recorded side by side in one .npz: its array `cases` has a line of JSON for each, their options, and the arrays of the
// n-th, from 0, are named by n.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ir/base/tensor.h"

namespace gcomp::test {

struct RecordedCase {
  std::string number;  ///< in the record
  nlohmann::json options;

  std::string text() const { return "case " + number + ": " + options.dump(); }
};

inline std::vector<RecordedCase> recorded_cases(const std::map<std::string, Tensor>& record) {
  const Tensor& bytes = record.at("cases");
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()));
  std::vector<RecordedCase> cases;
  for (std::string line; std::getline(lines, line);) cases.push_back({std::to_string(cases.size()), nlohmann::json::parse(line)});
  return cases;
}

}  // namespace gcomp::test
