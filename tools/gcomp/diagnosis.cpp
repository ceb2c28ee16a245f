#include "tools/gcomp/diagnosis.h"

#include <chrono>
#include <cstdio>
#include <optional>

#include "gcomp/trainer.h"
#include "gcomp/version.h"
#include "ir/base/units.h"
#include "runtime/comm/mpi_communicator.h"
#include "runtime/cpu/compiler.h"
#include "runtime/cpu/find_compiler.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/cudnn.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/gpu.h"
#include "runtime/cuda/nccl.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/files/disk_cache.h"
#include "tools/gcomp/report.h"

namespace gcomp::tools {
namespace {

using namespace gcomp::runtime::cuda;
using SharedDriver = std::shared_ptr<const Driver>;

/// A message "what; cure" in its two parts.
Finding failure(std::string name, Health health, const std::string& message) {
  const std::size_t at = message.rfind("; ");
  if (at == message.npos) return {std::move(name), health, message, ""};
  return {std::move(name), health, message.substr(0, at), message.substr(at + 2)};
}

std::string place(const LibraryResult& found) { return concat(found.library->path(), " (", found.origin, ")"); }

SharedDriver check_driver(const runtime::DeviceOptions& options, std::vector<Finding>& findings) {
  try {
    const SharedDriver driver =
        Driver::open(options.libraries, options.visible_devices ? options.visible_devices->c_str() : nullptr);
    findings.push_back({"CUDA driver", Health::good, concat("of CUDA ", driver->version(), ", ", place(driver->found())), "",
                        driver->found().rejected});
    return driver;
  } catch (const DeviceError& error) {
    findings.push_back(failure("CUDA driver", Health::absent, error.what()));
    findings.back().cure += findings.back().cure.empty() ? "--device cpu works without it" : "; --device cpu works without it";
    return nullptr;
  }
}

/// Gives the architecture of the GPU that would be taken, or 0.
int check_gpus(const SharedDriver& driver, const runtime::DeviceOptions& options, std::vector<Finding>& findings) {
  int architecture = 0;
  const auto check = [&](const Gpu& gpu) {
    const std::string reason = why_unfit(gpu), name = concat("GPU cuda:", gpu.ordinal);
    if (!reason.empty()) {
      findings.push_back({name, Health::bad, concat(describe(gpu), ": ", reason), "take another GPU, or --device cpu"});
      return;
    }
    try {
      const Context context(driver, gpu);
      findings.push_back({name, Health::good,
                          concat(describe(gpu), ", ", runtime::cuda::bytes_text(context.memory().free), " free, ",
                                 gpu.multiprocessors, " multiprocessors, ", gpu.uuid),
                          ""});
    } catch (const DeviceError& error) {  // one that others use alone says nothing of the next
      findings.push_back(failure(name, Health::bad, error.what()));
      return;
    }
    if (gpu.ordinal == options.gpu.value_or(0)) architecture = gpu.architecture;
  };
  try {
    const std::vector<Gpu> gpus = list_gpus(*driver);
    for (const Gpu& gpu : gpus) check(gpu);
    const auto asked = [&](const Gpu& gpu) { return gpu.ordinal == *options.gpu; };
    if (options.gpu && std::ranges::none_of(gpus, asked))
      findings.push_back({concat("GPU cuda:", *options.gpu), Health::bad,
                          concat("there is none of this number among ", gpus.size()), "take another GPU, or --device cpu"});
  } catch (const DeviceError& error) { findings.push_back(failure("GPU", Health::bad, error.what())); }
  return architecture;
}

/// Whether ranks on this machine copy from GPU to GPU, or through the host's memory.
void check_peers(const SharedDriver& driver, std::vector<Finding>& findings) {
  const std::string name = "GPU to GPU";
  try {
    const std::vector<Gpu> gpus = list_gpus(*driver);
    if (gpus.size() < 2) return;
    std::string apart;
    for (const Gpu& from : gpus)
      for (const Gpu& to : gpus) {
        if (from.ordinal >= to.ordinal) continue;
        int there = 0, back = 0;
        GCOMP_CUDA(*driver, "", cuDeviceCanAccessPeer, &there, from.device, to.device);
        GCOMP_CUDA(*driver, "", cuDeviceCanAccessPeer, &back, to.device, from.device);
        if (!there || !back) apart += concat(apart.empty() ? "" : ", ", "cuda:", from.ordinal, " and cuda:", to.ordinal);
      }
    if (apart.empty()) findings.push_back({name, Health::good, concat("all ", gpus.size(), " reach each other's memory"), ""});
    else
      findings.push_back(
          {name, Health::absent, concat("no way into each other's memory: ", apart),
           "ranks exchange through the host's memory, which is slower; nvidia-smi topo -m shows how they are connected"});
  } catch (const DeviceError& error) { findings.push_back(failure(name, Health::bad, error.what())); }
}

void check_nvrtc(const SharedDriver& driver, int architecture, const runtime::DeviceOptions& options,
                 std::vector<Finding>& findings) {
  const Health without = driver ? Health::bad : Health::absent;
  try {
    const Nvrtc nvrtc = Nvrtc::find(options.libraries);
    const std::vector<int> all = nvrtc.architectures();
    findings.push_back({"NVRTC", Health::good,
                        concat(nvrtc.version(), ", ", place(nvrtc.found()),
                               all.empty() ? "" : concat(", for sm_", all.front(), " to sm_", all.back())),
                        "", nvrtc.found().rejected});
    // Its builtins are a library of their own, which may be missing.
    nvrtc.compile("extern \"C\" __global__ void k0(float* p) { p[threadIdx.x] = 1; }\n",
                  architecture_name(all.empty() ? runtime::kOldestArchitecture : all.front()));
    if (!driver) return;
    const Nvrtc fit = Nvrtc::find(options.libraries, driver->major());
    if (architecture != 0) fit.architecture_for(architecture);
    findings.push_back({"driver and NVRTC", Health::good,
                        concat("fit each other: CUDA ", driver->version(), " and NVRTC ", fit.version(),
                               fit.library().path() == nvrtc.library().path() ? "" : concat(" (", fit.library().path(), ")")),
                        ""});
  } catch (const DeviceError& error) {
    const bool found = findings.back().name == "NVRTC";
    findings.push_back(failure(found ? driver ? "driver and NVRTC" : "NVRTC's compilation" : "NVRTC", without, error.what()));
  }
}

/// `missing` is what the library's absence means.
void check_library(LibraryKind kind, const LibraryResult& found, const std::string& version, Health missing,
                   const std::string& without, std::vector<Finding>& findings) {
  const std::string name(name_of(kind));
  if (found.library) findings.push_back({name, Health::good, concat(version, ", ", place(found)), "", found.rejected});
  else findings.push_back({name, missing, "not found", without, found.rejected});
}

std::string cublaslt_version(const LibraryResult& found) {
  const auto version = found.library ? reinterpret_cast<std::size_t (*)()>(found.library->symbol("cublasLtGetVersion")) : nullptr;
  return version ? concat(version() / 10000, ".", version() / 100 % 100, ".", version() % 100) : std::string();
}

void check_libraries(const SharedDriver& driver, const runtime::DeviceOptions& options, std::vector<Finding>& findings) {
  const LibraryResult cublaslt = find_cublaslt(options.libraries, driver ? driver->major() : 0);
  check_library(
      LibraryKind::cublaslt, cublaslt, cublaslt_version(cublaslt), driver ? Health::bad : Health::absent,
      concat(
          failure("", Health::absent, cublaslt.absence(LibraryKind::cublaslt, "nvidia-cublas", driver ? driver->major() : 0)).cure,
          ", or train with --no-cublaslt: generated kernels compute matrix products then, which is slower"),
      findings);
  const LibraryResult cudnn = find_cudnn(options.libraries, driver ? driver->major() : 0);
  check_library(LibraryKind::cudnn, cudnn, cudnn.library ? cudnn_version(*cudnn.library) : "", Health::absent,
                concat(failure("", Health::absent, cudnn_absence(cudnn, driver ? driver->major() : 0)).cure,
                       "; without it generated kernels compute convolutions, which is slower"),
                findings);
  const LibraryResult nccl = find_nccl(options.libraries);
  check_library(LibraryKind::nccl, nccl, nccl.library ? nccl_version(*nccl.library) : "", Health::absent,
                concat("several ranks on GPUs (--ranks N --device cuda) need it: ",
                       failure("", Health::absent, nccl_absence(nccl, driver ? driver->major() : 0)).cure),
                findings);
}

/// The processor, and which of its instructions kernels use.
void check_mpi(std::vector<Finding>& findings) {
  try {
    const runtime::comm::MpiLibrary found = runtime::comm::find_mpi();
    const std::string launcher = runtime::cpu::find_program("mpirun");
    findings.push_back(
        {"MPI", launcher.empty() ? Health::bad : Health::good,
         concat(found.version, ", ", found.plugin.string(), launcher.empty() ? "; there is no mpirun" : ", " + launcher),
         !launcher.empty() ? "" : "install it (Debian: openmpi-bin), or start ranks by another launcher"});
  } catch (const DeviceError& error) {
    findings.push_back({"MPI", Health::absent, error.what(), "without it training runs in one process"});
  }
}

void check_cpu(const runtime::DeviceOptions& options, std::vector<Finding>& findings) {
  try {
    const std::string description = runtime::open_device(runtime::DeviceRequest::cpu, options)->description();
    findings.push_back({"CPU", Health::good, description.substr(description.find(' ') + 1), ""});
  } catch (const DeviceError& error) { findings.push_back(failure("CPU", Health::bad, error.what())); }
}

void check_compiler(const runtime::DeviceOptions& options, std::vector<Finding>& findings) {
  try {
    findings.push_back(
        {"C++ compiler", Health::good, runtime::cpu::describe_compiler(options.compiler, options.compiler_timeout), ""});
  } catch (const DeviceError& error) {
    findings.push_back(
        {"C++ compiler", Health::bad, error.what(), "install one (Debian, Ubuntu: apt install g++) for training on the CPU"});
  }
}

void check_cache(const runtime::DeviceOptions& options, std::vector<Finding>& findings) {
  const runtime::DiskCache cache(runtime::cache_directory_of(options));
  if (!cache.unusable().empty()) {
    findings.push_back({"kernel cache", Health::bad, cache.unusable(),
                        "kernels are compiled in every run until then; --no-cache says no more of it"});
    return;
  }
  std::int64_t bytes = 0;
  const std::vector<runtime::CacheEntry> entries = cache.entries();
  for (const runtime::CacheEntry& entry : entries) bytes += entry.bytes;
  findings.push_back({"kernel cache", Health::good,
                      concat(cache.directory().string(), ", ", entries.size(), entries.size() == 1 ? " entry, " : " entries, ",
                             tools::bytes_text(bytes), " of ", tools::bytes_text(runtime::kMostCacheBytes)),
                      ""});
}

/// Two layers, two steps: the second one is timed.
bool try_step(runtime::DeviceRequest request, const runtime::DeviceOptions& options, std::vector<Finding>& findings) {
  const std::string name = request == runtime::DeviceRequest::cpu ? "training on the CPU" : "training on the GPU";
  try {
    const Model model = Model::define([](Layers& nn) {
      Var x = nn.input("x", DType::f32, {kBatch, 4});
      x = nn.relu(nn.linear("first", x, 8));
      nn.output("y", nn.linear("second", x, 2));
    });
    TrainOptions training;
    training.loss = "mse";
    training.batch = 4;
    training.device = request;
    training.device_options = options;
    Trainer trainer(model, training);
    const std::vector<float> x(16, 0.5f), y(8, 1.0f);
    const Batch batch{{"x", {x, {4, 4}}}, {"label", {y, {4, 2}}}};
    const double before = trainer.train_step(batch);
    const auto start = std::chrono::steady_clock::now();
    const double after = trainer.train_step(batch);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    char losses[64];
    std::snprintf(losses, sizeof losses, ", its loss went from %.4f to %.4f", before, after);
    const std::string text = concat("a step of a tiny network took ", time_text(seconds), losses);
    findings.push_back(
        {name, after < before ? Health::good : Health::bad, text,
         after < before ? "" : "a loss that does not fall here is a fault of gcomp or of the machine; please report it"});
    return after < before;
  } catch (const Error& error) {
    findings.push_back(failure(name, Health::bad, error.what()));
    return false;
  }
}

}  // namespace

Diagnosis diagnose(const runtime::DeviceOptions& options) {
  Diagnosis diagnosis;
  std::vector<Finding>& findings = diagnosis.findings;
  findings.push_back({"gcomp", Health::good, std::string(gcomp::version()), ""});
  const SharedDriver driver = check_driver(options, findings);
  const int architecture = driver ? check_gpus(driver, options, findings) : 0;
  if (driver) check_peers(driver, findings);
  check_nvrtc(driver, architecture, options, findings);
  check_libraries(driver, options, findings);
  check_mpi(findings);
  check_cpu(options, findings);
  check_compiler(options, findings);
  check_cache(options, findings);
  diagnosis.cpu_trains = try_step(runtime::DeviceRequest::cpu, options, findings);
  if (architecture != 0) diagnosis.cuda_trains = try_step(runtime::DeviceRequest::cuda, options, findings);
  return diagnosis;
}

}  // namespace gcomp::tools
