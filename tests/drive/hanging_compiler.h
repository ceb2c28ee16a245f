// A compiler that says that it is one, and then hangs: what a command does that is ended while it compiles.
#pragma once

#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/temporary_directory.h"

namespace gcomp::test {

class HangingCompiler {
 public:
  /// A script in `folder`.
  explicit HangingCompiler(const std::filesystem::path& folder) : path_(folder / "c++"), started_(folder / "started") {
    put(path_, "#!/bin/sh\ncase $1 in --version) echo hanging 1.0; exit;; esac\ntouch '" + started_.string() + "'\nsleep 1000\n");
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
  }
  std::string path() const { return path_.string(); }

  /// Ends the process that has it run with SIGTERM, once it hangs.
  void end(pid_t process) const {
    while (!std::filesystem::exists(started_)) usleep(1000);
    kill(process, SIGTERM);
  }
  void forget() const { std::filesystem::remove(started_); }

 private:
  std::filesystem::path path_, started_;
};

}  // namespace gcomp::test
