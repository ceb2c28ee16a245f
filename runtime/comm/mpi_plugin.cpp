// libgcomp_mpi.so: MPI behind the table of mpi_plugin.h. Built by itself; includes nothing else of gcomp.
#include "runtime/comm/mpi_plugin.h"

#define OMPI_SKIP_MPICXX 1  // of MPI its C functions alone
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <string>

namespace {

constexpr int kChannels = 2;
MPI_Comm all_ranks[kChannels] = {MPI_COMM_NULL, MPI_COMM_NULL};
bool finalizes = false, threads_at_once = false;
std::string host_name, library_text;
thread_local std::string last_error;

int check(int code, const char* what) {
  if (code == MPI_SUCCESS) return 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  last_error = std::string(what) + ": " + std::string(text, static_cast<std::size_t>(length));
  return 1;
}

/// So many bytes as elements of a type whose count fits an int: MPI counts no further.
class Elements {
 public:
  explicit Elements(std::size_t bytes) {
    constexpr std::size_t kLargestUnit = std::size_t{1} << 20, kMostOfBytes = std::size_t{1} << 30;
    if (bytes <= kMostOfBytes) {
      count_ = static_cast<int>(bytes);
      return;
    }
    // The largest power of two, up to a mebibyte, that divides the bytes; gcomp's exchanges are multiples of 64.
    const std::size_t unit = std::min(kLargestUnit, std::size_t{1} << std::countr_zero(bytes));
    count_ = static_cast<int>(bytes / unit);
    fits_ = bytes / unit <= kMostOfBytes;
    made_ = MPI_Type_contiguous(static_cast<int>(unit), MPI_BYTE, &type_) == MPI_SUCCESS && MPI_Type_commit(&type_) == MPI_SUCCESS;
  }
  ~Elements() {
    if (made_) MPI_Type_free(&type_);
  }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }
  /// Gives 1 and an error where MPI cannot count so many.
  int refused() const {
    if (fits_) return 0;
    last_error = "a message of more elements than MPI counts";
    return 1;
  }

 private:
  MPI_Datatype type_ = MPI_BYTE;
  int count_ = 0;
  bool fits_ = true, made_ = false;
};

const char* library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  library_text.assign(text, static_cast<std::size_t>(length));
  if (const std::size_t end = library_text.find_first_of(",\n"); end != library_text.npos) library_text.resize(end);
  return library_text.c_str();
}

int start() {
  int initialized = 0, provided = 0;
  if (check(MPI_Initialized(&initialized), "MPI_Initialized")) return 1;
  if (initialized) {
    if (check(MPI_Query_thread(&provided), "MPI_Query_thread")) return 1;
  } else {
    if (check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread")) return 1;
    finalizes = true;
    if (provided < MPI_THREAD_FUNNELED) {
      last_error = "this MPI serves programs of one thread alone";
      return 1;
    }
  }
  threads_at_once = provided >= MPI_THREAD_MULTIPLE;
  for (MPI_Comm& channel : all_ranks) {
    if (check(MPI_Comm_dup(MPI_COMM_WORLD, &channel), "MPI_Comm_dup")) return 1;
    if (check(MPI_Comm_set_errhandler(channel, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler")) return 1;
  }
  char name[MPI_MAX_PROCESSOR_NAME] = "";
  int length = 0;
  if (check(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name")) return 1;
  host_name.assign(name, static_cast<std::size_t>(length));
  return 0;
}

int stop() {
  for (MPI_Comm& channel : all_ranks)
    if (channel != MPI_COMM_NULL && check(MPI_Comm_free(&channel), "MPI_Comm_free")) return 1;
  if (!finalizes) return 0;
  finalizes = false;
  return check(MPI_Finalize(), "MPI_Finalize");
}

const char* error() { return last_error.c_str(); }
const char* host() { return host_name.c_str(); }
int rank() {
  int number = 0;
  MPI_Comm_rank(all_ranks[0], &number);
  return number;
}
int size() {
  int number = 0;
  MPI_Comm_size(all_ranks[0], &number);
  return number;
}

int channels() { return threads_at_once ? kChannels : 1; }

/// Waits for what was begun. MPI's own waits keep the processor, which on channel 1 is that of who computes meanwhile.
int finish(int code, MPI_Request& request, const char* what) {
  if (check(code, what)) return 1;
  for (int done = 0;;) {
    if (check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what)) return 1;
    if (done) return 0;
    sched_yield();
  }
}

int all_to_all(int channel, const void* send, void* receive, std::size_t part) {
  const Elements elements(part);
  if (elements.refused()) return 1;
  const int count = elements.count();
  const MPI_Datatype type = elements.type();
  if (channel == 0) return check(MPI_Alltoall(send, count, type, receive, count, type, all_ranks[0]), "MPI_Alltoall");
  MPI_Request request = MPI_REQUEST_NULL;
  return finish(MPI_Ialltoall(send, count, type, receive, count, type, all_ranks[channel], &request), request, "MPI_Ialltoall");
}

int all_gather(int channel, const void* send, void* receive, std::size_t part) {
  const Elements elements(part);
  if (elements.refused()) return 1;
  const int count = elements.count();
  const MPI_Datatype type = elements.type();
  const bool in_place = send == static_cast<char*>(receive) + part * static_cast<std::size_t>(rank());
  const void* own = in_place ? MPI_IN_PLACE : send;
  if (channel == 0) return check(MPI_Allgather(own, count, type, receive, count, type, all_ranks[0]), "MPI_Allgather");
  MPI_Request request = MPI_REQUEST_NULL;
  return finish(MPI_Iallgather(own, count, type, receive, count, type, all_ranks[channel], &request), request, "MPI_Iallgather");
}

int broadcast(int channel, void* data, std::size_t bytes, int root) {
  const Elements elements(bytes);
  if (elements.refused()) return 1;
  if (channel == 0) return check(MPI_Bcast(data, elements.count(), elements.type(), root, all_ranks[0]), "MPI_Bcast");
  MPI_Request request = MPI_REQUEST_NULL;
  return finish(MPI_Ibcast(data, elements.count(), elements.type(), root, all_ranks[channel], &request), request, "MPI_Ibcast");
}

void abort_all(int exit_code) { MPI_Abort(all_ranks[0] == MPI_COMM_NULL ? MPI_COMM_WORLD : all_ranks[0], exit_code); }

}  // namespace

const GcompMpiPlugin GCOMP_MPI_PLUGIN = {.version = GCOMP_MPI_PLUGIN_VERSION,
                                         .library = library,
                                         .start = start,
                                         .stop = stop,
                                         .error = error,
                                         .rank = rank,
                                         .size = size,
                                         .host = host,
                                         .channels = channels,
                                         .all_to_all = all_to_all,
                                         .all_gather = all_gather,
                                         .broadcast = broadcast,
                                         .abort = abort_all};
