// gcomp doctor: what there is on this machine, what is missing, and what to do about it.
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/gcomp/command.h"
#include "tools/gcomp/diagnosis.h"
#include "tools/gcomp/options.h"

namespace gcomp::tools {
namespace {

std::string_view health_name(Health health) {
  switch (health) {
    case Health::good: return "ok";
    case Health::absent: return "absent";
    case Health::bad: return "bad";
  }
  return "";
}

nlohmann::json to_json(const Finding& finding) {
  nlohmann::json rejected = nlohmann::json::array();
  for (const runtime::cuda::LibraryCandidate& candidate : finding.rejected)
    rejected.push_back({{"path", candidate.path}, {"origin", candidate.origin}, {"reason", candidate.reason}});
  return {{"name", finding.name},
          {"health", health_name(finding.health)},
          {"detail", finding.detail},
          {"cure", finding.cure},
          {"rejected", rejected}};
}

void print(const Console& console, const Finding& finding) {
  const auto padded = [](std::string_view text, std::size_t width) {
    return std::string(text) + std::string(width > text.size() ? width - text.size() : 0, ' ');
  };
  console.result(concat(padded(health_name(finding.health), 8), padded(finding.name, 21), finding.detail));
  const std::string indent(29, ' ');
  if (!finding.cure.empty()) console.result(concat(indent, "-> ", finding.cure));
  for (const runtime::cuda::LibraryCandidate& candidate : finding.rejected)
    console.result(concat(indent, "not ", candidate.path, " (", candidate.origin, "): ", candidate.reason));
}

void doctor(const DeviceOptions& flags, const Console& console) {
  runtime::DeviceOptions options = flags.parse(console);
  options.log = {};  // the findings say it all
  const Diagnosis diagnosis = diagnose(options);
  nlohmann::json findings = nlohmann::json::array();
  for (const Finding& finding : diagnosis.findings) {
    print(console, finding);
    findings.push_back(to_json(finding));
  }
  console.result_json({{"findings", findings}, {"cpu_training", diagnosis.cpu_trains}, {"cuda_training", diagnosis.cuda_trains}});
  if (!diagnosis.cpu_trains) throw DeviceError("training on the CPU does not work on this machine; see above");
}

}  // namespace

Command add_doctor(ArgumentParser& root, Console& console) {
  auto flags = std::make_shared<DeviceOptions>();
  ArgumentParser parser = root.add_subcommand("doctor", "what this machine has for training, and the cure for what it lacks");
  flags->add(parser);
  parser.set_footer(
      "Examples:\n"
      "  gcomp doctor\n"
      "  gcomp doctor --device cuda:1 --json\n\n"
      "Exit code 0 where training on the CPU works, with or without a GPU");
  return {parser, [flags, &console] { doctor(*flags, console); }};
}

}  // namespace gcomp::tools
