#include "runtime/cpu/compiler.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "ir/base/error.h"
#include "ir/base/hash.h"
#include "ir/base/nearest.h"
#include "ir/base/units.h"
#include "runtime/cpu/compile_folder.h"
#include "runtime/cpu/compiler_environment.h"
#include "runtime/cpu/elf.h"
#include "runtime/cpu/find_compiler.h"
#include "runtime/cpu/kernel_library.h"
#include "runtime/cpu/process.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/files/disk_cache.h"
#include "runtime/files/sha256.h"

namespace gcomp::runtime::cpu {
namespace {

// Below this much text a further process of the compiler costs more than sharing and evenness save; above, one takes long.
constexpr std::size_t kLeastUnitText = 4000, kMostUnitText = 16000;

void check_kernel_name(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const bool good = !name.empty() && letter(name[0]) &&
                    std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
  check_internal(good, "kernel name '", name, "' is not an identifier");
}

struct TranslationUnit {
  std::string text;
  std::vector<std::string> kernels;  ///< their names
};

/// The kernels as source files, in their order. A file ends where its last kernel's text says so: programs that have a stretch of
/// kernels in common have files in common there, whatever comes before. The longest are first, as the last to end is to be a short
/// one.
std::vector<TranslationUnit> translation_units(const Program& program) {
  std::vector<TranslationUnit> units;
  std::size_t text = kLeastUnitText;  // of the last unit; at first no unit is open
  bool ends = true;
  for (const Kernel& kernel : program.kernels) {
    check_kernel_name(kernel.name);
    if (text >= kMostUnitText || (text >= kLeastUnitText && ends)) {
      units.push_back({program.prelude + "\n", {}});
      text = 0;
    }
    units.back().kernels.push_back(kernel.name);
    units.back().text += concat("extern \"C\" __attribute__((visibility(\"default\"))) void ", kernel.name,
                                "(void* const*, long, long, long, int*);\n", kernel.text, "\n");
    text += kernel.text.size();
    ends = fnv1a(kernel.text) % 2 == 0;
  }
  std::stable_sort(units.begin(), units.end(), [](auto& a, auto& b) { return a.text.size() > b.text.size(); });
  return units;
}

/// What kernel_library.h checks, in assembly, which takes a tenth of the time of a C++ file.
std::string assembly_of_digests(const Program& program, InstructionSet set) {
  const auto exported = [](std::string_view name, std::string_view value) {
    return concat("\t.globl ", name, "\n\t.type ", name, ", %object\n", name, ":\n\t.asciz \"", value, "\"\n\t.size ", name, ", .-",
                  name, "\n");
  };
  return concat("\t.section .rodata\n", exported(kMachineSymbol, sha256(machine_description(set))),
                exported(kTextSymbol, kernel_text_digest(program)), "\t.section .note.GNU-stack, \"\", %progbits\n");
}

void write_file(const std::filesystem::path& path, std::span<const char> bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw DeviceError(concat("cannot write ", path.string(), ": ", std::strerror(errno)), ExitCode::kernel_compile);
}

/// What is there; nothing where there is no such file.
std::optional<std::vector<std::byte>> read_object(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return std::vector<std::byte>(begin, begin + text.size());
}

/// The cache, and the keys of one program and its units in it: all that their machine code depends on.
class KernelCache {
 public:
  KernelCache(const KernelCompilerOptions& options, const Program& program)
      : options_(options), contracts_(program.contracts), cache_(options.cache_directory) {
    if (!options.cache_directory.empty() && !cache_.unusable().empty())
      say(concat("compiled kernels are not cached: ", cache_.unusable()));
    rest_ = concat(environment_key(own_environment()), "\n", machine_description(options.instruction_set));
    program_ = concat("program ", kernel_text_digest(program));
  }

  std::optional<std::vector<std::byte>> find(const CompilerIdentity& compiler) const { return found(key_of(compiler, program_)); }
  /// What another has made meanwhile; of damage find() has told.
  std::optional<std::vector<std::byte>> find_again(const CompilerIdentity& compiler) const {
    std::string damage;
    return cache_.find(key_of(compiler, program_), damage);
  }
  /// The object file of one unit.
  std::optional<std::vector<std::byte>> find(const CompilerIdentity& compiler, const TranslationUnit& unit) const {
    return found(key_of(compiler, what_of(unit)));
  }

  /// What any compiler of the cache's entries made, the one that was used last first; `compiler` is which.
  std::optional<std::vector<std::byte>> find_by_any(CompilerIdentity& compiler) const {
    std::vector<CompilerIdentity> tried;
    for (const CacheEntry& entry : cache_.entries()) {
      const std::optional<CompilerIdentity> maker = maker_of(entry);
      if (!maker || std::find(tried.begin(), tried.end(), *maker) != tried.end()) continue;
      tried.push_back(*maker);
      std::string damage;
      auto found = cache_.find(key_of(*maker, program_), damage);
      if (!found) continue;
      compiler = *maker;
      return found;
    }
    return std::nullopt;
  }

