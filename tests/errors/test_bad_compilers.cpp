// C++ compilers that hang, fail or leave something else than kernels: each ends in one clear error of exit code 5, or is got by
// without, and nothing of it is left.
#include <elf.h>

#include <cstring>

#include "tests/errors/bad_input.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;
using runtime::test::contents;
using runtime::test::put;

/// Whether some process has this text in its environment; a dying one is waited for.
bool lives_with(const std::string& text) {
  for (int attempt = 0; attempt < 500; ++attempt, usleep(10'000)) {
    bool found = false;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/proc", error))
      found = found || contents(entry.path() / "environ").find(text) != std::string::npos;
    if (!found) return false;
  }
  return true;
}

/// An ELF header of a shared object for a processor that this one is not.
std::string foreign_object() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = EM_RISCV;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

class BadCompilers : public BadInput {
 protected:
  void SetUp() override {
    if (on_another_device()) GTEST_SKIP() << "no C++ compiler there";
    fs::create_directories(temporary_);
    put(folder_ / "foreign", foreign_object());
  }

  /// A compiler that tells its version and else does what the script says, which finds the path after -o in $out.
  std::string compiler_of(const std::string& script, const std::string& name = "c++") {
    return script_of(
        "case $1 in --version) echo 'bad 1.0'; exit;; esac\nall=\"$*\"\nprevious=\n"
        "for word in \"$@\"; do [ \"$previous\" = -o ] && out=$word; previous=$word; done\n" +
            script,
        name);
  }
  std::string script_of(const std::string& text, const std::string& name = "c++") {
    const std::string path = folder_ / name;
    put(path, "#!/bin/sh\n" + text + "\n");
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  CommandOptions environment(std::vector<std::string> more = {}) const {
    more.push_back("TMPDIR=" + temporary_.string());
    return {.environment = std::move(more), .limits = {}};
  }
  CommandResult train_with(const std::string& compiler, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--compiler", compiler, "--no-cache"});
    return train(more, environment());
  }
  /// Nothing is in the temporary directory, no process is left.
  void expect_nothing_left() {
    EXPECT_TRUE(fs::is_empty(temporary_)) << fs::directory_iterator(temporary_)->path();
    EXPECT_FALSE(lives_with(temporary_.string()));
  }

  const fs::path temporary_ = folder_ / "tmp";
};

struct BadCompiler {
  const char* what;
  std::string script;
  std::vector<std::string> options, parts;
  bool keeps_source = false;
};

const BadCompiler kBadCompilers[] = {
    {"hangs", "sleep 1000", {"--compiler-timeout", "1"}, {"took more than 1 s on kernel", "--compiler-timeout"}},
    {"hangs for ever",
     "trap '' TERM INT HUP\nwhile :; do sleep 1000; done",
     {"--compiler-timeout", "1"},
     {"took more than 1 s on kernel", "of program '"}},
    {"leaves nothing", "exit 0", {}, {"left nothing as the object of kernel", "name another with --compiler"}},
    {"leaves an empty file", ": > \"$out\"", {}, {"left an empty file as the object of kernel"}},
    {"leaves text",
     "echo 'hello world' > \"$out\"",
     {},
     {"left a text file of 12 bytes that begins 'hello world'", "no ELF object"}},
    {"leaves half an object",
     "head -c 3000 " GCOMP_BINARY " > \"$out\"",
     {},
     {"left an ELF file of 3000 bytes for ", "they are cut short"}},
    {"leaves another processor's",
     "cp \"${0%/*}/foreign\" \"$out\"",
     {},
     {"left an ELF file of 64 bytes for RISC-V", "no shared object for this kind of processor"}},
    {"leaves other functions",
     "case $all in *-shared*) echo 'extern \"C\" void other() {}' | " GCOMP_HOST_COMPILER
     " -shared -fPIC -x c++ - -o \"$out\";; *) " GCOMP_HOST_COMPILER " $all;; esac",
     {},
     {"as the kernels of program", "they do not say what they were compiled for"}},
    {"talks a lot",
     "echo first words; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last words; exit 1",
     {},
     {"failed on generated kernels", "first words\n", " bytes are left out", "last words\n"},
     true},
    {"ends by a signal", "kill -SEGV $$", {}, {"ended by signal 11 (Segmentation fault)"}, true},
};

TEST_F(BadCompilers, EndInOneErrorAndLeaveNothing) {
  for (const BadCompiler& bad : kBadCompilers) {
    SCOPED_TRACE(bad.what);
    const CommandResult result = train_with(compiler_of(bad.script), bad.options);
    expect_refused(result, ExitCode::kernel_compile, bad.parts);
    EXPECT_NE(result.errors.find((folder_ / "c++").string()), std::string::npos) << result.errors;
    EXPECT_LT(result.errors.size(), 20'000u);
    if (bad.keeps_source) {
      ASSERT_FALSE(fs::is_empty(temporary_));
      const fs::path kept = fs::directory_iterator(temporary_)->path();
      EXPECT_NE(result.errors.find("is kept as " + kept.string()), std::string::npos) << result.errors;
      fs::remove_all(kept);
    }
    expect_nothing_left();
  }
}

TEST_F(BadCompilers, ThatCannotRunAreNamed) {
  const std::string plain = folder_ / "plain";
  put(plain, "no program");
  const std::pair<std::string, std::string> cases[] = {
      {folder_.path().string(), "is a directory"},
      {plain, "is not an executable file"},
      {folder_ / "missing", "was not found"},
      {script_of("exit 3", "failing"), "does not run"},
      {script_of("sleep 1000", "hanging"), "took more than 1 s to say its --version"},
  };
  for (const auto& [compiler, message] : cases) {
    expect_refused(train_with(compiler, {"--compiler-timeout", "1"}), ExitCode::kernel_compile, {compiler, message});
    expect_nothing_left();
  }
}

TEST_F(BadCompilers, ThatStartSomethingWhichHoldsTheirOutputAreNotWaitedFor) {
  const CommandResult result = train_with(compiler_of("sleep 1000 &\nexec " GCOMP_HOST_COMPILER " \"$@\""));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  expect_nothing_left();
}

TEST_F(BadCompilers, ATimeLimitIsANumberOfSeconds) {
  for (const char* wrong : {"-1", "inf", "soon"})
    expect_refused(train({"--compiler-timeout", wrong}), ExitCode::usage, {"--compiler-timeout"});
}

/// Every command, whether or not it notes a signal for later.
TEST_F(BadCompilers, EndWithTheCommandThatASignalEnds) {
  const std::string compiler = compiler_of("trap '' TERM INT HUP\ntouch \"${0%/*}/started\"\nwhile :; do sleep 1000; done");
  const std::vector<std::string> commands[] = {
      {"run", model_, "--inputs", data_, "--outputs", folder_ / "y.npz"},
      {"compile", model_, "--batch", "4", "-o", folder_ / "m.gcx"},
      {"grad", model_, "--inputs", data_, "--loss", "cross_entropy", "--outputs", folder_ / "g.npz"},
      {"train", model_, "--data", data_, "--loss", "cross_entropy", "--batch", "4", "--steps", "2", "--out", out_},
  };
  for (std::vector<std::string> command : commands) {
    SCOPED_TRACE(command[0]);
    command.insert(command.end(), {"--compiler", compiler, "--no-cache"});
    const auto end_it = [&](pid_t child) {
      while (!fs::exists(folder_ / "started")) usleep(1000);
      fs::remove(folder_ / "started");
      kill(child, SIGTERM);
    };
    const CommandResult result = run_gcomp_until(command, "compiling", end_it, environment());
    EXPECT_EQ(result.exit_code, 143) << result.errors;
    expect_nothing_left();
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".gcomp")) << entry.path();
  }
}

TEST_F(BadCompilers, SeeNoTerminalAndAPlainEnvironment) {
  const std::string seen = folder_ / "seen";
  const std::string compiler =
      compiler_of("{ env; echo input=$(readlink /proc/$$/fd/0); echo session=$(cut -d' ' -f6 /proc/$$/stat)-$$; } > '" + seen +
                  "'\nexec " GCOMP_HOST_COMPILER " \"$@\"");
  const CommandResult result = train(
      {"--compiler", compiler, "--no-cache"},
      environment({"GCC_COLORS=error=01;31", "DEPENDENCIES_OUTPUT=" + (folder_ / "deps").string(), "LC_MESSAGES=de_DE.UTF-8",
                   "LANGUAGE=de", "TERM=xterm-256color", "CPATH=" + (folder_ / "include").string(), "CCC_OVERRIDE_OPTIONS=+-O0"}));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const std::string text = "\n" + contents(seen);
  for (const char* wanted : {"\nTERM=dumb\n", "\nLC_ALL=C\n", "\nNO_COLOR=1\n", "\nCPATH=", "\nPATH=", "\ninput=/dev/null\n"})
    EXPECT_NE(text.find(wanted), std::string::npos) << wanted << text;
  EXPECT_NE(text.find("\nTMPDIR=" + (temporary_ / "gcomp-kernels-").string()), std::string::npos) << text;
  for (const char* gone : {"\nGCC_COLORS=", "\nDEPENDENCIES_OUTPUT=", "\nLC_MESSAGES=", "\nLANGUAGE=", "\nCCC_OVERRIDE_OPTIONS="})
    EXPECT_EQ(text.find(gone), std::string::npos) << gone;
  const std::size_t at = text.find("session=") + 8, dash = text.find('-', at);
  EXPECT_EQ(text.substr(at, dash - at), text.substr(dash + 1, text.find('\n', dash) - dash - 1)) << "not its session's first";
  EXPECT_FALSE(fs::exists(folder_ / "deps"));
}

TEST_F(BadCompilers, VerboseShowsTheCommandsForAShell) {
  fs::create_directories(folder_ / "it's here");
  const std::string compiler = compiler_of("exec " GCOMP_HOST_COMPILER " \"$@\"", "it's here/c++");
  const CommandResult result = train_with(compiler, {"-v"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const std::string quoted = "'" + (folder_ / "it'\\''s here/c++").string() + "' ";
  EXPECT_NE(result.errors.find(quoted + "-std=c++17 -O3"), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find(quoted + "-shared"), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("/unit0.o  # "), std::string::npos) << result.errors;
  EXPECT_EQ(train_with(compiler).errors.find("-std=c++17"), std::string::npos);
}

/// What is in the cache for exactly these kernels and this processor needs nobody to compile it.
TEST_F(BadCompilers, AreNotNeededWhereTheCacheIsWarm) {
  const std::string cache = "XDG_CACHE_HOME=" + (folder_ / "cache").string();
  const auto train_on = [&](const std::vector<std::string>& more, std::vector<std::string> variables) {
    variables.push_back(cache);
    return train(more, environment(std::move(variables)));
  };
  const CommandResult first = train_on({"--compiler", GCOMP_HOST_COMPILER}, {});
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  const std::string trained = contents(out_), nobody = "PATH=" + temporary_.string();
  const std::string hanging = script_of("sleep 1000", "hanging");
  const std::vector<std::string> calls[] = {
      {}, {"--compiler", "/nonexistent/c++"}, {"--compiler", hanging, "--compiler-timeout", "1"}};
  for (const std::vector<std::string>& more : calls) {
    fs::remove(out_);
    const CommandResult again = train_on(more, {nobody});
    EXPECT_EQ(again.exit_code, 0) << again.errors;
    EXPECT_TRUE(contents(out_) == trained);
    EXPECT_EQ(again.errors.find("come from the cache, made by ") != std::string::npos, !more.empty()) << again.errors;
  }
  put(out_, "old contents");
  expect_refused(train_on({"--isa", "baseline"}, {nobody}), ExitCode::kernel_compile, {"no C++ compiler was found on PATH"});
  expect_refused(train_on({"--loss", "cross_entropy", "--optimizer", "sgd"}, {nobody}), ExitCode::kernel_compile,
                 {"no C++ compiler"});
  expect_refused(train_on({}, {nobody, "CPATH=/elsewhere"}), ExitCode::kernel_compile, {"no C++ compiler was found on PATH"});
  expect_refused(train_on({"--no-cache"}, {nobody}), ExitCode::kernel_compile, {"no C++ compiler was found on PATH"});
}

}  // namespace
}  // namespace gcomp::test
