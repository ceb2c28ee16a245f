#include "runtime/cuda/nccl.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/collective.h"

namespace gcomp::runtime::cuda {
namespace {

constexpr int kOldestNccl = 21300;  // graphs can hold its work from 2.9 on, and it has words for an error from 2.13 on
constexpr std::chrono::seconds kMostStart{300};
/// Between two looks at an event: a step takes longer than this, and the processor is the loader's.
constexpr std::chrono::microseconds kSpinning{200}, kNap{50};

std::string version_text(int version) { return concat(version / 10000, ".", version / 100 % 100, ".", version % 100); }

std::string load_functions(const Library& library, NcclFunctions& functions) {
  std::string missing;
  for_each_function(functions, [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.symbol(name));
    if (!function && missing.empty()) missing = name;
  });
  return missing;
}

std::optional<int> version_of(const Library& library) {
  const auto get = reinterpret_cast<ncclResult_t (*)(int*)>(library.symbol("ncclGetVersion"));
  int version = 0;
  if (!get || get(&version) != ncclSuccess) return std::nullopt;
  if (version < 10000) version = version / 1000 * 10000 + version % 1000;  // before 2.9: 2804 for 2.8.4
  return version;
}

std::string why_nccl_unfit(const Library& library) {
  const std::optional<int> version = version_of(library);
  if (!version) return "it does not tell its version";
  if (*version < kOldestNccl)
    return concat("it is version ", version_text(*version), ", wanted ", version_text(kOldestNccl), " or newer");
  NcclFunctions functions;
  if (const std::string missing = load_functions(library, functions); !missing.empty()) return concat("it lacks ", missing);
  return {};
}

const char* name_of_result(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "ncclSuccess";
    case ncclUnhandledCudaError: return "ncclUnhandledCudaError";
    case ncclSystemError: return "ncclSystemError";
    case ncclInternalError: return "ncclInternalError";
    case ncclInvalidArgument: return "ncclInvalidArgument";
    case ncclInvalidUsage: return "ncclInvalidUsage";
    case ncclRemoteError: return "ncclRemoteError";
    case ncclInProgress: return "ncclInProgress";
  }
  return "an error without a name";
}

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

/// What a thread of its own brings back, whoever still waits for it.
struct Started {
  std::mutex mutex;
  std::condition_variable done;
  std::optional<ncclResult_t> result;
  std::string message;
  ncclComm_t communicator = nullptr;
};

}  // namespace

LibraryResult find_nccl(const LibrarySearch& search) { return find_library(LibraryKind::nccl, search, why_nccl_unfit); }

std::string nccl_version(const Library& library) {
  const std::optional<int> version = version_of(library);
  return version ? version_text(*version) : std::string();
}

std::string nccl_absence(const LibraryResult& found, int driver_major) {
  return found.absence(LibraryKind::nccl, driver_major == 12 ? "nvidia-nccl" : "nvidia-nccl-cu13", driver_major);
}

Nccl::Nccl(const LibrarySearch& search, int driver_major) {
  const LibraryResult found = find_nccl(search);
  if (!found.library)
    throw DeviceError(concat(nccl_absence(found, driver_major), "; several ranks on GPUs exchange what they compute through it"));
  library_ = *found.library;
  load_functions(library_, functions_);
}

std::string Nccl::message(ncclResult_t result, const char* call, std::string_view where) const {
  std::string text = concat(where, where.empty() ? "" : ": ", call, " gave ", name_of_result(result), " (",
                            static_cast<int>(result), "): ", functions_.ncclGetErrorString(result));
  if (const char* last = functions_.ncclGetLastError(nullptr); last && *last) {
    std::string words = last;
    std::ranges::replace(words, '\n', ' ');
    text += concat(" (", words.substr(0, words.find_last_not_of(' ') + 1), ")");
  }
  if (result == ncclUnhandledCudaError || result == ncclSystemError) text += "; NCCL_DEBUG=WARN has NCCL say more";
  return text;
}

