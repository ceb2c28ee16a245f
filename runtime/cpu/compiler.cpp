#include "runtime/cpu/compiler.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>

#include "ir/base/error.h"
#include "runtime/cpu/compile_folder.h"
#include "runtime/cpu/kernel_library.h"
#include "runtime/cpu/process.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/disk_cache.h"

namespace gcomp::runtime::cpu {
namespace {

// -ffp-contract=fast is the one liberty with rounding (fused multiply-add); no -ffast-math: NaN and infinities keep their meaning.
const std::vector<std::string> kFlags = {
    "-std=c++17",          "-O3", "-fPIC", "-fno-math-errno", "-fopenmp-simd", "-ffp-contract=fast", "-fno-trapping-math",
    "-fvisibility=hidden", "-w"};
// Kernel text shares its subexpressions itself; GCC's partial redundancy elimination and jump threading would turn its selects back
// into branches, which the vectorizer then refuses. Clang knows no such options.
const std::vector<std::string> kGccFlags = {"-fno-tree-pre", "-fno-thread-jumps"};
constexpr std::size_t kMaxUnits = 16;
// Below this much text a further process costs more than it saves.
constexpr std::size_t kUnitText = 6000;

struct FoundCompiler {
  std::string path;
  std::string version;
  std::vector<std::string> flags;
};

/// The processor as it is, or a generic one that has the instruction set.
std::string architecture_flag(InstructionSet set) {
  if (set == widest_instruction_set()) return "-march=native";
  return set == InstructionSet::baseline ? "-march=x86-64" : "-march=x86-64-v3";
}

FoundCompiler find_compiler(const std::string& asked, const std::filesystem::path& folder, const CancelQuery& cancelled = {}) {
  std::string path;
  if (!asked.empty()) {
    path = find_program(asked);
    if (path.empty()) throw DeviceError(concat("C++ compiler '", asked, "' was not found"), ExitCode::kernel_compile);
  } else {
    for (const char* name : {"c++", "g++", "clang++"})
      if (path.empty()) path = find_program(name);
  }
  if (path.empty())
    throw DeviceError(
        "no C++ compiler was found on PATH (c++, g++ or clang++), and CPU kernels are compiled when a model is loaded: "
        "install one (Debian, Ubuntu: apt install g++), name one with --compiler, or run an artifact that carries "
        "its compiled kernels",
        ExitCode::kernel_compile);
  ProcessResult version = Process({path, "--version"}, folder / "version.log", cancelled).wait();
  if (!version.succeeded)
    throw DeviceError(concat("C++ compiler ", path, " does not run: ", version.log), ExitCode::kernel_compile);
  std::vector<std::string> flags = kFlags;
  if (version.log.find("clang") == version.log.npos) flags.insert(flags.end(), kGccFlags.begin(), kGccFlags.end());
  return {path, std::move(version.log), std::move(flags)};
}

void check_kernel_name(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const bool good = !name.empty() && letter(name[0]) &&
                    std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
  check_internal(good, "kernel name '", name, "' is not an identifier");
}

/// A source file and how many kernels it holds.
struct TranslationUnit {
  std::string text;
  std::size_t kernels = 0;
};

/// The kernels as source files of about equal length. The first also holds what kernel_library.h checks.
std::vector<TranslationUnit> translation_units(const Program& program, InstructionSet set) {
  std::size_t text = 0;
  for (const Kernel& kernel : program.kernels) text += kernel.text.size();
  const std::size_t count = std::clamp<std::size_t>(std::max<std::size_t>(text / kUnitText, 2), 1,
                                                    std::clamp<std::size_t>(program.kernels.size(), 1, kMaxUnits));
  std::vector<TranslationUnit> units(count, {program.prelude + "\n"});
  units[0].text += concat("extern \"C\" __attribute__((visibility(\"default\"))) const char ", kMachineSymbol, "[];\n",
                          "const char ", kMachineSymbol, "[] = \"", sha256(machine_description(set)), "\";\n",
                          "extern \"C\" __attribute__((visibility(\"default\"))) const char ", kTextSymbol, "[];\n", "const char ",
                          kTextSymbol, "[] = \"", kernel_text_digest(program), "\";\n");
  std::vector<std::size_t> order(program.kernels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return program.kernels[a].text.size() > program.kernels[b].text.size(); });
  for (const std::size_t index : order) {
    const Kernel& kernel = program.kernels[index];
    check_kernel_name(kernel.name);
    auto shortest = std::min_element(units.begin(), units.end(), [](auto& a, auto& b) { return a.text.size() < b.text.size(); });
    ++shortest->kernels;
    shortest->text += concat("extern \"C\" __attribute__((visibility(\"default\"))) void ", kernel.name,
                             "(void* const*, long, long, long, int*);\n", kernel.text, "\n");
  }
  return units;
}

void write_source(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw DeviceError(concat("cannot write ", path.string(), ": ", std::strerror(errno)), ExitCode::kernel_compile);
}

std::vector<std::byte> read_object(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  check_internal(!text.empty(), "the compiler left no ", path.string());
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

/// Waits for one compilation; where it failed, throws with its log and keeps the folder.
void finish(Process& process, const std::string& source, const FoundCompiler& compiler, CompileFolder& folder) {
  const ProcessResult result = process.wait();
  if (result.succeeded) return;
  folder.keep();
  throw DeviceError(concat("the C++ compiler ", compiler.path, " failed on generated kernels; the source is kept as ", source,
                           "; its log:\n", result.log),
                    ExitCode::kernel_compile);
}

std::vector<std::byte> link_units(const FoundCompiler& compiler, const std::vector<std::string>& objects, CompileFolder& folder) {
  const std::filesystem::path library = folder.path() / "kernels.so";
  std::vector<std::string> command = {compiler.path, "-shared", "-o", library.string()};
  command.insert(command.end(), objects.begin(), objects.end());
  command.push_back("-lm");
  const ProcessResult result = Process(command, folder.path() / "link.log").wait();
  if (result.succeeded) return read_object(library);
  const std::string kept = folder.path().string();
  folder.keep();
  throw DeviceError(
      concat("linking the kernels with ", compiler.path, " failed; the objects are kept in ", kept, "; its log:\n", result.log),
      ExitCode::kernel_compile);
}

/// Compiles as many units at once as there are `jobs`; whenever one ends, whichever it is, the next begins.
std::vector<std::byte> compile_units(const FoundCompiler& compiler, const std::vector<TranslationUnit>& units, std::size_t jobs,
                                     CompileFolder& folder, const KernelCompilerOptions& options) {
  std::vector<std::string> sources, objects;
  for (std::size_t i = 0; i < units.size(); ++i) {
    sources.push_back((folder.path() / concat("unit", i, ".cpp")).string());
    objects.push_back((folder.path() / concat("unit", i, ".o")).string());
  }
  const auto start = [&](std::size_t i) {
    write_source(sources[i], units[i].text);
    std::vector<std::string> command = {compiler.path};
    command.insert(command.end(), compiler.flags.begin(), compiler.flags.end());
    command.insert(command.end(), {"-c", sources[i], "-o", objects[i]});
    return Process(std::move(command), folder.path() / concat("unit", i, ".log"), options.cancelled);
  };
  KernelProgress state;
  for (const TranslationUnit& unit : units) state.kernels += unit.kernels;
  if (options.progress) options.progress(state);
  std::vector<Process> running;
  std::vector<std::size_t> numbers;  // of the running units
  for (std::size_t next = 0; next < units.size() || !running.empty();) {
    for (; next < units.size() && running.size() < jobs; ++next) {
      running.push_back(start(next));
      numbers.push_back(next);
    }
    const std::size_t ended = wait_any(running);
    finish(running[ended], sources[numbers[ended]], compiler, folder);
    state.done += units[numbers[ended]].kernels;
    if (options.progress) options.progress(state);
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(ended));
    numbers.erase(numbers.begin() + static_cast<std::ptrdiff_t>(ended));
  }
  return link_units(compiler, objects, folder);
}

}  // namespace

