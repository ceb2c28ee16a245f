// Compiling kernels, loading what came out, and the cache between the two.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "ir/base/error.h"
#include "runtime/cpu/compiler.h"
#include "runtime/cpu/compiler_environment.h"
#include "runtime/cpu/elf.h"
#include "runtime/cpu/find_compiler.h"
#include "runtime/cpu/kernel_library.h"
#include "runtime/cpu/process.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime::cpu {
namespace {

namespace fs = std::filesystem;

Program program_of(std::vector<Kernel> kernels) {
  Program program;
  program.name = "test";
  program.prelude = "static inline float twice(float x) { return x + x; }\n";
  program.kernels = std::move(kernels);
  return program;
}

Kernel doubling(const std::string& name, int factor) {
  return {name, "extern \"C\" void " + name +
                    "(void* const* buffers, long extent, long first, long last, int*) {\n"
                    "  (void)first; (void)last;\n"
                    "  float* x = (float*)buffers[0];\n  for (long i = 0; i < extent; ++i) x[i] = twice(x[i]) * " +
                    std::to_string(factor) + ";\n}\n"};
}

/// One that has a file to itself.
Kernel long_doubling(const std::string& name, int factor) {
  Kernel kernel = doubling(name, factor);
  kernel.text += "/*" + std::string(16000, ' ') + "*/\n";
  return kernel;
}

class KernelCompiler : public testing::Test {
 protected:
  KernelCompilerOptions options() {
    KernelCompilerOptions options;
    options.cache_directory = cache_;
    options.jobs = 2;
    options.log = [this](std::string_view line) { log_ += std::string(line) + "\n"; };
    return options;
  }

  /// The entries of whole programs, or with "object" those of what the compiler made of one file.
  std::vector<fs::path> cached_files(const std::string& what = "program") const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(cache_))
      if (runtime::test::contents(entry.path()).find("\n" + what + " ") != std::string::npos) files.push_back(entry.path());
    return files;
  }

  /// With a compiler that leaves each text it is given in a folder.
  KernelCompilerOptions traced() {
    const fs::path compiler = folder_.path() / "traced-c++";
    fs::create_directory(texts_);
    std::ofstream(compiler) << "#!/bin/bash\nfor word; do [[ $word != *.cpp ]] || cp \"$word\" '" << texts_.string()
                            << "'/$$; done\nexec c++ \"$@\"\n";
    fs::permissions(compiler, fs::perms::owner_all);
    KernelCompilerOptions all = options();
    all.compiler = compiler.string();
    return all;
  }
  /// The kernels that the compiler was given since this was asked last.
  std::multiset<std::string> take_compiled() const {
    std::multiset<std::string> kernels;
    for (const auto& entry : fs::directory_iterator(texts_)) {
      const std::string text = runtime::test::contents(entry.path());
      for (std::size_t at = 0; (at = text.find("void k", at)) != text.npos; ++at)
        if (text.compare(at + 7, 14, "(void* const*,") == 0) kernels.insert(text.substr(at + 5, 2));
    }
    fs::remove_all(texts_);
    fs::create_directory(texts_);
    return kernels;
  }

  test::TemporaryDirectory folder_;
  fs::path cache_ = folder_.path() / "cache" / "gcomp", texts_ = folder_.path() / "texts";
  std::string log_;
};

float run_one(std::span<const std::byte> object, const std::string& name, float value) {
  const KernelLibrary library({object.begin(), object.end()});
  void* buffers[] = {&value};
  library.function(name)(buffers, 1, 0, 1, nullptr);
  return value;
}

TEST_F(KernelCompiler, CompilesAndLoads) {
  const Program program = program_of({doubling("k0", 1), doubling("k1", 10), doubling("k2", 100)});
  const auto object = compile_kernels(program, options());
  EXPECT_EQ(run_one(object, "k0", 3), 6);
  EXPECT_EQ(run_one(object, "k1", 3), 60);
  EXPECT_EQ(run_one(object, "k2", 3), 600);
  EXPECT_EQ(log_, "");
  EXPECT_EQ(why_unfit(object, program, widest_instruction_set()), "");
}

TEST_F(KernelCompiler, SeveralLibrariesLiveSideBySide) {
  const KernelLibrary one(compile_kernels(program_of({doubling("k0", 1)}), options()));
  const KernelLibrary two(compile_kernels(program_of({doubling("k0", 2)}), options()));
  EXPECT_NE(one.function("k0"), two.function("k0"));
}

