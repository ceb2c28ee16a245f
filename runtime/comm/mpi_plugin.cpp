// libgcomp_mpi.so: MPI behind the table of mpi_plugin.h. Built by itself; includes nothing else of gcomp.
#include "runtime/comm/mpi_plugin.h"

#define OMPI_SKIP_MPICXX 1  // of MPI its C functions alone
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <string>

namespace {

MPI_Comm all_ranks = MPI_COMM_NULL;
bool finalizes = false;
std::string last_error, host_name, library_text;

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
  int initialized = 0;
  if (check(MPI_Initialized(&initialized), "MPI_Initialized")) return 1;
  if (!initialized) {
    int provided = 0;
    if (check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread")) return 1;
    finalizes = true;
    if (provided < MPI_THREAD_FUNNELED) {
      last_error = "this MPI serves programs of one thread alone";
      return 1;
    }
  }
  if (check(MPI_Comm_dup(MPI_COMM_WORLD, &all_ranks), "MPI_Comm_dup")) return 1;
  if (check(MPI_Comm_set_errhandler(all_ranks, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler")) return 1;
  char name[MPI_MAX_PROCESSOR_NAME] = "";
  int length = 0;
  if (check(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name")) return 1;
  host_name.assign(name, static_cast<std::size_t>(length));
  return 0;
}

int stop() {
  if (all_ranks != MPI_COMM_NULL && check(MPI_Comm_free(&all_ranks), "MPI_Comm_free")) return 1;
  if (!finalizes) return 0;
  finalizes = false;
  return check(MPI_Finalize(), "MPI_Finalize");
}

const char* error() { return last_error.c_str(); }
const char* host() { return host_name.c_str(); }
int rank() {
  int number = 0;
  MPI_Comm_rank(all_ranks, &number);
  return number;
}
int size() {
  int number = 0;
  MPI_Comm_size(all_ranks, &number);
  return number;
}

int all_to_all(const void* send, void* receive, std::size_t part) {
  const Elements elements(part);
  if (elements.refused()) return 1;
  return check(MPI_Alltoall(send, elements.count(), elements.type(), receive, elements.count(), elements.type(), all_ranks),
               "MPI_Alltoall");
}

int all_gather(const void* send, void* receive, std::size_t part) {
  const Elements elements(part);
  if (elements.refused()) return 1;
  const bool in_place = send == static_cast<char*>(receive) + part * static_cast<std::size_t>(rank());
  return check(MPI_Allgather(in_place ? MPI_IN_PLACE : send, elements.count(), elements.type(), receive, elements.count(),
                             elements.type(), all_ranks),
               "MPI_Allgather");
}

int broadcast(void* data, std::size_t bytes, int root) {
  const Elements elements(bytes);
  if (elements.refused()) return 1;
  return check(MPI_Bcast(data, elements.count(), elements.type(), root, all_ranks), "MPI_Bcast");
}

void abort_all(int exit_code) { MPI_Abort(all_ranks == MPI_COMM_NULL ? MPI_COMM_WORLD : all_ranks, exit_code); }

}  // namespace

const GcompMpiPlugin GCOMP_MPI_PLUGIN = {.version = GCOMP_MPI_PLUGIN_VERSION,
                                         .library = library,
                                         .start = start,
                                         .stop = stop,
                                         .error = error,
                                         .rank = rank,
                                         .size = size,
                                         .host = host,
                                         .all_to_all = all_to_all,
                                         .all_gather = all_gather,
                                         .broadcast = broadcast,
                                         .abort = abort_all};
