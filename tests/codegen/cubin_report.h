// What NVRTC's log says of the kernels in a source, with --ptxas-options=-v.
#pragma once

#include <regex>
#include <string>

namespace gcomp::tests {

struct CubinReport {
  int kernels = 0, spilled_bytes = 0;
};

inline CubinReport cubin_report(const std::string& log) {
  CubinReport report;
  const std::regex spill("([0-9]+) bytes spill (?:stores|loads)"), entry("Compiling entry function");
  const std::sregex_iterator end;
  for (std::sregex_iterator it(log.begin(), log.end(), spill); it != end; ++it) report.spilled_bytes += std::stoi((*it)[1]);
  for (std::sregex_iterator it(log.begin(), log.end(), entry); it != end; ++it) ++report.kernels;
  return report;
}

}  // namespace gcomp::tests