std::string machine_description(InstructionSet set) {
  static constexpr std::string_view kFields[] = {"vendor_id",   "cpu family", "model",           "model name",
                                                 "stepping",    "flags",      "CPU implementer", "CPU architecture",
                                                 "CPU variant", "CPU part",   "Features"};
  std::ifstream in("/proc/cpuinfo");
  std::string description, line;
  while (std::getline(in, line) && !line.empty()) {
    const std::string_view field = std::string_view(line).substr(0, line.find_first_of("\t:"));
    if (std::find(std::begin(kFields), std::end(kFields), field) != std::end(kFields)) description += line + "\n";
  }
  return set == widest_instruction_set() ? description : concat(description, "used: ", shown_name(set), "\n");
}

std::string kernel_text_digest(const Program& program) {
  std::string text = program.prelude;
  for (const Kernel& kernel : program.kernels) text += concat("\n", kernel.name, " ", kernel.text.size(), "\n", kernel.text);
  return sha256(text);
}

std::string describe_compiler(const std::string& compiler) {
  CompileFolder folder;
  const FoundCompiler found = find_compiler(compiler, folder.path());
  return concat(found.path, ": ", found.version.substr(0, found.version.find('\n')));
}

std::vector<std::byte> compile_kernels(const Program& program, const KernelCompilerOptions& options) {
  const auto say = [&](const std::string& message) {
    if (options.log) options.log(message);
  };
  const auto start = std::chrono::steady_clock::now();
  const auto report = [&](bool cached) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (options.kernels) options.kernels({.kernels = program.kernels.size(), .cached = cached, .seconds = elapsed.count()});
  };
  remove_abandoned_folders();
  CompileFolder folder;
  FoundCompiler compiler = find_compiler(options.compiler, folder.path(), options.cancelled);
  compiler.flags.push_back(architecture_flag(options.instruction_set));
  const std::vector<TranslationUnit> units = translation_units(program, options.instruction_set);
  const DiskCache cache(options.cache_directory);
  if (!options.cache_directory.empty() && !cache.unusable().empty())
    say(concat("compiled kernels are not cached: ", cache.unusable()));

  std::string key = concat(compiler.path, "\n", compiler.version, "\n");
  for (const std::string& flag : compiler.flags) key += flag + " ";
  key += concat("\n", machine_description(options.instruction_set));
  for (const TranslationUnit& unit : units) key += concat("\n", unit.text.size(), "\n", unit.text);

  std::string damage;
  if (auto found = cache.find(key, damage)) {
    report(true);
    return *std::move(found);
  }
  if (!damage.empty()) say(concat("cached kernels ", cache.path_of(key).string(), " are rebuilt: ", damage));
  const std::size_t jobs = static_cast<std::size_t>(options.jobs > 0 ? options.jobs : available_processors());
  std::vector<std::byte> object = compile_units(compiler, units, jobs, folder, options);
  if (cache.unusable().empty()) {
    const std::string failure = cache.store(key, object);
    cache.trim();
    if (!failure.empty()) say(concat("compiled kernels are not cached: ", failure));
  }
  report(false);
  return object;
}

}  // namespace gcomp::runtime::cpu