  CacheClaim claim(const CompilerIdentity& compiler, const CancelQuery& cancelled) const {
    return cache_.claim(key_of(compiler, program_), cancelled);
  }

  void store(const CompilerIdentity& compiler, std::span<const std::byte> object) const {
    if (!cache_.unusable().empty()) return;
    const std::string failure = cache_.store(key_of(compiler, program_), object);
    cache_.trim();
    if (!failure.empty()) say(concat("compiled kernels are not cached: ", failure));
  }
  /// Why this fails store() says, which comes last.
  void store(const CompilerIdentity& compiler, const TranslationUnit& unit, std::span<const std::byte> object) const {
    if (cache_.unusable().empty()) cache_.store(key_of(compiler, what_of(unit)), object);
  }

 private:
  std::optional<std::vector<std::byte>> found(const std::string& key) const {
    std::string damage;
    auto found = cache_.find(key, damage);
    if (!damage.empty()) say(concat("cached kernels ", cache_.path_of(key).string(), " are rebuilt: ", damage));
    return found;
  }

  static std::string what_of(const TranslationUnit& unit) { return concat("object ", sha256(unit.text)); }

  /// A key begins with three lines that tell the compiler, so that it can be had from an entry.
  std::string key_of(const CompilerIdentity& compiler, const std::string& what) const {
    std::string key = concat(compiler.path, "\n", compiler.version, "\n", compiler.digest, "\n");
    for (const std::string& flag : compiler_flags(compiler, options_.instruction_set, contracts_)) key += flag + " ";
    return concat(key, "\n", rest_, what);
  }

  static std::optional<CompilerIdentity> maker_of(const CacheEntry& entry) {
    std::istringstream lines(entry.key_start);
    CompilerIdentity maker;
    const bool read = std::getline(lines, maker.path) && std::getline(lines, maker.version) && std::getline(lines, maker.digest);
    constexpr std::size_t kDigits = 64;
    if (!read || maker.digest.size() != kDigits || maker.digest.find_first_not_of("0123456789abcdef") != std::string::npos)
      return std::nullopt;
    return maker;
  }

  void say(const std::string& message) const {
    if (options_.log) options_.log(message);
  }

  const KernelCompilerOptions& options_;
  bool contracts_;
  DiskCache cache_;
  std::string rest_, program_;
};

/// One program's way through the compiler.
class Compilation {
 public:
  Compilation(const Program& program, const KernelCompilerOptions& options, const CompilerIdentity& compiler,
              const KernelCache& cache)
      : program_(program),
        options_(options),
        compiler_(compiler),
        cache_(cache),
        units_(translation_units(program)),
        environment_(compiler_environment(own_environment(), folder_.path().string())) {}

  /// Compiles as many units at once as there are `jobs`, but those that another program has had; whenever one ends, whichever it
  /// is, the next begins.
  std::vector<std::byte> run(std::size_t jobs) {
    KernelProgress state{.kernels = program_.kernels.size()};
    if (options_.progress) options_.progress(state);
    std::vector<Process> running;
    std::vector<std::size_t> numbers;  // of the running units
    const auto done = [&](std::size_t unit) {
      state.done += units_[unit].kernels.size();
      if (options_.progress) options_.progress(state);
    };
    for (std::size_t next = 0; next < units_.size() || !running.empty();) {
      for (; next < units_.size() && running.size() < jobs; ++next) {
        if (const auto known = cache_.find(compiler_, units_[next])) {
          write_file(path_of(next, ".o"), {reinterpret_cast<const char*>(known->data()), known->size()});
          done(next);
          continue;
        }
        write_file(path_of(next, ".cpp"), units_[next].text);
        running.push_back(start(compile_command(next)));
        numbers.push_back(next);
      }
      if (running.empty()) break;
      const std::size_t ended = wait_any(running), unit = numbers[ended];
      finish(running[ended], compile_command(unit), unit_name(unit), "source", path_of(unit, ".cpp"));
      cache_.store(compiler_, units_[unit], object_of(unit));
      done(unit);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(ended));
      numbers.erase(numbers.begin() + static_cast<std::ptrdiff_t>(ended));
    }
    return link();
  }

 private:
  std::string path_of(std::size_t unit, std::string_view ending) const {
    return (folder_.path() / concat("unit", unit, ending)).string();
  }

  std::string unit_name(std::size_t unit) const {
    const auto& kernels = units_[unit].kernels;
    return concat(kernels.size() == 1 ? "kernel " : "kernels ", first_of_many(kernels), " of program '", program_.name, "'");
  }