NcclRank::NcclRank(SharedContext context, std::shared_ptr<const Nccl> nccl, Communicator& ranks, CUstream stream)
    : context_(std::move(context)), nccl_(std::move(nccl)), rank_(ranks.rank()), ranks_(ranks.size()) {
  try {
    start(ranks);
    agree(ranks, [&] {
      try {
        try_out(stream);
      } catch (...) {
        abort();  // so that the others need not wait for what never comes
        throw;
      }
    });
  } catch (...) {
    abort();
    throw;
  }
}

// What ends by an error has no time for the others, which may never come to the same place.
NcclRank::~NcclRank() {
  if (!communicator_) return;
  context_->try_make_current();
  if (std::uncaught_exceptions() > 0) abort();
  else nccl_->functions().ncclCommDestroy(communicator_);
}

void NcclRank::abort() const noexcept {
  if (!communicator_) return;
  context_->try_make_current();
  nccl_->functions().ncclCommAbort(std::exchange(communicator_, nullptr));
}

// In a thread of its own: where a rank fails in there, others may wait for it without end.
void NcclRank::start(Communicator& ranks) {
  ncclUniqueId id{};
  agree(ranks, [&] {
    if (rank_ == 0) nccl_->check(nccl_->functions().ncclGetUniqueId(&id), "ncclGetUniqueId", "");
  });
  ranks.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  agree(ranks, [&] {
    const auto started = std::make_shared<Started>();
    std::thread([started, id, context = context_, nccl = nccl_, rank = rank_, size = ranks_] {
      context->try_make_current();
      ncclComm_t made = nullptr;
      const ncclResult_t result = nccl->functions().ncclCommInitRank(&made, size, id, rank);
      const std::string message = result == ncclSuccess ? "" : nccl->message(result, "ncclCommInitRank", "");
      const std::lock_guard lock(started->mutex);
      started->result = result;
      started->message = message;
      started->communicator = made;
      started->done.notify_all();
    }).detach();
    std::unique_lock lock(started->mutex);
    if (!started->done.wait_for(lock, kMostStart, [&] { return started->result.has_value(); }))
      throw DeviceError(concat("ncclCommInitRank did not return in ", kMostStart.count(), " seconds; NCCL_DEBUG=INFO tells why"));
    if (*started->result == ncclRemoteError) throw OtherRankFailed(started->message);
    if (*started->result != ncclSuccess) throw DeviceError(started->message);
    communicator_ = started->communicator;
  });
}

/// One exchange of each kind, so that connections are made, and what does not work is found, before any program is captured.
void NcclRank::try_out(CUstream stream) const {
  const Driver& driver = context_->driver();
  const auto n = static_cast<std::size_t>(ranks_);
  constexpr char kWhere[] = "a first exchange between the ranks";
  context_->make_current();
  const DeviceMemory memory(context_, static_cast<std::int64_t>(2 * n), kWhere);
  const Event done = make_event(context_, CU_EVENT_DISABLE_TIMING);
  const CUdeviceptr from = memory.address(), to = from + n;
  const std::vector<unsigned char> sent(n, static_cast<unsigned char>(rank_ + 1));
  for (const CollectiveKind kind : {CollectiveKind::all_to_all, CollectiveKind::all_gather, CollectiveKind::broadcast}) {
    const CollectiveCall call{.kind = kind, .group = std::string(kDataGroup), .ranks = ranks_, .bytes = 1, .origin = kWhere};
    GCOMP_CUDA(driver, kWhere, cuMemcpyHtoDAsync_v2, from, sent.data(), n, stream);
    GCOMP_CUDA(driver, kWhere, cuMemsetD8Async, to, 0, n, stream);
    queue(call, from, to, stream);
    GCOMP_CUDA(driver, kWhere, cuEventRecord, done.get(), stream);
    wait(done.get(), kWhere, kMostStart);
    std::vector<unsigned char> received(kind == CollectiveKind::broadcast ? 1 : n);
    GCOMP_CUDA(driver, kWhere, cuMemcpyDtoHAsync_v2, received.data(), to, received.size(), stream);
    GCOMP_CUDA(driver, kWhere, cuStreamSynchronize, stream);
    for (std::size_t i = 0; i < received.size(); ++i)
      if (received[i] != static_cast<unsigned char>(i + 1))
        throw DeviceError(concat(kWhere, ": ", name_of(kind), " by NCCL ", version(), " brought ", int{received[i]}, " from rank ",
                                 i, ", wanted ", i + 1));
  }
}

