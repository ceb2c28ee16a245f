// The emulated NCCL: communicators between processes, groups, and exchanges as work of a stream of the emulated driver.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "ir/base/error.h"
#include "tests/cuda/nccl/exchange.h"
#include "tests/cuda/record/environment.h"
#include "tests/cuda/record/library_calls.h"

#define GCOMP_EXPORT extern "C" __attribute__((visibility("default")))

// The emulated driver's, see driver/exports.h.
extern "C" int gcompEmulatedQueue(gcomp::runtime::cuda::CUstream stream, const char* label, int (*work)(void*),
                                  void (*release)(void*), void* data);
extern "C" int gcompEmulatedHolds(const void* address, std::size_t bytes);
extern "C" void gcompEmulatedProgress();
extern "C" int gcompEmulatedUuid(gcomp::runtime::cuda::CUuuid* uuid);

namespace gcomp::emulated {

#define GCOMP_DECLARE(RESULT, NAME, PARAMETERS) GCOMP_EXPORT RESULT NAME PARAMETERS;
GCOMP_NCCL_FUNCTIONS(GCOMP_DECLARE)
#undef GCOMP_DECLARE

namespace {

constexpr int kIllegalAddress = 700;
constexpr std::chrono::milliseconds kIdle{5};
constexpr int kLooks = 4;         // that find another rank waiting, before what is queued here is run
constexpr int kMostDelay = 3000;  // microseconds
constexpr unsigned kSeedOfRank = 977;

struct Communicator {
  std::shared_ptr<Meeting> meeting;
  bool aborted = false;
  std::atomic<int> error{ncclSuccess};
  std::atomic<int> work{0};  ///< exchanges that are queued, or captured in a graph
  std::optional<std::mt19937> disorder;
  std::thread progress;
  std::atomic<bool> ended{false};

  ~Communicator() { end(); }
  void end() {
    ended = true;
    if (!progress.joinable()) return;
    if (progress.get_id() == std::this_thread::get_id()) progress.detach();  // its last work was the last to hold this
    else progress.join();
  }
};

std::mutex g_mutex;
std::string& last_error() {
  static auto* const text = new std::string();
  return *text;
}
std::map<ncclComm_t, std::shared_ptr<Communicator>>& communicators() {
  static auto* const all = new std::map<ncclComm_t, std::shared_ptr<Communicator>>();
  return *all;
}
std::shared_ptr<Communicator> find(ncclComm_t handle) {
  const std::lock_guard lock(g_mutex);
  const auto found = communicators().find(handle);
  return found == communicators().end() ? nullptr : found->second;
}
std::shared_ptr<Communicator> remove(ncclComm_t handle) {
  const std::lock_guard lock(g_mutex);
  auto node = communicators().extract(handle);
  return node.empty() ? nullptr : node.mapped();
}

ncclResult_t refuse(ncclResult_t result, const std::string& reason) {
  const std::lock_guard lock(g_mutex);
  last_error() = reason;
  return result;
}

ncclResult_t entered(const char* name) {
  const auto error = static_cast<ncclResult_t>(calls().enter(name));
  return error == ncclSuccess ? error : refuse(error, "an injected failure");
}

/// The exchanges of a group, or of one call, that wait in a stream.
struct Work {
  std::shared_ptr<Communicator> communicator;
  std::vector<Transfer> transfers;
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  std::vector<Copy> copies;  // a rank's own part

