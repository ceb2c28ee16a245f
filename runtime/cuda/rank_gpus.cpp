#include "runtime/cuda/rank_gpus.h"

#include <map>
#include <utility>
#include <vector>

#include "runtime/collective.h"

namespace gcomp::runtime::cuda {
namespace {

/// Of a driver that does not tell it.
constexpr char kNoUuid[] = "GPU-00000000-0000-0000-0000-000000000000";

struct Gathered {
  std::vector<std::string> hosts, uuids, names, kinds;
  bool asked = false;
};

Gathered gather(Communicator& ranks, const RankGpu& own) {
  Gathered all;
  all.hosts = gather_texts(ranks, ranks.host());
  all.uuids = gather_texts(ranks, own.gpu.uuid);
  all.names = gather_texts(ranks, concat("cuda:", own.gpu.ordinal, " (", own.gpu.name, ", ", own.gpu.uuid, ")"));
  all.kinds = gather_texts(ranks, concat(own.gpu.name, ", ", architecture_name(own.gpu.architecture), ", ", own.gpu.multiprocessors,
                                         " multiprocessors, cuBLASLt ", own.cublaslt, ", cuDNN ", own.cudnn, ", NCCL ", own.nccl));
  for (const std::string& asked : gather_texts(ranks, own.asked ? "1" : "")) all.asked = all.asked || !asked.empty();
  return all;
}

void require_own_gpus(const Gathered& all) {
  std::map<std::pair<std::string, std::string>, std::size_t> taken;
  for (std::size_t r = 0; r < all.hosts.size(); ++r) {
    if (all.uuids[r] == kNoUuid) continue;
    const auto [first, is_new] = taken.try_emplace({all.hosts[r], all.uuids[r]}, r);
    if (is_new) continue;
    throw DeviceError(concat("ranks ", first->second, " and ", r, " of ", all.hosts.size(), " have both taken GPU ", all.names[r],
                             " of host ", all.hosts[r], ", and each rank takes one of its own; ",
                             all.asked ? "leave the number out of --device cuda:N, and each takes the next"
                                       : "start no more ranks on a machine than it has GPUs, or use --device cpu"));
  }
}

/// Libraries choose kernels by the GPU and their version, and other kernels have other last digits.
void require_one_kind(const Gathered& all) {
  for (std::size_t r = 1; r < all.kinds.size(); ++r) {
    if (all.kinds[r] == all.kinds[0]) continue;
    throw DeviceError(concat("rank ", r, " of ", all.kinds.size(), " (", all.hosts[r], ") computes with ", all.kinds[r],
                             ", and rank 0 (", all.hosts[0], ") with ", all.kinds[0],
                             "; what ranks compute has the same bits only where these are the same"));
  }
}

}  // namespace

void require_fitting_gpus(Communicator& ranks, const RankGpu& own) {
  const Gathered all = gather(ranks, own);
  require_own_gpus(all);
  require_one_kind(all);
}

}  // namespace gcomp::runtime::cuda
