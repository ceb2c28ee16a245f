// Folders of compilations: gone when their process ends, by its own hand or by the next one's.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "runtime/cpu/compile_folder.h"
#include "runtime/cpu/compiler_environment.h"
#include "runtime/cpu/process.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime::cpu {
namespace {

namespace fs = std::filesystem;

class CompileFolders : public testing::Test {
 protected:
  void SetUp() override {
    const char* before = std::getenv("TMPDIR");
    before_ = before ? before : "";
    setenv("TMPDIR", directory_.path().c_str(), 1);
  }
  void TearDown() override {
    if (before_.empty()) unsetenv("TMPDIR");
    else setenv("TMPDIR", before_.c_str(), 1);
  }

  /// The folder of a process that was killed while it held it.
  fs::path folder_of_killed() {
    const pid_t child = fork();
    if (child == 0) {
      const CompileFolder folder;
      std::ofstream(folder.path() / "unit0.cpp") << "int x;";
      raise(SIGKILL);
    }
    waitpid(child, nullptr, 0);
    for (const auto& entry : fs::directory_iterator(directory_.path())) return entry.path();
    return {};
  }

  test::TemporaryDirectory directory_;
  std::string before_;
};

TEST_F(CompileFolders, GoWithTheirOwner) {
  fs::path path;
  {
    const CompileFolder folder;
    path = folder.path();
    EXPECT_TRUE(fs::is_directory(path));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(CompileFolders, OfAKilledProcessGoWithTheNext) {
  const fs::path left = folder_of_killed();
  ASSERT_TRUE(fs::exists(left / "unit0.cpp"));
  EXPECT_EQ(remove_abandoned_folders(), 1);
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(CompileFolders, OfTheLivingAndThoseKeptStay) {
  const CompileFolder living;
  fs::path kept;
  {
    CompileFolder folder;
    kept = folder.path();
    folder.keep();
  }
  EXPECT_EQ(remove_abandoned_folders(), 0);
  EXPECT_TRUE(fs::exists(living.path()));
  EXPECT_TRUE(fs::exists(kept));
}

TEST_F(CompileFolders, ALinkIsNotFollowed) {
  const fs::path left = folder_of_killed(), elsewhere = directory_.path() / "elsewhere";
  fs::rename(left, elsewhere);
  fs::create_directory_symlink(elsewhere, left);
  EXPECT_EQ(remove_abandoned_folders(), 0);
  EXPECT_TRUE(fs::exists(elsewhere / "unit0.cpp"));
}

TEST(Processes, TheFirstToEndIsFoundWhileOthersRun) {
  const test::TemporaryDirectory directory;
  const std::string stop = (directory.path() / "stop").string();
  std::vector<Process> running;
  running.emplace_back(std::vector<std::string>{"/bin/sh", "-c", "while [ ! -e '" + stop + "' ]; do sleep 0.02; done"},
                       ProcessOptions{.environment = own_environment()});
  running.emplace_back(std::vector<std::string>{"/bin/sh", "-c", "echo done"});
  EXPECT_EQ(wait_any(running), 1u);
  const ProcessResult result = running[1].wait();
  EXPECT_TRUE(result.succeeded);
  EXPECT_EQ(result.log, "done\n");
  std::ofstream(stop) << "now";
}

}  // namespace
}  // namespace gcomp::runtime::cpu
