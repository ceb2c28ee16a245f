// Every rule of simplify has a lit case: the graphs of tests/passes/simplify*.gir, run here once more, set each of them off.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "ir/text/parse.h"
#include "passes/simplify.h"

namespace gcomp::passes {
namespace {

/// The graphs of one lit file, which `// -----` parts.
std::vector<std::string> graphs_of(const std::filesystem::path& path) {
  constexpr std::string_view kBorder = "\n// -----\n";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> graphs;
  for (std::size_t start = 0; start != std::string::npos;) {
    const std::size_t end = text.find(kBorder, start);
    graphs.push_back(text.substr(start, end == std::string::npos ? end : end - start));
    start = end == std::string::npos ? end : end + kBorder.size();
  }
  return graphs;
}

TEST(SimplifyRules, EachHasALitCase) {
  std::set<std::string_view> applied;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(GCOMP_SOURCE_DIR) / "tests" / "passes")) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != ".gir" || !path.filename().string().starts_with("simplify")) continue;
    for (const std::string& text : graphs_of(path)) {
      ir::Graph graph = ir::parse(text, {.file = path.string()});
      SimplifyOptions options;
      options.observer = [&](const ir::SimplifyRule& rule) { applied.insert(rule.name); };
      simplify(graph, options);
    }
  }
  for (const ir::SimplifyRule& rule : simplify_rules()) EXPECT_TRUE(applied.contains(rule.name)) << rule.name << ": " << rule.text;
}

}  // namespace
}  // namespace gcomp::passes
