// The public ONNX backend suite against a manifest of known statuses: any change, for better or worse, fails until the manifest
// (tests/onnx/backend_status.txt) follows. GCOMP_BLESS=1 rewrites it; GCOMP_CASES=SUBSTRING runs some cases and prints why they
// fail.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>

#include "tests/onnx/backend_case.h"

namespace gcomp::tests {
namespace {

namespace fs = std::filesystem;

std::string_view name_of(CaseStatus status) {
  switch (status) {
    case CaseStatus::pass: return "pass";
    case CaseStatus::fail: return "fail";
    case CaseStatus::unsupported: return "unsupported";
    case CaseStatus::too_large: return "too_large";
  }
  return "?";
}

std::map<std::string, std::string> read_manifest(const fs::path& path) {
  std::map<std::string, std::string> statuses;
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);)
    if (const auto space = line.find(' '); !line.empty() && line[0] != '#' && space != std::string::npos)
      statuses[line.substr(0, space)] = line.substr(space + 1);
  return statuses;
}

TEST(BackendSuite, StatusesAreThoseOfTheManifest) {
  const auto shared = shared_folder();
  if (!shared) GTEST_SKIP() << "no shared/onnx-backend found (set GCOMP_SHARED): the ONNX backend suite does not run";
  const char* filter = std::getenv("GCOMP_CASES");
  const bool bless = std::getenv("GCOMP_BLESS") != nullptr;
  const fs::path manifest = fs::path(GCOMP_SOURCE_DIR) / "tests/onnx/backend_status.txt";
  const auto expected = read_manifest(manifest);
  std::map<std::string, CaseResult> results;
  for (const char* group : {"node", "simple", "pytorch-converted", "pytorch-operator"}) {
    for (const auto& entry : fs::directory_iterator(*shared / "onnx-backend" / group)) {
      const std::string name = std::string(group) + "/" + entry.path().filename().string();
      if (entry.is_directory() && (!filter || name.find(filter) != std::string::npos)) results[name] = run_case(entry.path());
    }
  }
  std::map<std::string_view, int> totals;
  for (const auto& [name, result] : results) {
    ++totals[name_of(result.status)];
    const auto it = expected.find(name);
    const std::string was = it == expected.end() ? "absent" : it->second;
    if (filter) {
      std::cout << name << ": " << name_of(result.status) << (result.message.empty() ? "" : ": ") << result.message << '\n';
    } else if (!bless) {
      EXPECT_EQ(was, name_of(result.status)) << name << ": " << result.message;
    }
  }
  if (!filter && !bless) {
    for (const auto& [name, status] : expected)
      EXPECT_TRUE(results.count(name)) << name << " is in the manifest, but not in the suite";
  }
  std::cout << "onnx backend suite: " << results.size() << " cases";
  for (const auto& [status, count] : totals) std::cout << ", " << count << ' ' << status;
  std::cout << '\n';
  if (bless && !filter) {
    std::ofstream stream(manifest);
    stream << "# Status of each case of the ONNX backend suite v1.22.0, kept by tests/onnx/backend_suite.cpp.\n";
    for (const auto& [name, result] : results) stream << name << ' ' << name_of(result.status) << '\n';
  }
}

}  // namespace
}  // namespace gcomp::tests
