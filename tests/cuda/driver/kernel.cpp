#include "tests/cuda/driver/kernel.h"

#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "ir/base/error.h"

namespace gcomp::emulated {
namespace {

using cuda_shim::Launch;

std::size_t padded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

std::vector<void*> argument_addresses(KernelLaunch& launch) {
  std::vector<void*> addresses;
  std::byte* at = launch.arguments.data();
  for (const cuda_shim::Parameter& parameter : launch.kernel->function.parameters) {
    addresses.push_back(at);
    at += padded(parameter.bytes);
  }
  return addresses;
}

/// "" or which argument points to nothing.
std::string stray_pointer(const Context& context, const Memory& host, const KernelLaunch& launch,
                          const std::vector<void*>& addresses) {
  const auto& parameters = launch.kernel->function.parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].pointer) continue;
    const void* pointer = nullptr;
    std::memcpy(&pointer, addresses[i], sizeof pointer);
    if (pointer && !context.memory.block_of(pointer) && !host.block_of(pointer))
      return concat("argument ", i, ", ", pointer, ", is in no live memory");
  }
  return "";
}

using Snapshot = std::vector<std::vector<std::byte>>;

Snapshot snapshot(const Memory& memory) {
  Snapshot all;
  for (const auto& [address, block] : memory.all()) all.emplace_back(block->data(), block->data() + block->bytes());
  return all;
}

void restore(const Memory& memory, const Snapshot& kept) {
  std::size_t i = 0;
  for (const auto& [address, block] : memory.all()) {
    std::memcpy(block->data(), kept[i].data(), block->bytes());
    ++i;
  }
}

/// "" or where two states of memory differ.
std::string difference(const Snapshot& first, const Snapshot& second) {
  for (std::size_t b = 0; b < first.size(); ++b)
    for (std::size_t i = 0; i < first[b].size(); ++i)
      if (first[b][i] != second[b][i])
        return concat("byte ", i, " of an allocation of ", first[b].size(), " bytes depends on the order of threads or on shared ",
                      "memory that nothing has written");
  return "";
}

void run_twice(Context& context, const cuda_shim::Function& function, Launch launch) {
  const Snapshot before = snapshot(context.memory);
  launch.backwards = true;
  context.emulator.launch(function, launch);
  const Snapshot backwards = snapshot(context.memory);
  restore(context.memory, before);
  launch.backwards = false;
  context.emulator.launch(function, launch);
  const std::string found = difference(backwards, snapshot(context.memory));
  check_internal(found.empty(), "a race: ", found);
}

/// What runs now, for the message where it touches memory that no page is behind: the process ends then.
std::string running;

void name_kernel(int signal) {
  const std::string text = "emulated driver: " + running + "it touches memory far outside of every allocation\n";
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(1);
  ::signal(signal, SIG_DFL);
}

/// Names the kernel while it lives, where the process would else end without a word.
class NamedByFault {
 public:
  explicit NamedByFault(const std::string& name) {
    running = name;
    struct sigaction action {};
    action.sa_handler = name_kernel;
    sigaction(SIGSEGV, &action, &before_);
  }
  ~NamedByFault() { sigaction(SIGSEGV, &before_, nullptr); }
  NamedByFault(const NamedByFault&) = delete;
  NamedByFault& operator=(const NamedByFault&) = delete;

 private:
  struct sigaction before_ {};
};

CUresult run(Context& context, const Memory& host, Calls& calls, KernelLaunch& launch) {
  const std::string where =
      concat("kernel ", launch.kernel->name, ", grid ", launch.blocks.x, " x ", launch.blocks.y, " x ", launch.blocks.z, ", block ",
             launch.threads.x, " x ", launch.threads.y, " x ", launch.threads.z, ": ");
  if (const int error = calls.enter("kernel")) return context.fail(static_cast<CUresult>(error), where + "an injected failure");
  std::vector<void*> addresses = argument_addresses(launch);
  if (const std::string stray = stray_pointer(context, host, launch, addresses); !stray.empty())
    return context.fail(CUDA_ERROR_ILLEGAL_ADDRESS, where + stray);
  const Launch call{
      .blocks = launch.blocks, .threads = launch.threads, .dynamic_shared = launch.dynamic_shared, .arguments = addresses.data()};
  try {
    const NamedByFault named(where);
    if (context.options.races) run_twice(context, launch.kernel->function, call);
    else context.emulator.launch(launch.kernel->function, call);
  } catch (const Error& error) { return context.fail(CUDA_ERROR_LAUNCH_FAILED, where + error.what()); }
  context.worked += context.options.kernel_time;
  std::string damage = context.memory.damage();
  if (damage.empty()) damage = host.damage();
  return damage.empty() ? CUDA_SUCCESS : context.fail(CUDA_ERROR_ILLEGAL_ADDRESS, where + damage);
}

}  // namespace

KernelLaunch copy_arguments(std::shared_ptr<Kernel> kernel, void** parameters) {
  KernelLaunch launch;
  for (std::size_t i = 0; i < kernel->function.parameters.size(); ++i) {
    const std::size_t at = launch.arguments.size(), bytes = kernel->function.parameters[i].bytes;
    launch.arguments.resize(at + padded(bytes));
    std::memcpy(launch.arguments.data() + at, parameters[i], bytes);
  }
  launch.kernel = std::move(kernel);
  return launch;
}

Operation kernel_operation(Context& context, const Memory& host, Calls& calls, KernelLaunch launch) {
  auto kept = std::make_shared<KernelLaunch>(std::move(launch));
  return {"kernel " + kept->kernel->name, [&context, &host, &calls, kept] { return run(context, host, calls, *kept); }};
}

}  // namespace gcomp::emulated
