#include "runtime/cpu/device.h"

#include <fstream>
#include <utility>

#include "gcomp/communicator.h"
#include "ir/base/error.h"
#include "runtime/cpu/beside_thread.h"
#include "runtime/cpu/compiler.h"
#include "runtime/cpu/executable.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/kernel_library.h"
#include "runtime/cpu/state_memory.h"
#include "runtime/cpu/thread_pool.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr int kMaxThreads = 1024;

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line) && !line.empty();) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

int thread_count(int asked) {
  if (asked < 0 || asked > kMaxThreads)
    throw UserError(concat("threads: ", asked, " is not in 1 .. ", kMaxThreads, " (0 for one per processor)"), ExitCode::usage);
  return asked == 0 ? available_processors() : asked;
}

/// Portable bits are those of vectors; tiles have others.
InstructionSet used_instruction_set(const DeviceOptions& options) {
  const InstructionSet usable = usable_instruction_set(options.instruction_set, widest_instruction_set());
  return options.portable_bits ? vectors_of(usable) : usable;
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options)
      : options_(options),
        instructions_(used_instruction_set(options)),
        backend_{&gemm_functions(instructions_), &convolution_functions(instructions_), &bf16_convolution_functions(instructions_),
                 tile_functions(instructions_), options.winograd},
        pool_(std::make_shared<ThreadPool>(thread_count(options.threads))),
        beside_(std::make_shared<BesideThread>()) {
    if (options.portable_bits && instructions_ == InstructionSet::baseline)
      throw DeviceError(concat("the CPU cannot give portable bits with ", shown_name(instructions_),
                               ": they are those of fused multiply-adds, wanted AVX2 and FMA or AVX-512"));
  }

  Target target() const override { return {}; }

  std::string description() const override {
    const InstructionSet widest = widest_instruction_set();
    return concat("cpu, ", pool_->size(), pool_->size() == 1 ? " thread, " : " threads, ", shown_name(instructions_),
                  !options_.instruction_set || instructions_ == widest
                      ? std::string(refuses_tiles() ? " (the operating system lets this process not use the processor's AMX)" : "")
                      : concat(" (as asked; the processor has ", shown_name(widest), ")"),
                  options_.winograd ? ", Winograd" : "", ", ", processor_name());
  }

  std::shared_ptr<StateMemory> allocate_states() override { return std::make_shared<CpuStateMemory>(beside_); }

  BesideExchanges exchanges_beside() const override {
    if (!options_.communicator || options_.overlap == Optional<bool>(false)) return BesideExchanges::none;
    // Threads that hand work to each other on processors that all compute wait longer than the exchange takes.
    const bool has_room = pool_->size() * options_.communicator->size() < available_processors();
    if (!options_.overlap && !has_room) return BesideExchanges::none;
    return options_.communicator->beside() ? BesideExchanges::freely : BesideExchanges::none;
  }

  std::unique_ptr<Executable> load_program(Program program, std::shared_ptr<StateMemory> states,
                                           std::span<const std::byte> kernel_binary, int shards, Lane lane) override {
    check_user(program.target.kind == TargetKind::cpu, "program '", program.name, "' is compiled for ", to_string(program.target),
               ", the device is the CPU");
    auto cpu_states = std::dynamic_pointer_cast<CpuStateMemory>(std::move(states));
    check_internal(cpu_states != nullptr, "load: the states were not allocated by a CPU device");
    auto kernels = load_kernels(program, kernel_binary);
    const CpuExecutable::Place place =
        lane == Lane::main ? CpuExecutable::Place{pool_, options_.communicator, beside_, lane} : place_beside();
    return std::make_unique<CpuExecutable>(std::move(program), std::move(cpu_states), std::move(kernels), place, backend_, shards);
  }

 private:
  /// One thread computes and waits for other ranks: the pool is that of the program that runs meanwhile.
  CpuExecutable::Place place_beside() {
    if (!beside_pool_) beside_pool_ = std::make_shared<ThreadPool>(1);
    return {beside_pool_, options_.communicator ? options_.communicator->beside() : nullptr, beside_, Lane::beside};
  }

  std::unique_ptr<KernelLibrary> load_kernels(const Program& program, std::span<const std::byte> binary) const {
    if (program.kernels.empty()) return nullptr;
    if (!binary.empty()) {
      const std::string reason = why_unfit(binary, program, instructions_);
      if (reason.empty()) return std::make_unique<KernelLibrary>(std::vector<std::byte>(binary.begin(), binary.end()));
      if (options_.log) options_.log(concat("compiling the kernels of '", program.name, "' anew: ", reason));
    }
    const KernelCompilerOptions compiler{
        .compiler = options_.compiler,
        .cache_directory = options_.use_cache ? cache_directory_of(options_) : std::filesystem::path(),
        .jobs = 0,
        .instruction_set = instructions_,
        .log = options_.log,
        .kernels = options_.kernels,
        .progress = options_.kernel_progress,
        .cancelled = options_.cancelled,
        .timeout = options_.compiler_timeout,
        .detail = options_.detail};
    return std::make_unique<KernelLibrary>(compile_kernels(program, compiler));
  }

  DeviceOptions options_;
  InstructionSet instructions_;
  CallBackend backend_;
  std::shared_ptr<ThreadPool> pool_, beside_pool_;
  std::shared_ptr<BesideThread> beside_;
};

}  // namespace

std::unique_ptr<Device> open_cpu_device(const DeviceOptions& options) { return std::make_unique<CpuDevice>(options); }

}  // namespace gcomp::runtime::cpu