void NcclRank::queue(const CollectiveCall& call, CUdeviceptr operand, CUdeviceptr result, CUstream stream) const {
  if (!communicator_) throw DeviceError(concat(call.origin, ": the exchange between ranks was ended by an earlier error"));
  if (call.bytes == 0) return;
  const NcclFunctions& nccl = nccl_->functions();
  const auto bytes = static_cast<std::size_t>(call.bytes);
  switch (call.kind) {
    case CollectiveKind::all_to_all: return queue_all_to_all(call, operand, result, stream);
    case CollectiveKind::all_gather:
      return nccl_->check(nccl.ncclAllGather(pointer(operand), pointer(result), bytes, ncclUint8, communicator_, stream),
                          "ncclAllGather", call.origin);
    case CollectiveKind::broadcast:
      return nccl_->check(nccl.ncclBroadcast(pointer(operand), pointer(result), bytes, ncclUint8, static_cast<int>(call.root),
                                             communicator_, stream),
                          "ncclBroadcast", call.origin);
  }
}

/// A group of sends and receives, which every version has; its own part a rank copies.
void NcclRank::queue_all_to_all(const CollectiveCall& call, CUdeviceptr operand, CUdeviceptr result, CUstream stream) const {
  const NcclFunctions& nccl = nccl_->functions();
  const auto bytes = static_cast<std::size_t>(call.bytes);
  const auto part = [&](CUdeviceptr buffer, int rank) { return buffer + static_cast<CUdeviceptr>(rank) * bytes; };
  GCOMP_CUDA(context_->driver(), call.origin, cuMemcpyDtoDAsync_v2, part(result, rank_), part(operand, rank_), bytes, stream);
  nccl_->check(nccl.ncclGroupStart(), "ncclGroupStart", call.origin);
  ncclResult_t failed = ncclSuccess;
  const char* failed_call = "";
  const auto note = [&](ncclResult_t status, const char* name) {
    if (failed == ncclSuccess && status != ncclSuccess) failed = status, failed_call = name;
  };
  for (int peer = 0; peer < ranks_ && failed == ncclSuccess; ++peer) {
    if (peer == rank_) continue;
    note(nccl.ncclSend(pointer(part(operand, peer)), bytes, ncclUint8, peer, communicator_, stream), "ncclSend");
    note(nccl.ncclRecv(pointer(part(result, peer)), bytes, ncclUint8, peer, communicator_, stream), "ncclRecv");
  }
  note(nccl.ncclGroupEnd(), "ncclGroupEnd");  // a group that was begun ends, whatever failed within it
  nccl_->check(failed, failed_call, call.origin);
}

void NcclRank::check(std::string_view where) const {
  if (!communicator_) throw DeviceError(concat(where, ": the exchange between ranks was ended by an earlier error"));
  ncclResult_t error = ncclSuccess;
  const ncclResult_t asked = nccl_->functions().ncclCommGetAsyncError(communicator_, &error);
  const bool fine = asked == ncclSuccess && (error == ncclSuccess || error == ncclInProgress);
  if (fine) return;
  const std::string text = asked != ncclSuccess ? nccl_->message(asked, "ncclCommGetAsyncError", where)
                                                : nccl_->message(error, "an exchange between ranks", where);
  abort();
  if (error == ncclRemoteError) throw OtherRankFailed(text);
  throw DeviceError(text);
}

void NcclRank::wait(CUevent event, std::string_view where, std::optional<std::chrono::seconds> most) const {
  const Driver& driver = context_->driver();
  const auto begin = std::chrono::steady_clock::now();
  const auto waited = [&] { return std::chrono::steady_clock::now() - begin; };
  while (true) {
    const CUresult result = driver.functions().cuEventQuery(event);
    if (result == CUDA_SUCCESS) return check(where);
    if (result != CUDA_ERROR_NOT_READY) driver.check(result, "cuEventQuery", where);
    if (waited() < kSpinning) {
      std::this_thread::yield();
      continue;
    }
    check(where);
    if (most && waited() > *most) throw DeviceError(concat(where, ": it did not end in ", most->count(), " seconds"));
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace gcomp::runtime::cuda
