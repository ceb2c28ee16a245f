// What runtime/cuda/cudnn_api.h declares against NVIDIA's own header, where one is installed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

namespace gcomp::tests {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Enumerators with a value, by name.
std::map<std::string, std::string> enumerators_in(const std::string& text) {
  std::map<std::string, std::string> values;
  const std::regex enumerator("(CUDNN_[A-Za-z0-9_]+)\\s+(?:CUDNN_DEPRECATED_ENUM\\s*)?=\\s*([0-9]+)");
  for (std::sregex_iterator it(text.begin(), text.end(), enumerator), end; it != end; ++it) values.emplace((*it)[1], (*it)[2]);
  return values;
}

fs::path installed_header() {
  std::vector<fs::path> folders = {"/usr/include", "/usr/local/cuda/include"};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(variable)) folders.push_back(fs::path(home) / "include");
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/usr/local", error))
    if (entry.path().filename().string().rfind("cuda", 0) == 0) folders.push_back(entry.path() / "include");
  for (const fs::path& folder : folders)
    for (const char* name : {"cudnn_graph_v9.h", "cudnn_graph.h"})
      if (fs::exists(folder / name, error)) return folder / name;
  return {};
}

TEST(CudnnApi, ValuesAreThoseOfTheInstalledHeader) {
  const fs::path header = installed_header();
  if (header.empty()) GTEST_SKIP() << "no header of cuDNN 9 is installed";
  const auto theirs = enumerators_in(text_of(header));
  const auto ours = enumerators_in(text_of(fs::path(GCOMP_SOURCE_DIR) / "runtime/cuda/cudnn_api.h"));
  EXPECT_GT(ours.size(), 60u);
  for (const auto& [name, value] : ours) {
    const auto found = theirs.find(name);
    ASSERT_NE(found, theirs.end()) << name << " is not in " << header;
    EXPECT_EQ(found->second, value) << name;
  }
}

}  // namespace
}  // namespace gcomp::tests
