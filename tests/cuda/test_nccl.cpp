// The emulated NCCL itself, between processes that the tests start: what comes is what was sent, what NCCL refuses is refused, and
// nobody waits for what never comes.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "ir/base/error.h"
#include "runtime/cuda/libraries.h"
#include "runtime/cuda/nccl.h"
#include "tests/cuda/emulated_libraries.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::tests {
namespace {

using namespace cuda;
using Settings = std::map<std::string, std::string>;

/// Exit codes of a rank's process.
constexpr int kFine = 0, kWrong = 1;

/// In memory that all processes have: the first rank makes the id.
struct SharedId {
  std::atomic<bool> made{false};
  ncclUniqueId id{};
};

/// What one rank's process works with: the driver, on the GPU of its number, and NCCL.
class Rank {
 public:
  Rank(int rank, int ranks, SharedId& shared, int gpu) : rank(rank), ranks(ranks) {
    const auto reset = reinterpret_cast<void (*)()>(dlsym(load("libcuda.so.1", driver), "gcompEmulatedReset"));
    reset();  // other tests of this process may have used it
    load("libnccl.so.2", nccl);
    CUcontext context = nullptr;
    require(driver.cuInit(0) == 0 && driver.cuDevicePrimaryCtxRetain(&context, gpu) == 0 && driver.cuCtxSetCurrent(context) == 0);
    require(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == 0);
    if (rank == 0) {
      require(nccl.ncclGetUniqueId(&shared.id) == ncclSuccess);
      shared.made = true;
    }
    while (!shared.made) usleep(100);
    started = nccl.ncclCommInitRank(&communicator, ranks, shared.id, rank);
  }

  static void require(bool holds) {
    if (!holds) _exit(kWrong);
  }
  CUdeviceptr memory(const std::vector<unsigned char>& bytes) {
    CUdeviceptr address = 0;
    require(driver.cuMemAlloc_v2(&address, bytes.size()) == 0);
    require(driver.cuMemcpyHtoDAsync_v2(address, bytes.data(), bytes.size(), stream) == 0);
    require(driver.cuStreamSynchronize(stream) == 0);
    return address;
  }
  std::vector<unsigned char> read(CUdeviceptr from, std::size_t bytes) {
    std::vector<unsigned char> all(bytes);
    require(driver.cuMemcpyDtoHAsync_v2(all.data(), from, bytes, stream) == 0);
    require(driver.cuStreamSynchronize(stream) == 0);
    return all;
  }
  ncclResult_t error() {
    ncclResult_t now = ncclSuccess;
    driver.cuStreamSynchronize(stream);
    require(nccl.ncclCommGetAsyncError(communicator, &now) == ncclSuccess);
    return now;
  }

  const int rank, ranks;
  DriverFunctions driver;
  NcclFunctions nccl;
  CUstream stream = nullptr;
  ncclComm_t communicator = nullptr;
  ncclResult_t started = ncclSuccess;

