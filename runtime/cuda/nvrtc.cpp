#include "runtime/cuda/nvrtc.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "gcomp/version.h"
#include "ir/base/error.h"
#include "ir/base/units.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/disk_cache.h"
#include "runtime/files/left_behind.h"
#include "runtime/files/sha256.h"

namespace gcomp::runtime::cuda {
namespace {

constexpr int kOldestNvrtcMajor = 12, kOldestNvrtcMinor = 4;
// Whole IEEE arithmetic: --use_fast_math would change NaN, infinities and the last digits of every function.
std::vector<std::string> nvrtc_options(std::string_view architecture, std::span<const std::string> more) {
  std::vector<std::string> options = {"--std=c++17"};
  if (std::ranges::find(more, kNoContraction) == more.end()) options.emplace_back("--fmad=true");
  options.push_back(concat("--gpu-architecture=", architecture));
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

/// A compiler log with the saved source's path, for a message.
class CompileFailure : public DeviceError {
 public:
  explicit CompileFailure(const std::string& log) : DeviceError(log, ExitCode::kernel_compile) {}
};

NvrtcFunctions load_functions(const Library& library, std::string& missing) {
  NvrtcFunctions functions;
  for_each_function(functions, [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.symbol(name));
    if (!function && missing.empty()) missing = concat("it lacks ", name);
  });
  return functions;
}

std::string why_nvrtc_unfit(const Library& library, int newest_major) {
  std::string missing;
  const NvrtcFunctions functions = load_functions(library, missing);
  if (!missing.empty()) return missing;
  int major = 0, minor = 0;
  if (functions.Version(&major, &minor) != NVRTC_SUCCESS) return "it does not tell its version";
  if (major < kOldestNvrtcMajor || (major == kOldestNvrtcMajor && minor < kOldestNvrtcMinor))
    return concat("it is version ", major, ".", minor, ", wanted ", kOldestNvrtcMajor, ".", kOldestNvrtcMinor, " or newer");
  if (newest_major > 0 && major > newest_major) return newer_than_driver(concat(major, ".", minor), newest_major);
  return {};
}

/// Tells two builds of one version apart.
std::uintmax_t size_of_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : bytes;
}

class NvrtcProgram {
 public:
  NvrtcProgram(const NvrtcFunctions& f, const std::string& source, const std::string& name) : f_(f) {
    check(f_.CreateProgram(&program_, source.c_str(), name.c_str(), 0, nullptr, nullptr), "nvrtcCreateProgram");
  }
  ~NvrtcProgram() { f_.DestroyProgram(&program_); }
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;

  Cubin compile(const std::vector<std::string>& options) {
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    const nvrtcResult result = f_.CompileProgram(program_, static_cast<int>(texts.size()), texts.data());
    Cubin cubin;
    cubin.log = log();
    if (result == NVRTC_ERROR_COMPILATION) throw CompileFailure(cubin.log);
    check(result, "nvrtcCompileProgram", cubin.log);
    std::size_t bytes = 0;
    check(f_.GetCUBINSize(program_, &bytes), "nvrtcGetCUBINSize");
    cubin.image.resize(bytes);
    check(f_.GetCUBIN(program_, reinterpret_cast<char*>(cubin.image.data())), "nvrtcGetCUBIN");
    return cubin;
  }

 private:
  void check(nvrtcResult result, const char* call, const std::string& log = {}) const {
    if (result != NVRTC_SUCCESS)
      throw DeviceError(concat(call, ": ", f_.GetErrorString(result), log.empty() ? "" : "; its log:\n", log),
                        ExitCode::kernel_compile);
  }
  std::string log() const {
    std::size_t bytes = 0;
    check(f_.GetProgramLogSize(program_, &bytes), "nvrtcGetProgramLogSize");
    std::string text(bytes, '\0');
    if (bytes > 0) check(f_.GetProgramLog(program_, text.data()), "nvrtcGetProgramLog");
    text.resize(std::min(text.size(), text.find('\0')));
    return text;
  }

