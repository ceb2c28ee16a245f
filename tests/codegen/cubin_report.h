// What NVRTC's log says of the kernels in a source, with --ptxas-options=-v.
#pragma once

#include <algorithm>
#include <regex>
#include <string>

namespace gcomp::tests {

struct CubinReport {
  int kernels = 0, spilled_bytes = 0;
  int registers = 0;  ///< of the kernel that has the most
};

inline CubinReport cubin_report(const std::string& log) {
  CubinReport report;
  const std::regex spill("([0-9]+) bytes spill (?:stores|loads)"), entry("Compiling entry function"),
      used("Used ([0-9]+) registers");
  const std::sregex_iterator end;
  for (std::sregex_iterator it(log.begin(), log.end(), spill); it != end; ++it) report.spilled_bytes += std::stoi((*it)[1]);
  for (std::sregex_iterator it(log.begin(), log.end(), entry); it != end; ++it) ++report.kernels;
  for (std::sregex_iterator it(log.begin(), log.end(), used); it != end; ++it)
    report.registers = std::max(report.registers, std::stoi((*it)[1]));
  return report;
}

}  // namespace gcomp::tests