TEST_F(KernelCompiler, KnowsItsProgram) {
  const auto object = compile_kernels(program_of({doubling("k0", 1)}), options());
  EXPECT_EQ(why_unfit(object, program_of({doubling("k0", 2)}), widest_instruction_set()),
            "they were compiled from other kernel texts");
  EXPECT_THROW(KernelLibrary(object).function("k9"), InternalError);
}

// A hit is shown by a planted object: the same file name and key, other contents.
TEST_F(KernelCompiler, KernelsForOtherInstructionsAreOthers) {
  if (widest_instruction_set() == InstructionSet::baseline) GTEST_SKIP() << "this processor has the baseline alone";
  const Program program = program_of({doubling("k0", 1)});
  KernelCompilerOptions narrow = options();
  narrow.instruction_set = InstructionSet::baseline;
  const auto wide_object = compile_kernels(program, options()), narrow_object = compile_kernels(program, narrow);
  EXPECT_EQ(cached_files().size(), 2u);
  EXPECT_EQ(why_unfit(narrow_object, program, InstructionSet::baseline), "");
  EXPECT_NE(why_unfit(narrow_object, program, widest_instruction_set()), "");
  EXPECT_NE(why_unfit(wide_object, program, InstructionSet::baseline), "");
}

TEST_F(KernelCompiler, TakesTheCachedObject) {
  const Program program = program_of({doubling("k0", 1)});
  const auto first = compile_kernels(program, options());
  ASSERT_EQ(cached_files().size(), 1u);
  struct stat status {};
  ASSERT_EQ(stat(cache_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  // A file that was written again would be another one.
  const auto identity = [&] {
    struct stat file {};
    EXPECT_EQ(stat(cached_files().at(0).c_str(), &file), 0);
    return file.st_ino;
  };
  const auto written = identity();
  EXPECT_EQ(compile_kernels(program, options()), first);
  EXPECT_EQ(identity(), written);
  compile_kernels(program_of({doubling("k0", 2)}), options());
  EXPECT_EQ(cached_files().size(), 2u);
}

TEST_F(KernelCompiler, RebuildsADamagedEntry) {
  const Program program = program_of({doubling("k0", 1)});
  const auto object = compile_kernels(program, options());
  const fs::path file = cached_files().at(0);
  const auto size = fs::file_size(file);
  for (const auto& damage : {std::function<void()>([&] { fs::resize_file(file, size / 2); }),
                             std::function<void()>([&] { std::ofstream(file) << "garbage"; }), std::function<void()>([&] {
                               std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
                               stream.seekp(static_cast<std::streamoff>(size) - 100);
                               stream.put('\x5a').put('\x5b').put('\x5c');
                             })}) {
    damage();
    log_.clear();
    EXPECT_EQ(run_one(compile_kernels(program, options()), "k0", 2), 4);
    EXPECT_NE(log_.find("rebuilt"), std::string::npos) << log_;
    EXPECT_EQ(fs::file_size(file), size);
  }
}

/// Kernels that another program has are not compiled again; a damaged one is.
TEST_F(KernelCompiler, TakesKernelsOfOtherPrograms) {
  using Names = std::multiset<std::string>;
  const KernelCompilerOptions all = traced();
  compile_kernels(program_of({long_doubling("k0", 1), long_doubling("k1", 10)}), all);
  EXPECT_EQ(take_compiled(), (Names{"k0", "k1"}));
  EXPECT_EQ(cached_files("object").size(), 2u);
  const auto object = compile_kernels(program_of({long_doubling("k1", 10), long_doubling("k2", 100)}), all);
  EXPECT_EQ(take_compiled(), Names{"k2"});
  EXPECT_EQ(run_one(object, "k1", 3), 60);
  EXPECT_EQ(run_one(object, "k2", 3), 600);
  for (const fs::path& file : cached_files("object")) fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_EQ(run_one(compile_kernels(program_of({long_doubling("k2", 100)}), all), "k2", 3), 600);
  EXPECT_EQ(take_compiled(), Names{"k2"});
  EXPECT_NE(log_.find("rebuilt"), std::string::npos) << log_;
  EXPECT_EQ(run_one(compile_kernels(program_of({long_doubling("k2", 1)}), all), "k2", 3), 6) << "another text of the same name";
  EXPECT_EQ(take_compiled(), Names{"k2"});
}

/// Short kernels share files, and a stretch of them that two programs have in common shares most, wherever it stands.
TEST_F(KernelCompiler, TakesStretchesOfOtherPrograms) {
  std::vector<Kernel> stretch;
  for (int i = 0; i < 100; ++i) {
    stretch.push_back(doubling("s" + std::to_string(i), i));
    stretch.back().text += "/*" + std::string(1500, ' ') + "*/\n";
  }
  const KernelCompilerOptions all = traced();
  const auto files = [&] {
    const auto count = std::distance(fs::directory_iterator(texts_), fs::directory_iterator());
    take_compiled();
    return count;
  };
  compile_kernels(program_of(stretch), all);
  const auto whole = files();
  EXPECT_GT(whole, 100 * 1500 / 16000);
  EXPECT_LT(whole, 50) << "files are of several kernels";
  stretch.insert(stretch.begin(), doubling("k0", 1));
  stretch.push_back(doubling("k1", 10));
  const auto object = compile_kernels(program_of(stretch), all);
  EXPECT_LE(files(), 6) << "what begins, what ends, and what a program has of its own";
  EXPECT_EQ(run_one(object, "k1", 3), 60);
  EXPECT_EQ(run_one(object, "s99", 3), 2 * 3 * 99);
}

/// As ranks do that begin at once.
TEST_F(KernelCompiler, OneOfThoseThatWantAProgramCompilesIt) {
  const Program program = program_of({doubling("k0", 1), doubling("k1", 10)});
  const KernelCompilerOptions all = traced();
  std::vector<std::vector<std::byte>> objects(6);
  std::vector<std::thread> threads;
  for (auto& object : objects) threads.emplace_back([&] { object = compile_kernels(program, all); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(take_compiled(), (std::multiset<std::string>{"k0", "k1"}));
  for (const auto& object : objects) EXPECT_EQ(object, objects[0]);
  for (const auto& entry : fs::directory_iterator(cache_)) EXPECT_NE(entry.path().extension(), ".lock");
}

TEST_F(KernelCompiler, AnUnusableCacheIsSaidAndDone) {
  const fs::path blocked = folder_.path() / "file";
  std::ofstream(blocked) << "in the way";
  auto with_blocked = options();
  with_blocked.cache_directory = blocked / "gcomp";
  EXPECT_EQ(run_one(compile_kernels(program_of({doubling("k0", 1)}), with_blocked), "k0", 2), 4);
  EXPECT_NE(log_.find("not cached"), std::string::npos) << log_;
  log_.clear();
  with_blocked.cache_directory = blocked;
  EXPECT_EQ(run_one(compile_kernels(program_of({doubling("k0", 1)}), with_blocked), "k0", 2), 4);
  EXPECT_NE(log_.find("not a directory"), std::string::npos) << log_;
}

TEST_F(KernelCompiler, AReadOnlyCacheIsSaidAndDone) {
  auto read_only = options();
  read_only.cache_directory = "/proc/gcomp";  // where not even root can create anything
  EXPECT_EQ(run_one(compile_kernels(program_of({doubling("k0", 1)}), read_only), "k0", 2), 4);
  EXPECT_NE(log_.find("cannot create /proc/gcomp"), std::string::npos) << log_;
}

TEST_F(KernelCompiler, AMissingCompilerIsSaid) {
  auto missing = options();
  missing.compiler = "no-such-compiler";
  try {
    compile_kernels(program_of({doubling("k0", 1)}), missing);
    FAIL() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), ExitCode::kernel_compile);
    EXPECT_NE(std::string(error.what()).find("no-such-compiler"), std::string::npos);
  }
}

TEST_F(KernelCompiler, AFailureKeepsTheSource) {
  try {
    compile_kernels(program_of({{"k0", "extern \"C\" void k0(void* const*, long, long, long, int*) { undeclared_thing(); }"}}),
                    options());
    FAIL() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), ExitCode::kernel_compile);
    const std::string text = error.what();
    EXPECT_NE(text.find("undeclared_thing"), std::string::npos) << text;
    const std::size_t begin = text.find("kept as ") + 8;
    const fs::path source = text.substr(begin, text.find(';', begin) - begin);
    EXPECT_TRUE(fs::exists(source)) << source;
    fs::remove_all(source.parent_path());
  }
}

