#include "tests/cuda/nccl/meeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "ir/base/error.h"
#include "tests/cuda/record/environment.h"

namespace gcomp::emulated {
namespace {

constexpr char kMagic[8] = {'e', 'm', 'n', 'c', 'c', 'l', '0', '1'};
constexpr std::int64_t kPatience = 300;
constexpr std::chrono::milliseconds kLook{1};

struct Id {
  char magic[8];
  int process = 0, file = 0;
};
static_assert(sizeof(Id) <= sizeof(ncclUniqueId));
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<Presence>::is_always_lock_free);

/// A process that has ended and that nobody has asked for yet is a zombie.
bool is_alive(int process) {
  if (kill(process, 0) != 0 && errno == ESRCH) return false;
  std::ifstream file(concat("/proc/", process, "/stat"));
  std::string text;
  std::getline(file, text);
  const std::size_t state = text.rfind(") ");
  return state == text.npos || (text[state + 2] != 'Z' && text[state + 2] != 'X');
}

}  // namespace

std::chrono::seconds patience() { return std::chrono::seconds(integer_setting("NCCL_SECONDS", kPatience)); }

NcclFailure make_id(ncclUniqueId& id) {
  const int file = memfd_create("emulated-nccl", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, sizeof(SharedMemory)) != 0)
    return {ncclSystemError, concat("no shared memory: ", std::strerror(errno))};
  Id named;
  std::memcpy(named.magic, kMagic, sizeof kMagic);
  named.process = getpid();
  named.file = file;  // open until the process ends
  std::memset(&id, 0, sizeof id);
  std::memcpy(&id, &named, sizeof named);
  return {};
}

std::shared_ptr<Meeting> Meeting::open(const ncclUniqueId& id, NcclFailure& failure) {
  Id named;
  std::memcpy(static_cast<void*>(&named), &id, sizeof named);
  if (std::memcmp(named.magic, kMagic, sizeof kMagic) != 0) {
    failure = {ncclInvalidArgument, "the unique id is none of ncclGetUniqueId"};
    return nullptr;
  }
  const std::string path = concat("/proc/", named.process, "/fd/", named.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* memory = file < 0 ? MAP_FAILED : mmap(nullptr, sizeof(SharedMemory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED)
    failure = {ncclSystemError, concat("the process that made the unique id is not there (", path, "): ", std::strerror(errno))};
  if (file >= 0) ::close(file);
  return memory == MAP_FAILED ? nullptr : std::shared_ptr<Meeting>(new Meeting(static_cast<SharedMemory*>(memory)));
}

Meeting::~Meeting() { munmap(shared_, sizeof *shared_); }

NcclFailure Meeting::attach(int rank, int ranks, const CUuuid& gpu) {
  int others = 0;
  if (!shared_->ranks.compare_exchange_strong(others, ranks) && others != ranks) {
    fail_as(rank);
    return {ncclInvalidArgument, concat("rank ", rank, " is of ", ranks, " ranks, others of ", others)};
  }
  SharedRank& own = shared_->rank[rank];
  Presence absent = Presence::absent;
  rank_ = rank;
  ranks_ = ranks;
  own.process = getpid();
  own.gpu = gpu;
  if (!own.presence.compare_exchange_strong(absent, Presence::there)) {
    fail();
    return {ncclInvalidArgument, concat("there are two ranks ", rank)};
  }
  ++shared_->attached;
  const auto begin = std::chrono::steady_clock::now();
  while (shared_->attached < ranks) {
    for (int peer = 0; peer < ranks; ++peer)
      if (const std::string why = peer == rank ? "" : why_in_vain(peer); !why.empty()) return {ncclRemoteError, why};
    if (std::chrono::steady_clock::now() - begin > patience())
      return {ncclSystemError, concat("of ", ranks, " ranks only ", shared_->attached.load(), " have come")};
    std::this_thread::sleep_for(kLook);
  }
  return check_gpus();
}

NcclFailure Meeting::check_gpus() const {
  for (int a = 0; a < ranks_; ++a)
    for (int b = 0; b < a; ++b)
      if (std::memcmp(&shared_->rank[a].gpu, &shared_->rank[b].gpu, sizeof(CUuuid)) == 0)
        return {ncclInvalidUsage, concat("duplicate GPU: ranks ", b, " and ", a, " have the same")};
  return {};
}

bool Meeting::is_awaited() const {
  const std::uint64_t own = shared_->rank[rank_].begun;
  for (int r = 0; r < ranks_; ++r)
    if (shared_->rank[r].begun > own) return true;
  return false;
}

void Meeting::fail_as(int rank) {
  int none = 0;
  shared_->failed.compare_exchange_strong(none, rank + 1);
}

std::string Meeting::why_in_vain(int peer) const {
  if (const int failed = shared_->failed; failed != 0 && failed != rank_ + 1)
    return concat("an exchange of rank ", failed - 1, " failed");
  const SharedRank& other = shared_->rank[peer];
  switch (other.presence.load()) {
    case Presence::absent: return "";
    case Presence::closed: return concat("rank ", peer, " has destroyed its communicator");
    case Presence::aborted: return concat("rank ", peer, " has aborted");
    case Presence::there: return is_alive(other.process) ? "" : concat("the process of rank ", peer, " is gone");
  }
  return "";
}

}  // namespace gcomp::emulated