  explicit Work(std::shared_ptr<Communicator> of) : communicator(std::move(of)) { ++communicator->work; }
  ~Work() { --communicator->work; }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
};

void fail(Communicator& communicator, const NcclFailure& failure) {
  communicator.error = failure.result;
  refuse(failure.result, failure.reason);
}

/// What failed leaves rubbish, no error of the driver: whoever does not ask for the communicator's error goes on with it.
int run_work(void* data) {
  const Work& work = *static_cast<const Work*>(data);
  Communicator& communicator = *work.communicator;
  for (const Transfer& t : work.transfers)
    if (!gcompEmulatedHolds(t.memory, t.header.bytes)) return kIllegalAddress;
  for (const Work::Copy& copy : work.copies)
    if (!gcompEmulatedHolds(copy.to, copy.bytes) || !gcompEmulatedHolds(copy.from, copy.bytes)) return kIllegalAddress;
  if (communicator.aborted || communicator.error != ncclSuccess) return 0;
  Meeting& meeting = *communicator.meeting;
  if (const int error = calls().enter("exchange")) {
    meeting.fail();
    fail(communicator, {static_cast<ncclResult_t>(error), "an injected failure of an exchange"});
    return 0;
  }
  for (const Transfer& t : work.transfers)
    if (!t.sends) std::memset(t.memory, 0xff, t.header.bytes);
  for (const Work::Copy& copy : work.copies)
    if (copy.to != copy.from) std::memcpy(copy.to, copy.from, copy.bytes);
  std::mt19937* disorder = communicator.disorder ? &*communicator.disorder : nullptr;
  if (disorder) std::this_thread::sleep_for(std::chrono::microseconds((*disorder)() % kMostDelay));
  meeting.begin();
  const NcclFailure failure = exchange(meeting, work.transfers, disorder);
  for (const Transfer& t : work.transfers)
    calls().add(t.sends ? "sent bytes" : "received bytes", static_cast<std::int64_t>(t.header.bytes));
  if (failure.result != ncclSuccess) fail(communicator, failure);
  return 0;
}

/// The group of a thread: what was called since ncclGroupStart.
struct Group {
  int depth = 0;
  ncclResult_t failed = ncclSuccess;
  CUstream stream = nullptr;
  std::unique_ptr<Work> work;
};
Group& group() {
  static thread_local Group own;
  return own;
}

ncclResult_t queue_group() {
  Group done = std::exchange(group(), {});
  if (done.failed != ncclSuccess || !done.work) return done.failed;
  const int error = gcompEmulatedQueue(
      done.stream, "an exchange between ranks", run_work, [](void* data) { delete static_cast<Work*>(data); }, done.work.release());
  return error == 0 ? ncclSuccess : refuse(ncclUnhandledCudaError, concat("the stream gave error ", error));
}

/// Adds to the group of the thread, of which a call alone is one.
template <class F>
ncclResult_t add(const char* name, ncclComm_t handle, CUstream stream, std::size_t count, ncclDataType_t type, int peer,
                 const F& transfers) {
  Group& open = group();
  const auto refused = [&](ncclResult_t result, const std::string& reason) {
    if (open.depth > 0 && open.failed == ncclSuccess) open.failed = result;
    return refuse(result, concat(name, ": ", reason));
  };
  if (const ncclResult_t error = entered(name); error != ncclSuccess) return refused(error, "an injected failure");
  const std::shared_ptr<Communicator> communicator = find(handle);
  if (!communicator) return refused(ncclInvalidArgument, "there is no such communicator");
  if (communicator->error != ncclSuccess) return refused(ncclInvalidUsage, "the communicator has failed");
  if (type != ncclInt8 && type != ncclUint8) return refused(ncclInvalidArgument, "bytes alone are emulated");
  if (peer < 0 || peer >= communicator->meeting->ranks()) return refused(ncclInvalidArgument, concat("there is no rank ", peer));
  if (open.work && open.work->communicator != communicator) return refused(ncclInvalidUsage, "a group of two communicators");
  if (open.work && open.stream != stream) return refused(ncclInvalidUsage, "a group in two streams");
  if (count > 0) {
    if (!open.work) open.work = std::make_unique<Work>(communicator);
    open.stream = stream;
    transfers(*open.work, *communicator->meeting);
  }
  return open.depth > 0 ? ncclSuccess : queue_group();
}

std::byte* memory(const void* address) { return const_cast<std::byte*>(static_cast<const std::byte*>(address)); }

/// A device comes to what is queued in the end; in delayed order not before another waits for it.
void keep_going(Communicator& communicator) {
  int awaited = 0;
  while (!communicator.ended) {
    std::this_thread::sleep_for(kIdle);
    awaited = communicator.meeting->is_awaited() ? awaited + 1 : 0;
    if (awaited < kLooks) continue;
    gcompEmulatedProgress();
    awaited = 0;
  }
}

}  // namespace

std::string reported_name() { return "libnccl"; }
std::map<std::string, std::int64_t> reported_figures(const Calls& calls) {
  return {{"communicators", calls.count("live communicators")}, {"broken uses", calls.count("broken uses")}};
}

ncclResult_t ncclGetVersion(int* version) {
  const Version v = version_setting("NCCL", "2.28");
  *version = v.major == 2 && v.minor <= 8 ? 1000 * v.major + 100 * v.minor : 10000 * v.major + 100 * v.minor;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const ncclResult_t error = entered("ncclGetUniqueId"); error != ncclSuccess) return error;
  const NcclFailure failure = make_id(*id);
  return failure.result == ncclSuccess ? ncclSuccess : refuse(failure.result, failure.reason);
}