TEST_F(KernelCompiler, KernelNamesAreIdentifiers) {
  EXPECT_THROW(compile_kernels(program_of({{"k0; evil", ""}}), options()), InternalError);
}

TEST_F(KernelCompiler, BytesThatAreNoLibraryAreRefused) {
  EXPECT_THROW(KernelLibrary(std::vector<std::byte>(100, std::byte{7})), DeviceError);
}

TEST_F(KernelCompiler, AnObjectThatIsCutShortIsRefusedAndNotMapped) {
  const Program program = program_of({doubling("k0", 1)});
  const auto object = compile_kernels(program, options());
  for (std::size_t size = 0; size < object.size(); size += 97) {
    const std::vector<std::byte> part(object.begin(), object.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(why_unfit(part, program, widest_instruction_set()), "") << size;
  }
  EXPECT_THROW(KernelLibrary({object.begin(), object.begin() + static_cast<std::ptrdiff_t>(object.size() / 2)}), DeviceError);
}

// Of damaged bytes only the headers are read; whatever those say, nothing beyond the bytes is.
TEST_F(KernelCompiler, DamagedHeadersAreReadWithinTheirBytes) {
  const Program program = program_of({doubling("k0", 1)});
  const auto object = compile_kernels(program, options());
  for (std::size_t i = 0; i < object.size(); i += i < 1024 ? 1 : 13)
    for (const unsigned value : {0x00u, 0x7fu, 0xffu}) {
      auto damaged = object;
      damaged[i] = static_cast<std::byte>(value);
      why_unfit(damaged, program, widest_instruction_set());
    }
}

// What is loaded runs its constructors: they must not run before it is known whose kernels these are.
TEST_F(KernelCompiler, ForeignKernelsAreToldApartWithoutRunningThem) {
  const fs::path trace = folder_.path() / "ran";
  const Kernel constructor{
      "k0", concat("#include <cstdio>\nextern \"C\" __attribute__((constructor)) void at_load() { fclose(fopen(\"", trace.string(),
                   "\", \"w\")); }\nextern \"C\" __attribute__((visibility(\"default\"))) ",
                   "void k0(void* const*, long, long, long, int*) {}\n")};
  const Program program = program_of({doubling("k0", 1)});
  const auto foreign = compile_kernels(program_of({constructor}), options());
  EXPECT_NE(why_unfit(foreign, program, widest_instruction_set()), "");
  EXPECT_FALSE(fs::exists(trace));
  KernelLibrary{foreign};
  EXPECT_TRUE(fs::exists(trace)) << "the test's own constructor does not run";
}

// An entry is found by what made it, so another gcomp's entries, cubins and damaged files are passed over.
TEST_F(KernelCompiler, WithoutACompilerTheCacheHasToKnowExactlyThisText) {
  const Program program = program_of({doubling("k0", 1)}), other = program_of({doubling("k0", 2)});
  const auto object = compile_kernels(program, options());
  auto without = options();
  without.compiler = "no-such-compiler";
  EXPECT_EQ(compile_kernels(program, without), object);
  EXPECT_NE(log_.find("'no-such-compiler' was not found; the kernels of 'test' come from the cache, made by "), std::string::npos)
      << log_;
  EXPECT_THROW(compile_kernels(other, without), DeviceError);
  const fs::path file = cached_files().at(0);
  std::ofstream(cache_ / "stray.entry") << runtime::test::contents(file);  // the right entry under another key's name
  fs::remove(file);
  EXPECT_THROW(compile_kernels(program, without), DeviceError);
}

TEST_F(KernelCompiler, AnObjectWithoutItsKernelsIsUnfit) {
  Program program = program_of({doubling("k0", 1)});
  const auto object = compile_kernels(program, options());
  EXPECT_EQ(exported_names(object).count("k0"), 1u);
  EXPECT_EQ(exported_names(object).count("k9"), 0u);
}

TEST(CompilerEnvironment, KeepsWhatFindsAndDropsWhatDiverts) {
  const std::vector<std::string> variables{"PATH=/bin",      "GCC_COLORS=x",    "LC_TIME=de_DE",         "LANG=de_DE",
                                           "CPATH=/include", "TMPDIR=/var/tmp", "SUNPRO_DEPENDENCIES=x", "LD_LIBRARY_PATH=/opt"};
  EXPECT_EQ(compiler_environment(variables, "/t"), (std::vector<std::string>{"PATH=/bin", "CPATH=/include", "LD_LIBRARY_PATH=/opt",
                                                                             "LC_ALL=C", "TERM=dumb", "NO_COLOR=1", "TMPDIR=/t"}));
  EXPECT_EQ(environment_key(variables), "CPATH=/include\n");
  EXPECT_EQ(environment_key({}), "");
}

TEST(BoundedLog, KeepsBothEnds) {
  BoundedLog log;
  std::string whole;
  for (int i = 0; i < 200; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    log.append(line);
    whole += line;
  }
  EXPECT_EQ(log.text(), whole);
  for (int i = 0; i < 100; ++i) log.append(std::string(10'007, 'x'));
  log.append("the end");
  const std::string text = log.text();
  EXPECT_LT(text.size(), 17'000u);
  EXPECT_EQ(text.substr(0, 7), "line 0\n");
  EXPECT_EQ(text.substr(text.size() - 7), "the end");
  const std::size_t left_out = whole.size() + 1'000'707 - (16u << 10);
  EXPECT_NE(text.find("... " + std::to_string(left_out) + " bytes are left out ..."), std::string::npos);
}

std::vector<std::string> shell(const std::string& script) { return {find_program("sh"), "-c", script}; }

TEST(Process, ReportsOutputAndFailure) {
  const ProcessResult good = Process(shell("echo out; echo err >&2")).wait();
  EXPECT_TRUE(good.succeeded);
  EXPECT_EQ(good.log, "out\nerr\n");
  EXPECT_FALSE(Process(shell("exit 3")).wait().succeeded);
  const ProcessResult killed = Process(shell("kill -9 $$")).wait();
  EXPECT_FALSE(killed.succeeded);
  EXPECT_NE(killed.log.find("signal 9"), std::string::npos);
  EXPECT_FALSE(Process({"/nonexistent/program"}).wait().succeeded);
  EXPECT_EQ(find_program("no-such-program-anywhere"), "");
}

TEST(Process, ACommandForAShellIsOneAgain) {
  const std::vector<std::string> command{"/bin/printf", "%s.", "plain", "", "it's", "a b", "$HOME", "`x`", "\\\"\n*"};
  EXPECT_EQ(shell_command(std::vector<std::string>{"/usr/bin/c++", "-O3", "a b"}), "/usr/bin/c++ -O3 'a b'");
  EXPECT_EQ(Process(shell(shell_command(command)), {.environment = {"PATH=/usr/bin:/bin"}}).wait().log,
            "plain..it's.a b.$HOME.`x`.\\\"\n*.");
}

/// Both ends of a pipe that a child inherits: reading ends when all of them have ended.
struct Witness {
  Witness() {
    if (pipe(ends) != 0) throw InternalError("no pipe");
  }
  ~Witness() { close(ends[0]); }
  bool all_have_ended() {
    close(ends[1]);
    char byte;
    return read(ends[0], &byte, 1) == 0;
  }
  int ends[2];
};

TEST(Process, WhatIsCancelledEndsWithItsChildren) {
  Witness witness;
  {
    Process process(shell("sleep 1000 & sleep 1000; true"),
                    {.environment = own_environment(), .cancelled = [asked = 0]() mutable { return ++asked > 2; }});
    EXPECT_THROW(process.wait(), DeviceError);
  }
  EXPECT_TRUE(witness.all_have_ended());
}

TEST(Process, WhatTakesTooLongEndsWithItsChildren) {
  Witness witness;
  const ProcessResult result = Process(shell("echo begun; trap '' TERM; sleep 1000 & while :; do sleep 1000; done"),
                                       {.environment = own_environment(), .timeout = 0.2})
                                   .wait();
  EXPECT_TRUE(result.timed_out);
  EXPECT_FALSE(result.succeeded);
  EXPECT_GE(result.seconds, 0.2);
  EXPECT_EQ(result.log, "begun\n");
  EXPECT_TRUE(witness.all_have_ended());
}

TEST(Process, WhatALateChildHoldsIsNotWaitedFor) {
  const ProcessResult result = Process(shell("echo done; sleep 1000 &"), {.environment = own_environment()}).wait();
  EXPECT_TRUE(result.succeeded);
  EXPECT_EQ(result.log, "done\n");
}

}  // namespace
}  // namespace gcomp::runtime::cpu
