// What a process that a signal ends takes with it.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "runtime/cpu/compile_folder.h"
#include "runtime/cpu/process.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/left_behind.h"
#include "runtime/files/npz.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime {
namespace {

namespace fs = std::filesystem;

/// Does it in a process of its own, which then ends as one that a signal ends; nothing of it runs after that.
void end_amid(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

[[noreturn]] void end_now() {
  remove_left_behind();
  _exit(0);
}

TEST(LeftBehind, FilesAndFoldersGo) {
  const test::TemporaryDirectory folder;
  test::put(folder / "kept", "");
  test::put(folder / ".gcomp-1-0.tmpx", "another's");
  fs::create_directories(folder / "tmp");
  setenv("TMPDIR", (folder / "tmp").c_str(), 1);
  end_amid([&] {
    AtomicFile file(folder / "model.onnx");
    file.write("half of it");
    test::put(file.temporary().string() + ".AbCdEf", "what a library writes beside it");
    AtomicFile done(folder / "done");
    done.commit();
    const cpu::CompileFolder compilation;
    test::put(compilation.path() / "unit0.cpp", "text");
    end_now();
  });
  unsetenv("TMPDIR");
  EXPECT_TRUE(fs::is_empty(folder / "tmp"));
  EXPECT_EQ(folder.files(), 4);  // kept, done, another's and tmp
}

/// One thread of the process goes on writing while another removes.
TEST(LeftBehind, AFolderGoesThatAThreadStillFills) {
  const test::TemporaryDirectory folder;
  fs::create_directories(folder / "tmp");
  setenv("TMPDIR", (folder / "tmp").c_str(), 1);
  end_amid([&] {
    const cpu::CompileFolder compilation;
    const auto put = [&](int i) {
      const std::string name = (compilation.path() / std::to_string(i)).string();
      close(open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    };
    put(0);
    fs::create_directories(compilation.path() / "inner" / "inmost");
    test::put(compilation.path() / "inner" / "inmost" / "file", "text");
    std::thread([put] {
      for (int i = 1; i < 2000; ++i) put(i);
    }).detach();
    while (!fs::exists(compilation.path() / "20")) usleep(10);
    end_now();
  });
  unsetenv("TMPDIR");
  EXPECT_TRUE(fs::is_empty(folder / "tmp"));
}

TEST(LeftBehind, CompilersEnd) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);  // the children inherit it, so it ends when all of them have
  end_amid([&] {
    const cpu::Process process({"/bin/sh", "-c", "trap '' TERM; sleep 1000 & while :; do sleep 1000; done"},
                               {.environment = {"PATH=/usr/bin:/bin"}});
    end_now();
  });
  close(ends[1]);
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
}

/// The thread that waits for it does not go on, and keep the folder of a compiler that has failed as it would think.
TEST(LeftBehind, NobodyHearsOfACompilerThatEndsSo) {
  const test::TemporaryDirectory folder;
  end_amid([&] {
    std::thread([&] {
      cpu::Process process({"/bin/sh", "-c", "touch '" + (folder / "started").string() + "'; sleep 1000"},
                           {.environment = {"PATH=/usr/bin:/bin"}});
      process.wait();
      test::put(folder / "heard", "");
    }).detach();
    while (!fs::exists(folder / "started")) usleep(10);
    remove_left_behind();
    usleep(100'000);
    _exit(0);
  });
  EXPECT_TRUE(fs::exists(folder / "started"));
  EXPECT_FALSE(fs::exists(folder / "heard"));
}

TEST(LeftBehind, WhatIsKeptOrMovedIsNotTouched) {
  const test::TemporaryDirectory folder;
  test::put(folder / "a", "");
  test::put(folder / "b", "");
  test::put(folder / "c", "");
  end_amid([&] {
    EndsWithProcess a = EndsWithProcess::file(AT_FDCWD, folder / "a"), b = EndsWithProcess::file(AT_FDCWD, folder / "b");
    EndsWithProcess moved = std::move(b);
    a.release();
    { const EndsWithProcess c = EndsWithProcess::file(AT_FDCWD, folder / "c"); }
    end_now();
  });
  EXPECT_TRUE(fs::exists(folder / "a"));
  EXPECT_FALSE(fs::exists(folder / "b"));
  EXPECT_TRUE(fs::exists(folder / "c"));
}

}  // namespace
}  // namespace gcomp::runtime