ncclResult_t ncclCommInitRank(ncclComm_t* handle, int ranks, ncclUniqueId id, int rank) {
  *handle = nullptr;
  if (ranks < 1 || ranks > kMostNcclRanks || rank < 0 || rank >= ranks)
    return refuse(ncclInvalidArgument, concat("rank ", rank, " of ", ranks));
  NcclFailure failure;
  auto made = std::make_shared<Communicator>();
  made->meeting = Meeting::open(id, failure);
  if (!made->meeting) return refuse(failure.result, failure.reason);
  if (const ncclResult_t error = entered("ncclCommInitRank"); error != ncclSuccess) return made->meeting->fail_as(rank), error;
  CUuuid gpu{};
  if (gcompEmulatedUuid(&gpu) != 0) return made->meeting->fail_as(rank), refuse(ncclUnhandledCudaError, "no context is current");
  failure = made->meeting->attach(rank, ranks, gpu);
  if (failure.result != ncclSuccess) return refuse(failure.result, failure.reason);
  if (const std::int64_t seed = integer_setting("NCCL_DISORDER", 0); seed != 0)
    made->disorder.emplace(static_cast<unsigned>(seed) + kSeedOfRank * static_cast<unsigned>(rank));
  if (setting("ORDER") == "delayed") made->progress = std::thread(keep_going, std::ref(*made));
  calls().add("live communicators", 1);
  *handle = reinterpret_cast<ncclComm_t>(made.get());
  const std::lock_guard lock(g_mutex);
  communicators().emplace(*handle, std::move(made));
  return ncclSuccess;
}

/// NCCL waits here for graphs that hold its work: to destroy it before them is an error.
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (const ncclResult_t error = entered("ncclCommDestroy"); error != ncclSuccess) return error;
  const std::shared_ptr<Communicator> communicator = remove(handle);
  if (!communicator) return calls().add("broken uses"), refuse(ncclInvalidArgument, "there is no such communicator");
  calls().add("live communicators", -1);
  communicator->end();
  communicator->meeting->leave(Presence::closed);
  if (communicator->work == 0) return ncclSuccess;
  calls().add("broken uses");
  std::fprintf(stderr, "emulated NCCL: a communicator is destroyed before %d exchanges that are queued or captured\n",
               communicator->work.load());
  return refuse(ncclInvalidUsage, "work is left");
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (const ncclResult_t error = entered("ncclCommAbort"); error != ncclSuccess) return error;
  const std::shared_ptr<Communicator> communicator = remove(handle);
  if (!communicator) return calls().add("broken uses"), refuse(ncclInvalidArgument, "there is no such communicator");
  calls().add("live communicators", -1);
  communicator->aborted = true;
  communicator->meeting->leave(Presence::aborted);
  communicator->end();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  if (const ncclResult_t failed = entered("ncclCommGetAsyncError"); failed != ncclSuccess) return failed;
  const std::shared_ptr<Communicator> communicator = find(handle);
  if (!communicator) return calls().add("broken uses"), refuse(ncclInvalidArgument, "there is no such communicator");
  *error = static_cast<ncclResult_t>(communicator->error.load());
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) {
  static thread_local std::string own;
  const std::lock_guard lock(g_mutex);
  own = last_error();
  return own.c_str();
}

ncclResult_t ncclGroupStart() {
  if (const ncclResult_t error = entered("ncclGroupStart"); error != ncclSuccess) return error;
  ++group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group().depth == 0) return calls().add("broken uses"), refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (const ncclResult_t error = entered("ncclGroupEnd"); error != ncclSuccess) {
    group() = {};
    return error;
  }
  return --group().depth > 0 ? ncclSuccess : queue_group();
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t handle, CUstream stream) {
  return add("ncclSend", handle, stream, count, type, peer, [&](Work& work, Meeting&) {
    work.transfers.push_back({peer, true, memory(from), {ExchangeKind::send, 0, count}});
  });
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t handle, CUstream stream) {
  return add("ncclRecv", handle, stream, count, type, peer, [&](Work& work, Meeting&) {
    work.transfers.push_back({peer, false, memory(to), {ExchangeKind::send, 0, count}});
  });
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t handle, CUstream stream) {
  return add("ncclAllGather", handle, stream, count, type, 0, [&](Work& work, Meeting& meeting) {
    const Header header{ExchangeKind::all_gather, 0, count};
    for (int peer = 0; peer < meeting.ranks(); ++peer) {
      std::byte* const part = memory(to) + static_cast<std::size_t>(peer) * count;
      if (peer == meeting.rank()) {
        work.copies.push_back({part, memory(from), count});
        continue;
      }
      work.transfers.push_back({peer, true, memory(from), header});
      work.transfers.push_back({peer, false, part, header});
    }
  });
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root, ncclComm_t handle,
                           CUstream stream) {
  return add("ncclBroadcast", handle, stream, count, type, root, [&](Work& work, Meeting& meeting) {
    const Header header{ExchangeKind::broadcast, root, count};
    if (meeting.rank() != root) return work.transfers.push_back({root, false, memory(to), header});
    work.copies.push_back({memory(to), memory(from), count});
    for (int peer = 0; peer < meeting.ranks(); ++peer)
      if (peer != root) work.transfers.push_back({peer, true, memory(from), header});
  });
}

}  // namespace gcomp::emulated