 private:
  template <class Functions>
  static void* load(const char* file, Functions& functions) {
    void* library = dlopen((std::string(GCOMP_EMULATED_LIBRARIES) + "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
    require(library != nullptr);
    for_each_function(functions, [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      require(function != nullptr);
    });
    return library;
  }
};

/// Each rank's work in a process of its own; their exit codes.
class EmulatedNccl : public testing::Test {
 protected:
  std::vector<int> run(int ranks, const std::function<int(Rank&)>& work, const Settings& settings = {}, bool one_gpu = false) {
    void* page = mmap(nullptr, sizeof(SharedId), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto* shared = new (page) SharedId();
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        setenv("GCOMP_EMULATED_GPUS", "8", 1);
        setenv("GCOMP_EMULATED_NCCL_SECONDS", "20", 1);
        setenv("OMPI_COMM_WORLD_RANK", std::to_string(rank).c_str(), 1);
        for (const auto& [name, value] : settings) setenv(("GCOMP_EMULATED_" + name).c_str(), value.c_str(), 1);
        Rank own(rank, ranks, *shared, one_gpu ? 0 : rank);
        _exit(work(own));
      }
      children.push_back(child);
    }
    std::vector<int> codes;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    munmap(page, sizeof(SharedId));
    return codes;
  }
};

/// Longer than the rings between the processes, and of no round size.
constexpr std::size_t kPart = 300'001;

unsigned char value(int from, int to, std::size_t i) { return static_cast<unsigned char>(7 * from + 31 * to + i % 251); }

/// All three exchanges, each three times, as a stream's work and as a graph's.
int exchange_all(Rank& r, bool captured) {
  const auto n = static_cast<std::size_t>(r.ranks);
  std::vector<unsigned char> bytes(n * kPart), wanted(n * kPart);
  for (std::size_t peer = 0; peer < n; ++peer)
    for (std::size_t i = 0; i < kPart; ++i) {
      bytes[peer * kPart + i] = value(r.rank, static_cast<int>(peer), i);
      wanted[peer * kPart + i] = value(static_cast<int>(peer), r.rank, i);
    }
  const CUdeviceptr from = r.memory(bytes), to = r.memory(std::vector<unsigned char>(n * kPart));
  const CUdeviceptr gathered = r.memory(std::vector<unsigned char>(n * kPart)), sent = r.memory(std::vector<unsigned char>(kPart));
  const auto at = [&](CUdeviceptr base, int peer) {
    return reinterpret_cast<void*>(base + static_cast<CUdeviceptr>(peer) * kPart);
  };
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  if (captured) Rank::require(r.driver.cuStreamBeginCapture_v2(r.stream, CU_STREAM_CAPTURE_MODE_RELAXED) == 0);
  const auto queue = [&] {
    Rank::require(r.nccl.ncclGroupStart() == ncclSuccess);
    for (int peer = 0; peer < r.ranks; ++peer) {
      Rank::require(r.nccl.ncclSend(at(from, peer), kPart, ncclUint8, peer, r.communicator, r.stream) == ncclSuccess);
      Rank::require(r.nccl.ncclRecv(at(to, peer), kPart, ncclUint8, peer, r.communicator, r.stream) == ncclSuccess);
    }
    Rank::require(r.nccl.ncclGroupEnd() == ncclSuccess);
    Rank::require(r.nccl.ncclAllGather(at(to, 0), at(gathered, 0), kPart, ncclUint8, r.communicator, r.stream) == ncclSuccess);
    Rank::require(r.nccl.ncclBroadcast(at(from, 0), at(sent, 0), kPart, ncclInt8, 1, r.communicator, r.stream) == ncclSuccess);
  };
  queue();
  if (captured) {
    Rank::require(r.driver.cuStreamEndCapture(r.stream, &graph) == 0);
    Rank::require(r.driver.cuGraphInstantiateWithFlags(&executable, graph, 0) == 0 && r.driver.cuGraphDestroy(graph) == 0);
    for (int i = 0; i < 3; ++i) Rank::require(r.driver.cuGraphLaunch(executable, r.stream) == 0);
  } else {
    queue();
    queue();
  }
  if (r.read(to, n * kPart) != wanted || r.error() != ncclSuccess) return 2;
  for (std::size_t peer = 0; peer < n; ++peer)  // the part that each got from rank 0
    for (std::size_t i = 0; i < kPart; ++i) wanted[peer * kPart + i] = value(0, static_cast<int>(peer), i);
  if (r.read(gathered, n * kPart) != wanted) return 3;
  for (std::size_t i = 0; i < kPart; ++i) wanted[i] = value(1, 0, i);
  wanted.resize(kPart);
  if (r.read(sent, kPart) != wanted) return 4;
  if (captured) {
    // Before the graph that holds its work a communicator is not destroyed; NCCL would wait without end.
    Rank::require(r.driver.cuGraphExecDestroy(executable) == 0);
  }
  return r.nccl.ncclCommDestroy(r.communicator) == ncclSuccess ? kFine : 5;
}

TEST_F(EmulatedNccl, BringsWhatWasSent) {
  for (const Settings& settings : {Settings{}, Settings{{"NCCL_DISORDER", "5"}}, Settings{{"ORDER", "delayed"}}})
    for (const bool captured : {false, true})
      for (const int ranks : {2, 5})
        EXPECT_EQ(run(
                      ranks, [&](Rank& r) { return exchange_all(r, captured); }, settings),
                  std::vector<int>(ranks, kFine))
            << ranks << (captured ? " captured" : "") << (settings.empty() ? "" : settings.begin()->first);
}

/// Of which a rank waits for nothing: in delayed order the others bring it on.
TEST_F(EmulatedNccl, ADeviceComesToItsWorkByItself) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const auto work = [&](Rank& r) {
    const CUdeviceptr at = r.memory(std::vector<unsigned char>(2, static_cast<unsigned char>(r.rank + 1)));
    const CUdeviceptr all = r.memory(std::vector<unsigned char>(2));
    r.nccl.ncclAllGather(reinterpret_cast<void*>(at), reinterpret_cast<void*>(all), 1, ncclUint8, r.communicator, r.stream);
    char byte = 0;
    if (r.rank == 1) return read(ready[0], &byte, 1) == 1 ? kFine : kWrong;  // a host that does other things
    const bool right = r.read(all, 2) == std::vector<unsigned char>{1, 2};
    return write(ready[1], &byte, 1) == 1 && right ? kFine : kWrong;
  };
  EXPECT_EQ(run(2, work, {{"ORDER", "delayed"}}), (std::vector<int>{kFine, kFine}));
  close(ready[0]);
  close(ready[1]);
}

TEST_F(EmulatedNccl, RanksThatMeanDifferentThingsAreErrors) {
  const auto error_of = [&](const std::function<void(Rank&, void*)>& call) {
    const std::vector<int> codes = run(2, [&](Rank& r) {
      call(r, reinterpret_cast<void*>(r.memory(std::vector<unsigned char>(64))));
      return static_cast<int>(r.error());
    });
    return std::set<int>(codes.begin(), codes.end());
  };
  const auto expect = [](const std::set<int>& errors) {
    EXPECT_TRUE(errors.contains(ncclInvalidUsage)) << "whoever sees it says what is wrong";
    EXPECT_FALSE(errors.contains(ncclSuccess)) << "and the other is told";
  };
  expect(error_of([](Rank& r, void* m) {  // sizes
    r.nccl.ncclAllGather(m, static_cast<char*>(m) + 8, r.rank == 0 ? 8 : 4, ncclUint8, r.communicator, r.stream);
  }));
  expect(error_of([](Rank& r, void* m) {  // kinds
    if (r.rank == 0) r.nccl.ncclAllGather(m, static_cast<char*>(m) + 8, 8, ncclUint8, r.communicator, r.stream);
    else r.nccl.ncclBroadcast(m, m, 8, ncclUint8, 0, r.communicator, r.stream);
  }));
}

/// Each takes the other for the root, so that nobody sends.
TEST_F(EmulatedNccl, RootsThatDifferEndInAnError) {
  const std::vector<int> codes = run(2,
                                     [](Rank& r) {
                                       void* m = reinterpret_cast<void*>(r.memory(std::vector<unsigned char>(64)));
                                       r.nccl.ncclBroadcast(m, m, 8, ncclUint8, 1 - r.rank, r.communicator, r.stream);
                                       return static_cast<int>(r.error());
                                     },
                                     {{"NCCL_SECONDS", "1"}});
  for (const int code : codes) EXPECT_NE(code, ncclSuccess);
}

/// Each sends first and receives then, without a group: as no send is buffered, both wait for the other.
TEST_F(EmulatedNccl, SendsThatWaitForEachOtherEndInAnError) {
  const std::vector<int> codes = run(2,
                                     [](Rank& r) {
                                       void* m = reinterpret_cast<void*>(r.memory(std::vector<unsigned char>(64)));
                                       r.nccl.ncclSend(m, 8, ncclUint8, 1 - r.rank, r.communicator, r.stream);
                                       r.nccl.ncclRecv(m, 8, ncclUint8, 1 - r.rank, r.communicator, r.stream);
                                       return static_cast<int>(r.error());
                                     },
                                     {{"NCCL_SECONDS", "1"}});
  for (const int code : codes) EXPECT_NE(code, ncclSuccess);
}

TEST_F(EmulatedNccl, WhoIsLeftAloneIsTold) {
  const auto alone = [](Rank& r) {
    if (r.rank == 1) return kFine;
    void* m = reinterpret_cast<void*>(r.memory(std::vector<unsigned char>(64)));
    r.nccl.ncclAllGather(m, static_cast<char*>(m) + 8, 8, ncclUint8, r.communicator, r.stream);
    return static_cast<int>(r.error());
  };
  EXPECT_EQ(run(2, alone), (std::vector<int>{ncclRemoteError, kFine})) << "the process has ended";
  EXPECT_EQ(run(2,
                [&](Rank& r) {
                  if (r.rank == 1) raise(SIGKILL);
                  return alone(r);
                }),
            (std::vector<int>{ncclRemoteError, 128 + SIGKILL}));
  EXPECT_EQ(run(2,
                [&](Rank& r) {
                  if (r.rank == 0) return alone(r);
                  r.nccl.ncclCommAbort(r.communicator);
                  sleep(2);
                  return kFine;
                }),
            (std::vector<int>{ncclRemoteError, kFine}));
  EXPECT_EQ(run(2, [](Rank& r) { return static_cast<int>(r.started); }, {{"FAIL", "ncclCommInitRank:1:2"}, {"FAIL_RANK", "1"}}),
            (std::vector<int>{ncclRemoteError, ncclSystemError}));
}

TEST_F(EmulatedNccl, RefusesWhatNcclRefuses) {
  EXPECT_EQ(run(
                2, [](Rank& r) { return static_cast<int>(r.started); }, {}, true),
            (std::vector<int>{ncclInvalidUsage, ncclInvalidUsage}))
      << "two ranks on one GPU";
  const auto work = [](Rank& r) {
    void* m = reinterpret_cast<void*>(r.memory(std::vector<unsigned char>(64)));
    const auto send = [&](int peer, ncclDataType_t type = ncclUint8) {
      return r.nccl.ncclSend(m, 8, type, peer, r.communicator, r.stream);
    };
    if (send(1) != ncclInvalidArgument || send(-1) != ncclInvalidArgument) return 2;
    if (send(0, static_cast<ncclDataType_t>(7)) != ncclInvalidArgument) return 3;  // f32: nothing that could be added
    if (r.nccl.ncclGroupEnd() != ncclInvalidUsage) return 4;
    if (r.nccl.ncclGroupStart() != ncclSuccess || send(5) == ncclSuccess) return 5;
    if (r.nccl.ncclGroupEnd() != ncclInvalidArgument) return 6;  // what failed within it
    if (r.nccl.ncclCommAbort(r.communicator) != ncclSuccess || send(0) != ncclInvalidArgument) return 7;
    return r.nccl.ncclCommDestroy(r.communicator) == ncclInvalidArgument ? kFine : 8;
  };
  EXPECT_EQ(run(1, work), std::vector<int>{kFine});
}

// ---- the search for it ----

LibrarySearch only(const std::string& path) {
  LibrarySearch search;
  search.usual_places = false;
  search.explicit_of(LibraryKind::nccl) = path;
  return search;
}

TEST(NcclSearch, AVersionThatNoGraphHoldsIsRejectedWithItsReason) {
  ASSERT_NE(open_emulated("libnccl.so.2"), nullptr);
  for (const auto& [version, text] : std::map<std::string, std::string>{{"2.8", "2.8.0"}, {"2.12", "2.12.0"}}) {
    setenv("GCOMP_EMULATED_NCCL", version.c_str(), 1);
    const LibraryResult found = find_nccl(only(GCOMP_EMULATED_LIBRARIES));
    EXPECT_FALSE(found.library);
    EXPECT_NE(found.description(LibraryKind::nccl).find("it is version " + text + ", wanted 2.13.0 or newer"), std::string::npos)
        << found.description(LibraryKind::nccl);
  }
  unsetenv("GCOMP_EMULATED_NCCL");
  const LibraryResult found = find_nccl(only(GCOMP_EMULATED_LIBRARIES));
  ASSERT_TRUE(found.library);
  EXPECT_EQ(nccl_version(*found.library), "2.28.0");
  const LibraryResult other = find_nccl(only(std::string(GCOMP_EMULATED_LIBRARIES) + "/libcublasLt.so.13"));
  EXPECT_NE(other.description(LibraryKind::nccl).find("it does not tell its version"), std::string::npos);
  EXPECT_NE(nccl_absence(other, 12).find("pip: nvidia-nccl-cu12"), std::string::npos) << nccl_absence(other, 12);
  EXPECT_NE(nccl_absence(other, 13).find("pip: nvidia-nccl-cu13"), std::string::npos) << nccl_absence(other, 13);
}

TEST(NcclSearch, FindsTheWheel) {
  const runtime::test::TemporaryDirectory folder;
  const std::filesystem::path lib = folder / "lib/python3.11/site-packages/nvidia/nccl/lib";
  std::filesystem::create_directories(lib);
  std::filesystem::create_symlink(std::string(GCOMP_EMULATED_LIBRARIES) + "/libnccl.so.2", lib / "libnccl.so.2");
  LibrarySearch search;
  search.usual_places = false;
  search.python_prefixes.push_back(folder.path().string());
  bool listed = false;
  for (const LibraryCandidate& candidate : library_candidates(LibraryKind::nccl, search))
    listed |= candidate.path == (lib / "libnccl.so.2").string() && candidate.origin == "pip";
  EXPECT_TRUE(listed);
}

}  // namespace
}  // namespace gcomp::tests
