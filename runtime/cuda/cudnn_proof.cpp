#include "runtime/cuda/cudnn_proof.h"

#include <algorithm>
#include <vector>

#include "gcomp/version.h"
#include "ir/base/integers.h"
#include "runtime/cuda/program_memory.h"

namespace gcomp::runtime::cuda {
namespace {

constexpr std::string_view kRepeats = "repeats", kVaries = "varies";

}  // namespace

CudnnProof::CudnnProof(const Session& session, const DeviceOptions& options)
    : session_(session), log_(options.log), cache_(options.use_cache ? cache_directory_of(options) : std::filesystem::path()) {
  if (session.cudnn) read(options);
}

void CudnnProof::read(const DeviceOptions& options) {
  const bool fast = options.precision == MatmulPrecision::tf32;
  key_ = concat("repeated plans of gcomp ", version(), "\ncuDNN ", session_.cudnn->version(), fast ? " with TF32" : "", "\n",
                describe(session_.context->gpu()), ", driver ", session_.driver().version(), "\n");
  std::string damage;
  const auto bytes = cache_.find(key_, damage);
  if (!damage.empty() && log_)
    log_(concat("the file of repeated plans ", cache_.path_of(key_).string(), " is begun anew: ", damage));
  if (!bytes) return;
  std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    const std::string_view line = text.substr(0, end);
    if (const std::size_t tab = line.find('\t'); tab != line.npos)
      repeats_.emplace(std::string(line.substr(0, tab)), line.substr(tab + 1) == kRepeats);
  }
}

bool CudnnProof::prove(CudnnPlans& plans, const CudnnTrial& trial, std::string& reason) {
  do {
    switch (verdict_of(plans, trial, concat(trial.shape, " plan ", plans.name()))) {
      case Verdict::repeats: return true;
      case Verdict::varies:
        if (log_) log_(concat(trial.origin, ": cuDNN's engine ", plans.engine(), " does not repeat its bits and is passed over"));
        break;
      case Verdict::untried: reason = "there is no memory to try its plans"; return false;
    }
  } while (plans.next());
  reason = "none of its plans repeats its bits";
  return false;
}

CudnnProof::Verdict CudnnProof::verdict_of(const CudnnPlans& plans, const CudnnTrial& trial, const std::string& plan) {
  if (const auto known = repeats_.find(plan); known != repeats_.end()) return known->second ? Verdict::repeats : Verdict::varies;
  const Verdict verdict = replay(plans, trial);
  if (verdict == Verdict::untried) return verdict;
  repeats_[plan] = verdict == Verdict::repeats;
  changed_ = true;
  return verdict;
}

/// Somewhere to compute in: the arena of loaded programs, in which nothing lasts from run to run, or memory of its own. Null where
/// that would take more than half of what is left.
std::shared_ptr<const DeviceMemory> CudnnProof::scratch(std::int64_t bytes) const {
  if (auto arena = shared_arena(session_, bytes, Lane::main)) return arena;
  if (bytes > session_.context->memory().free / 2) return nullptr;
  return std::make_shared<DeviceMemory>(session_.context, bytes, "a plan that is tried");
}

CudnnProof::Verdict CudnnProof::replay(const CudnnPlans& plans, const CudnnTrial& trial) {
  std::vector<std::int64_t> offsets = {0};  // the last is the workspace's
  for (const CudnnTrial::Block& block : trial.blocks)
    offsets.push_back(round_up(offsets.back() + block.elements * static_cast<std::int64_t>(size_of(block.dtype)), 256));
  const auto memory = scratch(offsets.back() + trial.own_workspace + plans.workspace_bytes());
  if (!memory) return Verdict::untried;
  std::vector<CUdeviceptr> addresses;
  for (const std::int64_t offset : offsets) addresses.push_back(memory->address() + static_cast<CUdeviceptr>(offset));
  const CUdeviceptr workspace = addresses.back();
  addresses.pop_back();
  for (std::size_t i = 0; i < addresses.size(); ++i)
    numbers_.fill(session_, addresses[i], trial.blocks[i].dtype, trial.blocks[i].elements, trial.origin);
  const auto results = [&] {
    trial.queue(addresses, workspace, session_.compute.get());
    return written_bytes(addresses, trial);
  };
  const std::vector<std::byte> first = results();
  return results() == first ? Verdict::repeats : Verdict::varies;
}

std::vector<std::byte> CudnnProof::written_bytes(const std::vector<CUdeviceptr>& addresses, const CudnnTrial& trial) const {
  std::vector<std::byte> all;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (!trial.blocks[i].written) continue;
    const std::size_t begin = all.size();
    const std::size_t bytes = static_cast<std::size_t>(trial.blocks[i].elements) * size_of(trial.blocks[i].dtype);
    all.resize(begin + bytes);
    GCOMP_CUDA(session_.driver(), trial.origin, cuMemcpyDtoHAsync_v2, all.data() + begin, addresses[i], bytes,
               session_.compute.get());
    GCOMP_CUDA(session_.driver(), trial.origin, cuStreamSynchronize, session_.compute.get());
  }
  return all;
}

void CudnnProof::save() {
  if (!changed_ || !cache_.unusable().empty()) return;
  std::string text;
  for (const auto& [plan, repeats] : repeats_) text += concat(plan, "\t", repeats ? kRepeats : kVaries, "\n");
  if (const std::string failure = cache_.store(key_, std::as_bytes(std::span(text))); !failure.empty() && log_)
    log_(concat("what was found of cuDNN's plans is not kept: ", failure));
  changed_ = false;
}

}  // namespace gcomp::runtime::cuda
