// Every command that a help text, a document or ./dev demo shows runs as it stands there.
#include <gtest/gtest.h>

#include <regex>

#include "tests/commands/examples.h"
#include "tests/drive/command.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;

constexpr int kNoDevice = 6;

bool needs_mpi(const std::string& line) { return line.find(" --ranks ") != line.npos; }

/// Runs the examples of one text, each in a folder of its own.
void expect_examples_run(const std::string& where, const std::vector<std::string>& examples) {
  for (const std::string& example : examples) {
    const std::string line = without_placeholders(example);
    ExampleFolder folder;
    folder.provide(line);
    const ExampleFolder::Result result = folder.run(line);
    if ((needs_gpu(line) || needs_mpi(line)) && result.exit_code == kNoDevice) continue;
    EXPECT_EQ(result.exit_code, 0) << where << " shows: " << example << "\n" << result.output;
  }
}

std::string help_of(const std::string& command) {
  ExampleFolder folder;
  const ExampleFolder::Result result = folder.run(command + " --help");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return result.output;
}

std::vector<std::string> subcommands() {
  const std::string help = help_of("gcomp");
  std::vector<std::string> names;
  const std::regex entry("\n  ([a-z]+)  +[^\n]*");
  const std::string listed = help.substr(help.find("Subcommands:"));
  for (std::sregex_iterator it(listed.begin(), listed.end(), entry), end; it != end; ++it) names.push_back((*it)[1]);
  return names;
}

TEST(Examples, InTheHelpOfTheCommands) {
  for (const char* program : {"gcomp", "gcomp-opt"}) {
    const std::vector<std::string> examples = examples_in_text(help_of(program));
    EXPECT_GE(examples.size(), 3u) << program;
    expect_examples_run(program, examples);
  }
}

TEST(Examples, InTheHelpOfEverySubcommand) {
  std::vector<std::string> names = subcommands();
  ASSERT_GE(names.size(), 8u);
  std::erase(names, "data");
  names.insert(names.end(), {"data inspect", "data convert", "data bench"});
  for (const std::string& name : names) {
    const std::vector<std::string> examples = examples_in_text(help_of("gcomp " + name));
    EXPECT_FALSE(examples.empty()) << name << " has no example";
    expect_examples_run("gcomp " + name + " --help", examples);
  }
}

TEST(Examples, InDocuments) {
  std::size_t found = 0;
  const fs::path root = GCOMP_SOURCE_DIR;
  for (fs::recursive_directory_iterator it(root), end; it != end; ++it) {
    const std::string name = it->path().filename();
    if (it->is_directory() && (name.starts_with("build") || name.starts_with("."))) it.disable_recursion_pending();
    if (it->path().extension() != ".md") continue;
    const std::vector<std::string> examples = examples_in_document(contents(it->path()));
    found += examples.size();
    expect_examples_run(fs::relative(it->path(), root), examples);
  }
  EXPECT_GE(found, 12u);
}

TEST(Examples, PrintedByTheDemo) {
  const std::string script = contents(fs::path(GCOMP_SOURCE_DIR) / "dev");
  const std::size_t begin = script.find("What to try next:"), end = script.find("\nEOF\n", begin);
  ASSERT_NE(begin, script.npos);
  const std::vector<std::string> examples = examples_in_text(script.substr(begin, end - begin));
  EXPECT_GE(examples.size(), 4u);
  expect_examples_run("./dev demo", examples);
}

TEST(Examples, AreRecognised) {
  const std::vector<std::string> found = examples_in_document(
      "`gcomp compile MODEL.onnx --emit cpp` and `gcomp compile --emit plan`\n\n"
      "    gcomp inspect m.onnx      # a comment\n    ninja gcomp\n    A=b build/bin/gcomp doctor\n\n```\ngcomp-opt - "
      "--list-passes\n```\n");
  EXPECT_EQ(found, (std::vector<std::string>{"gcomp compile MODEL.onnx --emit cpp", "gcomp inspect m.onnx",
                                             "A=b build/bin/gcomp doctor", "gcomp-opt - --list-passes"}));
  EXPECT_EQ(without_placeholders("gcomp train m.onnx --device cuda ..."),
            "gcomp train m.onnx --device cuda --data train.npz --loss cross_entropy --batch 64 --steps 2 --out trained.onnx");
}

}  // namespace
}  // namespace gcomp::test
