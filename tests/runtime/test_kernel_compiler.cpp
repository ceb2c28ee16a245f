// Compiling kernels, loading what came out, and the cache between the two.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "ir/base/error.h"
#include "runtime/cpu/compiler.h"
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

class KernelCompiler : public testing::Test {
 protected:
  KernelCompilerOptions options() {
    KernelCompilerOptions options;
    options.cache_directory = cache_;
    options.jobs = 2;
    options.log = [this](std::string_view line) { log_ += std::string(line) + "\n"; };
    return options;
  }

  std::vector<fs::path> cached_files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(cache_)) files.push_back(entry.path());
    return files;
  }

  test::TemporaryDirectory folder_;
  fs::path cache_ = folder_.path() / "cache" / "gcomp";
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

TEST(Process, ReportsOutputAndFailure) {
  const test::TemporaryDirectory folder;
  const std::string shell = find_program("sh");
  ASSERT_FALSE(shell.empty());
  const ProcessResult good = Process({shell, "-c", "echo out; echo err >&2"}, folder.path() / "log").wait();
  EXPECT_TRUE(good.succeeded);
  EXPECT_EQ(good.log, "out\nerr\n");
  EXPECT_FALSE(Process({shell, "-c", "exit 3"}, folder.path() / "log").wait().succeeded);
  const ProcessResult killed = Process({shell, "-c", "kill -9 $$"}, folder.path() / "log").wait();
  EXPECT_FALSE(killed.succeeded);
  EXPECT_NE(killed.log.find("signal 9"), std::string::npos);
  EXPECT_FALSE(Process({"/nonexistent/program"}, folder.path() / "log").wait().succeeded);
  EXPECT_EQ(find_program("no-such-program-anywhere"), "");
}

TEST(Process, WhatIsCancelledEndsWithItsChildren) {
  const test::TemporaryDirectory folder;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);  // the children inherit it, so it ends when all of them have
  {
    Process process({find_program("sh"), "-c", "sleep 1000 & sleep 1000; true"}, folder.path() / "log",
                    [asked = 0]() mutable { return ++asked > 2; });
    close(ends[1]);
    EXPECT_THROW(process.wait(), DeviceError);
  }
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
}

}  // namespace
}  // namespace gcomp::runtime::cpu
