#include "runtime/cuda/device.h"

#include <utility>

#include "runtime/collective.h"
#include "runtime/cuda/executable.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/cuda/rank_gpus.h"

namespace gcomp::runtime::cuda {
namespace {

const char* visible_devices(const DeviceOptions& options) {
  return options.visible_devices ? options.visible_devices->c_str() : nullptr;
}

DeviceError no_cublaslt(const std::string& reason) {
  return DeviceError(concat(reason, "; or use --no-cublaslt: generated kernels compute matrix products then, which is slower"));
}

bool has_other_ranks(const DeviceOptions& options) { return options.communicator && options.communicator->size() > 1; }

/// Where a launcher shows each rank its own GPUs, the count of those on the machine is not known: whether two take the same one is
/// seen when all have taken theirs.
int ordinal_of(const Driver& driver, const DeviceOptions& options) {
  if (options.gpu) return *options.gpu;
  if (!has_other_ranks(options)) return 0;
  int count = 0;
  GCOMP_CUDA(driver, "", cuDeviceGetCount, &count);
  return count > 0 ? options.rank_on_host % count : 0;
}

void open_alone(Session& session, const DeviceOptions& options) {
  FoundGpu found = find_gpu(options);
  session.context = std::make_shared<Context>(std::move(found.driver), std::move(found.gpu));
  session.compute = make_stream(session.context);
  session.copy = make_stream(session.context);
  std::string reason;
  if (options.use_cublaslt) session.cublaslt = CublasLt::open(session.context, options.libraries, reason);
  if (options.use_cublaslt && !session.cublaslt) throw no_cublaslt(reason);
  // Nothing but speed depends on it.
  if (options.use_cudnn) session.cudnn = Cudnn::open(session.context, options.libraries, reason);
  if (options.use_cudnn && !session.cudnn && options.log)
    options.log(concat("convolutions and attention by generated kernels: ", reason));
}

/// All ranks do the same until each has its GPU and a way to the others, or all have failed.
void open_together(Session& session, const DeviceOptions& options) {
  Communicator& ranks = *options.communicator;
  std::shared_ptr<const Nccl> nccl;
  agree(ranks, [&] {
    open_alone(session, options);
    nccl = std::make_shared<Nccl>(options.libraries, session.driver().major());
  });
  require_fitting_gpus(ranks, {.gpu = session.context->gpu(),
                               .nccl = nccl->version(),
                               .cublaslt = session.cublaslt ? session.cublaslt->version() : "none",
                               .cudnn = session.cudnn ? session.cudnn->version() : "none",
                               .asked = options.gpu.has_value()});
  session.beside.stream = make_stream(session.context);
  session.beside.last = make_event(session.context, CU_EVENT_DISABLE_TIMING);
  session.nccl = std::make_unique<NcclRank>(session.context, std::move(nccl), ranks, session.compute.get());
}

SharedSession open_session(const DeviceOptions& options) {
  auto session = std::make_shared<Session>();
  if (has_other_ranks(options)) open_together(*session, options);
  else open_alone(*session, options);
  return session;
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const DeviceOptions& options)
      : options_(options), session_(open_session(options)), tuning_(*session_, options) {}

  Target target() const override {
    return {.kind = TargetKind::cuda, .architecture = architecture_name(session_->context->gpu().architecture)};
  }

  std::string description() const override {
    const Gpu& gpu = session_->context->gpu();
    return concat(
        "cuda:", gpu.ordinal, ", ", describe(gpu), ", driver of CUDA ", session_->driver().version(), ", ",
        session_->cublaslt ? concat("cuBLASLt ", session_->cublaslt->version()) : std::string("no cuBLASLt"),
        session_->cudnn ? concat(", cuDNN ", session_->cudnn->version()) : std::string(),
        session_->nccl ? concat(", NCCL ", session_->nccl->version(), " to ", options_.communicator->size(), " ranks") : "");
  }

  std::shared_ptr<StateMemory> allocate_states() override { return std::make_shared<CudaStateMemory>(session_); }

  BesideExchanges exchanges_beside() const override {
    return options_.overlap.value_or(true) && session_->nccl ? BesideExchanges::in_order : BesideExchanges::none;
  }

  TimedChoices timed_choices() const override { return tuning_.choices(); }
  void time_products(const Program& program, std::span<const std::byte> kernel_binary) override {
    session_->context->make_current();
    cuda::time_products(*session_, program, kernel_binary, options_, tuning_);
  }
  void follow_choices(const TimedChoices& choices) override { tuning_.follow(choices); }

  std::unique_ptr<Executable> load_program(Program program, std::shared_ptr<StateMemory> states,
                                           std::span<const std::byte> kernel_binary, int shards, Lane lane) override {
    check_user(program.target.kind == TargetKind::cuda, "program '", program.name, "' is compiled for ", to_string(program.target),
               ", the device is a GPU");
    auto cuda_states = std::dynamic_pointer_cast<CudaStateMemory>(std::move(states));
    check_internal(cuda_states && cuda_states->session() == session_, "load: the states were not allocated by this device");
    return std::make_unique<CudaExecutable>(std::move(program), std::move(cuda_states), kernel_binary, options_, tuning_, shards,
                                            lane);
  }

 private:
  DeviceOptions options_;
  SharedSession session_;
  MatmulTuning tuning_;
};

}  // namespace

FoundGpu find_gpu(const DeviceOptions& options) {
  FoundGpu found{.driver = Driver::open(options.libraries, visible_devices(options)), .gpu = {}};
  found.gpu = choose_gpu(*found.driver, ordinal_of(*found.driver, options), visible_devices(options));
  return found;
}

void require_cuda(const DeviceOptions& options) {
  const FoundGpu found = find_gpu(options);
  Nvrtc::find(options.libraries, found.driver->major()).architecture_for(found.gpu.architecture);
  if (has_other_ranks(options)) Nccl(options.libraries, found.driver->major());
  if (!options.use_cublaslt) return;
  const LibraryResult cublaslt = find_cublaslt(options.libraries, found.driver->major());
  if (!cublaslt.library) throw no_cublaslt(cublaslt.absence(LibraryKind::cublaslt, "nvidia-cublas", found.driver->major()));
}

std::unique_ptr<Device> open_cuda_device(const DeviceOptions& options) { return std::make_unique<CudaDevice>(options); }

}  // namespace gcomp::runtime::cuda
