#include "runtime/cpu/find_compiler.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "ir/base/error.h"
#include "runtime/cpu/compiler_environment.h"
#include "runtime/cpu/process.h"
#include "runtime/files/disk_cache.h"
#include "runtime/files/sha256.h"

namespace gcomp::runtime::cpu {
namespace {

// No liberty with rounding: which product and sum are one operation the text says itself (gc_fma), so that its bits are those of
// any compiler and of any x86-64 processor with AVX2 and FMA. NaN and infinities keep their meaning.
const std::vector<std::string> kFlags = {
    "-std=c++17",          "-O3", "-fPIC", "-fno-math-errno", "-fopenmp-simd", "-fno-trapping-math", "-ffp-contract=off",
    "-fvisibility=hidden", "-w"};
constexpr char kRoundsProducts[] = "-DGC_ROUNDS_PRODUCTS";
constexpr char kTakesTiles[] = "-DGC_TILES";
// Kernel text shares its subexpressions itself; GCC's partial redundancy elimination and jump threading would turn its selects back
// into branches, which the vectorizer then refuses. Clang knows no such options.
const std::vector<std::string> kGccFlags = {"-fno-tree-pre", "-fno-thread-jumps"};

DeviceError failure(const std::string& message) { return DeviceError(message, ExitCode::kernel_compile); }

/// The processor as it is, or a generic one that has the instruction set.
std::vector<std::string> architecture_flags(InstructionSet set) {
  if (vectors_of(set) != vectors_of(widest_instruction_set()))
    return {set == InstructionSet::baseline ? "-march=x86-64" : "-march=x86-64-v3"};
  std::vector<std::string> flags{"-march=native"};
  // For Intel's processors the compilers would take half of them, whose kernels of bf16 take up to three times as long (on a Xeon
  // with AMX: a batch norm's 33 ms for 10, a cast's 16 for 7); for AMD's they take all.
  if (vectors_of(set) == InstructionSet::avx512) flags.emplace_back("-mprefer-vector-width=512");
  if (set == InstructionSet::amx) flags.emplace_back(kTakesTiles);
  return flags;
}

bool is_executable_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

/// Throws where a path that was given names no program.
std::string program_of(const std::string& asked) {
  const std::string path = find_program(asked);
  if (!path.empty()) return path;
  std::error_code error;
  const bool there = asked.find('/') != asked.npos && std::filesystem::exists(asked, error);
  throw failure(concat("C++ compiler '", asked, "' ",
                       !there                                        ? "was not found"
                       : std::filesystem::is_directory(asked, error) ? "is a directory"
                                                                     : "is not an executable file"));
}

std::string first_program() {
  for (const char* name : {"c++", "g++", "clang++"})
    if (std::string path = find_program(name); !path.empty()) return path;
  throw failure(
      "no C++ compiler was found on PATH (c++, g++ or clang++), and CPU kernels are compiled when a model is loaded: install one "
      "(Debian, Ubuntu: apt install g++), name one with --compiler, or run an artifact that carries its compiled kernels");
}

}  // namespace

std::vector<std::string> compiler_flags(const CompilerIdentity& compiler, InstructionSet set, bool contracts) {
  std::vector<std::string> flags = kFlags;
  if (compiler.version.find("clang") == compiler.version.npos) flags.insert(flags.end(), kGccFlags.begin(), kGccFlags.end());
  if (!contracts) flags.emplace_back(kRoundsProducts);
  const std::vector<std::string> architecture = architecture_flags(set);
  flags.insert(flags.end(), architecture.begin(), architecture.end());
  return flags;
}

std::string find_program(std::string_view name) {
  if (name.find('/') != std::string_view::npos) return is_executable_file(std::string(name)) ? std::string(name) : "";
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "/usr/bin:/bin";
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    const std::string_view folder = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
    if (folder.empty()) continue;
    const std::string candidate = concat(folder, "/", name);
    if (is_executable_file(candidate)) return candidate;
  }
  return {};
}

CompilerIdentity find_compiler(const std::string& asked, double timeout, const CancelQuery& cancelled) {
  const std::string path = asked.empty() ? first_program() : program_of(asked);
  const ProcessResult version =
      Process({path, "--version"},
              {.environment = compiler_environment(own_environment(), ""), .cancelled = cancelled, .timeout = timeout})
          .wait();
  if (version.timed_out)
    throw failure(concat("C++ compiler ", path, " took more than ", timeout,
                         " s to say its --version; --compiler-timeout SECONDS allows more"));
  if (!version.succeeded)
    throw failure(concat("C++ compiler ", path, " does not run: ", version.log.empty() ? "its --version fails" : version.log));
  return {path, version.log.substr(0, version.log.find('\n')), sha256(version.log)};
}

}  // namespace gcomp::runtime::cpu