  const NvrtcFunctions& f_;
  nvrtcProgram program_ = nullptr;
};

/// The source with a number before each line, as a comment: messages can be followed and it still compiles.
std::string numbered(const std::string& source) {
  std::string text;
  int line = 0;
  for (std::size_t at = 0; at < source.size();) {
    const std::size_t end = std::min(source.find('\n', at), source.size());
    char number[24];
    std::snprintf(number, sizeof number, "/*%5d */ ", ++line);
    text += number + source.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return text;
}

std::string save_failed(const std::string& source, const CubinOptions& options) {
  try {
    const std::filesystem::path folder =
        options.failure_directory.empty() ? std::filesystem::temp_directory_path() : options.failure_directory;
    const std::filesystem::path path = folder / concat("gcomp-", sha256(source).substr(0, 16), ".cu");
    const std::string text = numbered(source);
    write_file(path, std::as_bytes(std::span(text)));
    return concat("the source is kept as ", path.string());
  } catch (const std::exception& error) { return concat("the source could not be kept: ", error.what()); }
}

/// One compilation with the cache around it.
class CubinMaker {
 public:
  CubinMaker(Nvrtc nvrtc, std::string_view architecture, CubinOptions options)
      : nvrtc_(std::move(nvrtc)), architecture_(architecture), options_(std::move(options)), cache_(options_.cache_directory) {
    if (!options_.cache_directory.empty() && !cache_.unusable().empty()) say(concat("cubins are not cached: ", cache_.unusable()));
  }

  Cubin make(const std::string& source) {
    const std::string key = key_of(source);
    std::string damage;
    if (auto image = cache_.find(key, damage)) return {std::move(*image), "", true};
    if (!damage.empty()) say(concat("cached cubin ", cache_.path_of(key).string(), " is rebuilt: ", damage));
    Cubin cubin = compile(source);
    if (cache_.unusable().empty()) {
      stored_ = true;
      if (const std::string failure = cache_.store(key, cubin.image); !failure.empty())
        say(concat("a cubin is not cached: ", failure));
    }
    return cubin;
  }

  /// From here on nothing of the caller's is used.
  void abandon() {
    const std::lock_guard<std::mutex> lock(mutex_);
    options_.log = {};
  }

  /// Keeps the cache within its size, where it grew.
  void finish() const {
    if (stored_) cache_.trim();
  }

 private:
  std::string key_of(const std::string& source) const {
    std::string key = concat("cubin of gcomp ", version(), "\nNVRTC ", nvrtc_.version(), " of ",
                             size_of_file(nvrtc_.library().path()), " bytes\n", architecture_, "\n");
    for (const std::string& option : nvrtc_options(architecture_, options_.compiler_options)) key += option + "\n";
    return key + "\n" + source;
  }

  Cubin compile(const std::string& source) const {
    try {
      return nvrtc_.compile(source, architecture_, "kernel.cu", options_.compiler_options);
    } catch (const CompileFailure& failure) {
      throw DeviceError(concat("NVRTC ", nvrtc_.version(), " refused a generated kernel for ", architecture_, "; ",
                               save_failed(source, options_), "; its log:\n", failure.what()),
                        ExitCode::kernel_compile);
    }
  }

  void say(const std::string& message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (options_.log) options_.log(message);
  }

  Nvrtc nvrtc_;
  std::string architecture_;
  CubinOptions options_;
  DiskCache cache_;
  std::atomic<bool> stored_{false};
  std::mutex mutex_;
};

/// The distinct sources on their way through NVRTC. Threads share it, and may outlive the wait for them.
class CubinWork : public std::enable_shared_from_this<CubinWork> {
 public:
  CubinWork(const Nvrtc& nvrtc, std::string_view architecture, const CubinOptions& options, std::vector<std::string> sources)
      : sources_(std::move(sources)),
        maker_(nvrtc, architecture, options),
        cubins_(sources_.size()),
        failures_(sources_.size()),
        started_(sources_.size()) {}

  /// `name(i)` names a source in errors. The exception of the first source that failed is thrown.
  std::vector<Cubin> run(std::size_t jobs, const CubinOptions& options, const std::function<std::string(std::size_t)>& name) {
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < std::min(jobs, sources_.size()); ++t)
      threads.emplace_back([self = shared_from_this()] { self->work(); });
    try {
      wait(options, name);
    } catch (...) {
      next_ = sources_.size();
      maker_.abandon();
      note_abandoned_thread();
      for (std::thread& thread : threads) thread.detach();
      throw;
    }
    for (std::thread& thread : threads) thread.join();
    maker_.finish();
    for (const std::exception_ptr& failure : failures_)
      if (failure) std::rethrow_exception(failure);
    return std::move(cubins_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void work() {
    for (std::size_t i; (i = next_.fetch_add(1)) < sources_.size();) {
      set_started(i, Clock::now());
      try {
        cubins_[i] = maker_.make(sources_[i]);
      } catch (...) { failures_[i] = std::current_exception(); }
      set_started(i, std::nullopt);
      const std::lock_guard lock(mutex_);
      ++done_;
      changed_.notify_one();
    }
  }

  void set_started(std::size_t i, std::optional<Clock::time_point> time) {
    const std::lock_guard lock(mutex_);
    started_[i] = time;
  }

  /// Returns when all are done. Throws where that takes too long or is cancelled.
  void wait(const CubinOptions& options, const std::function<std::string(std::size_t)>& name) {
    std::unique_lock lock(mutex_);
    for (std::size_t reported = 0;;) {
      const std::size_t done = done_;
      const bool all = done == sources_.size();
      if (options.progress && done != reported) {
        lock.unlock();
        for (; reported < done; ++reported) options.progress(reported + 1, sources_.size());
        lock.lock();
      }
      if (all) return;
      if (options.cancelled && options.cancelled())
        throw DeviceError("compiling the kernels was cancelled", ExitCode::kernel_compile);
      for (std::size_t i = 0; i < started_.size(); ++i)
        if (options.timeout > 0 && started_[i] &&
            std::chrono::duration<double>(Clock::now() - *started_[i]).count() > options.timeout)
          throw DeviceError(concat("NVRTC took more than ", options.timeout, " s on ", name(i),
                                   "; --compiler-timeout SECONDS allows more, 0 any time"),
                            ExitCode::kernel_compile);
      if (done_ == done) changed_.wait_for(lock, std::chrono::milliseconds(100));
    }
  }

  const std::vector<std::string> sources_;
  CubinMaker maker_;
  std::vector<Cubin> cubins_;
  std::vector<std::exception_ptr> failures_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<Clock::time_point>> started_;  // of those under way
  std::size_t done_ = 0;
};

}  // namespace

Nvrtc Nvrtc::find(const LibrarySearch& search, int newest_major) {
  Nvrtc nvrtc;
  nvrtc.found_ = find_library(LibraryKind::nvrtc, search,
                              [newest_major](const Library& library) { return why_nvrtc_unfit(library, newest_major); });
  if (!nvrtc.found_.library) {
    const bool old = nvrtc.found_.driver_is_too_old();
    throw DeviceError(nvrtc.found_.absence(LibraryKind::nvrtc, "nvidia-cuda-nvrtc", newest_major),
                      old ? ExitCode::no_device : ExitCode::kernel_compile);
  }
  nvrtc.library_ = *nvrtc.found_.library;
  std::string missing;
  nvrtc.functions_ = load_functions(nvrtc.library_, missing);
  nvrtc.functions_.Version(&nvrtc.major_, &nvrtc.minor_);
  // NVRTC opens its builtins by name; a copy outside the loader's path is found only if it is loaded already.
  try {
    const std::filesystem::path folder = std::filesystem::path(nvrtc.library_.path()).parent_path();
    nvrtc.builtins_ = Library::open((folder / concat("libnvrtc-builtins.so.", nvrtc.version())).string());
  } catch (const DeviceError&) {  // compile() gives NVRTC's own message if it cannot find them either
  }
  return nvrtc;
}

std::vector<int> Nvrtc::architectures() const {
  int count = 0;
  if (functions_.GetNumSupportedArchs(&count) != NVRTC_SUCCESS || count <= 0) return {};
  std::vector<int> all(static_cast<std::size_t>(count));
  if (functions_.GetSupportedArchs(all.data()) != NVRTC_SUCCESS) return {};
  std::sort(all.begin(), all.end());
  return all;
}

int Nvrtc::architecture_for(int gpu_architecture) const {
  const std::vector<int> all = architectures();
  if (all.empty()) return gpu_architecture;
  const auto best = std::find_if(all.rbegin(), all.rend(), [&](int a) { return runs_on(a, gpu_architecture); });
  if (best == all.rend())
    throw DeviceError(concat("NVRTC ", version(), " (", library_.path(), ") knows no architecture that a GPU of sm_",
                             gpu_architecture, " runs, its newest is sm_", all.back(), "; install a newer NVRTC"),
                      ExitCode::kernel_compile);
  return *best;
}

void Nvrtc::require(std::string_view architecture) const {
  const std::vector<int> all = architectures();
  const int number = architecture.size() > 3 ? std::atoi(std::string(architecture.substr(3)).c_str()) : 0;
  if (all.empty() || std::find(all.begin(), all.end(), number) != all.end()) return;
  std::string known;
  for (int a : all) known += concat(known.empty() ? "" : ", ", "sm_", a);
  throw DeviceError(concat("NVRTC ", version(), " (", library_.path(), ") cannot compile for ", architecture, "; it knows ", known),
                    ExitCode::kernel_compile);
}

Cubin Nvrtc::compile(const std::string& source, std::string_view architecture, const std::string& name,
                     std::span<const std::string> more_options) const {
  require(architecture);
  return NvrtcProgram(functions_, source, name).compile(nvrtc_options(architecture, more_options));
}

std::vector<Cubin> compile_cubins(const Nvrtc& nvrtc, std::span<const std::string> sources, std::string_view architecture,
                                  const CubinOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::unordered_map<std::string_view, std::size_t> places;
  std::vector<std::size_t> place, first;
  std::vector<std::string> distinct;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto [known, is_new] = places.emplace(sources[i], distinct.size());
    place.push_back(known->second);
    if (!is_new) continue;
    first.push_back(i);
    distinct.push_back(sources[i]);
  }
  const std::size_t jobs =
      options.jobs > 0 ? static_cast<std::size_t>(options.jobs) : std::max(1u, std::thread::hardware_concurrency());
  const auto name = [&](std::size_t i) {
    return options.names.empty() ? concat("source ", first[i] + 1, " of ", sources.size())
                                 : concat("kernel ", options.names[first[i]]);
  };
  const auto work = std::make_shared<CubinWork>(nvrtc, architecture, options, std::move(distinct));
  const std::vector<Cubin> made = work->run(jobs, options, name);
  std::vector<Cubin> cubins;
  for (const std::size_t i : place) cubins.push_back(made[i]);
  if (!options.detail) return cubins;
  const auto cached = std::count_if(made.begin(), made.end(), [](const Cubin& cubin) { return cubin.cached; });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::string text = concat("NVRTC ", nvrtc.version(), " (", nvrtc.library().path(), ")");
  for (const std::string& option : nvrtc_options(architecture, options.compiler_options)) text += " " + option;
  options.detail(concat(text, "  # ", made.size(), made.size() == 1 ? " source, " : " sources, ", cached, " from the cache, ",
                        decimal_text(elapsed.count(), 2), " s"));
  return cubins;
}

bool runs_on(int cubin_architecture, int gpu_architecture) {
  return cubin_architecture / 10 == gpu_architecture / 10 && cubin_architecture <= gpu_architecture;
}

std::string kernel_source(const Program& program, const Kernel& kernel) { return program.prelude + "\n" + kernel.text; }

std::vector<Cubin> compile_program(const Nvrtc& nvrtc, const Program& program, const CubinOptions& options) {
  check_internal(program.target.kind == TargetKind::cuda, "program '", program.name, "' is for ", to_string(program.target),
                 ", not for CUDA");
  std::vector<std::string> sources;
  CubinOptions named = options;
  if (!program.contracts) named.compiler_options.emplace_back(kNoContraction);
  for (const Kernel& kernel : program.kernels) {
    sources.push_back(kernel_source(program, kernel));
    named.names.push_back(kernel.name);
  }
  return compile_cubins(nvrtc, sources, program.target.architecture, named);
}

}  // namespace gcomp::runtime::cuda