  std::vector<std::string> compile_command(std::size_t unit) const {
    std::vector<std::string> command = {compiler_.path};
    const std::vector<std::string> flags = compiler_flags(compiler_, options_.instruction_set, program_.contracts);
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"-c", path_of(unit, ".cpp"), "-o", path_of(unit, ".o")});
    return command;
  }

  Process start(std::vector<std::string> command) const {
    return Process(std::move(command), {.environment = environment_, .cancelled = options_.cancelled, .timeout = options_.timeout});
  }

  /// Waits for one command; throws with its log where it failed, and keeps the folder.
  void finish(Process& process, const std::vector<std::string>& command, const std::string& what, std::string_view kept,
              const std::string& kept_path) {
    const ProcessResult result = process.wait();
    if (options_.detail) options_.detail(concat(shell_command(command), "  # ", seconds_text(result.seconds)));
    if (result.succeeded) return;
    if (result.timed_out)
      throw failure(concat("the C++ compiler ", compiler_.path, " took more than ", options_.timeout, " s on ", what,
                           " and was ended; --compiler-timeout SECONDS allows more, 0 any time"));
    folder_.keep();
    throw failure(concat("the C++ compiler ", compiler_.path, " failed on generated kernels, ", what, "; the ", kept,
                         " is kept as ", kept_path, "; its log:\n", result.log));
  }

  static DeviceError failure(const std::string& message) { return DeviceError(message, ExitCode::kernel_compile); }

  static std::string seconds_text(double seconds) { return decimal_text(seconds, 2) + " s"; }

  std::vector<std::byte> object_of(std::size_t unit) const {
    std::optional<std::vector<std::byte>> object = read_object(path_of(unit, ".o"));
    if (object && !object->empty()) return *std::move(object);
    throw failure(concat("the C++ compiler ", compiler_.path, " ended without an error, but left ",
                         object ? "an empty file" : "nothing", " as the object of ", unit_name(unit),
                         "; check that it is a C++ compiler, or name another with --compiler"));
  }

  std::vector<std::byte> link() {
    const std::filesystem::path library = folder_.path() / "kernels.so", digests = folder_.path() / "digests.s";
    write_file(digests, assembly_of_digests(program_, options_.instruction_set));
    std::vector<std::string> command = {compiler_.path, "-shared", "-o", library.string(), digests.string()};
    for (std::size_t i = 0; i < units_.size(); ++i) command.push_back(path_of(i, ".o"));
    command.push_back("-lm");
    Process linking = start(command);
    finish(linking, command, concat("linking program '", program_.name, "'"), "folder", folder_.path().string());
    std::optional<std::vector<std::byte>> object = read_object(library);
    const std::string unfit = object ? why_unfit(*object, program_, options_.instruction_set) : "they are missing";
    if (unfit.empty()) return *std::move(object);
    throw failure(concat("the C++ compiler ", compiler_.path, " ended without an error, but left ",
                         object ? describe_bytes(*object) : "nothing", " as the kernels of program '", program_.name, "': ", unfit,
                         "; check that it is a C++ compiler, or name another with --compiler"));
  }

  const Program& program_;
  const KernelCompilerOptions& options_;
  const CompilerIdentity& compiler_;
  const KernelCache& cache_;
  const std::vector<TranslationUnit> units_;
  CompileFolder folder_;
  std::vector<std::string> environment_;
};

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

std::string describe_compiler(const std::string& compiler, double timeout) {
  const CompilerIdentity found = find_compiler(compiler, timeout, {});
  return concat(found.path, ": ", found.version);
}

std::vector<std::byte> compile_kernels(const Program& program, const KernelCompilerOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto report = [&](bool cached) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (options.kernels) options.kernels({.kernels = program.kernels.size(), .cached = cached, .seconds = elapsed.count()});
  };
  const KernelCache cache(options, program);
  CompilerIdentity compiler;
  std::optional<std::vector<std::byte>> object;
  try {
    compiler = find_compiler(options.compiler, options.timeout, options.cancelled);
    object = cache.find(compiler);
  } catch (const DeviceError& missing) {
    if (options.cancelled && options.cancelled()) throw;
    object = cache.find_by_any(compiler);
    if (!object) throw;
    if (options.log && !options.compiler.empty())
      options.log(concat(missing.what(), "; the kernels of '", program.name, "' come from the cache, made by ", compiler.path, ", ",
                         compiler.version));
  }
  if (object) {
    if (options.detail)
      options.detail(
          concat("the kernels of '", program.name, "' come from the cache, made by ", compiler.path, ", ", compiler.version));
    report(true);
    return *std::move(object);
  }
  // Ranks, which begin at once, want the same kernels.
  const CacheClaim claim = cache.claim(compiler, options.cancelled);
  if (object = cache.find_again(compiler); object) {
    report(true);
    return *std::move(object);
  }
  remove_abandoned_folders();
  const std::size_t jobs = static_cast<std::size_t>(options.jobs > 0 ? options.jobs : available_processors());
  object = Compilation(program, options, compiler, cache).run(jobs);
  cache.store(compiler, *object);
  report(false);
  return *std::move(object);
}

}  // namespace gcomp::runtime::cpu
