// The thread that writes checkpoints.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "gcomp/driver/checkpoint.h"
#include "gcomp/driver/checkpoint_folder.h"
#include "gcomp/driver/checkpoint_parts.h"
#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/atomic_folder.h"

namespace gcomp::driver {
namespace fs = std::filesystem;
namespace {

constexpr char kLatestFile[] = "latest", kBestFile[] = "best";

/// The folder's file of this name says which checkpoint it is.
void point_to(const fs::path& pointer, const fs::path& checkpoint) {
  const std::string line = checkpoint.filename().string() + "\n";
  runtime::write_file(pointer, std::as_bytes(std::span(line)));
}

/// The name in a file that point_to() wrote; "" where there is none.
std::string pointed_to(const fs::path& pointer) {
  constexpr std::uintmax_t kLongestLine = 64;
  std::error_code ignored;
  if (!fs::exists(pointer, ignored)) return "";
  const std::vector<std::byte> bytes = runtime::read_file(pointer, kLongestLine);
  std::string name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (name.ends_with('\n')) name.pop_back();
  return name;
}

/// A checkpoint of later steps than the newest is of a course that the run left when it went back. It stays, under a name that is
/// not taken for a checkpoint.
fs::path put_aside(const fs::path& checkpoint) {
  fs::path aside = checkpoint.parent_path() / concat("aside-", checkpoint.filename().string());
  std::error_code ignored;
  for (int i = 2; fs::exists(aside, ignored); ++i)
    aside = checkpoint.parent_path() / concat("aside-", checkpoint.filename().string(), "-", i);
  fs::rename(checkpoint, aside);
  return aside;
}

/// Leaves the newest, `keep` in all, and the best. What could not be done is said in the note.
std::string prune(const fs::path& folder, std::int64_t newest, std::int64_t keep) {
  std::string note;
  const auto add = [&](const std::string& text) { note += (note.empty() ? "" : "; ") + text; };
  const std::string best = pointed_to(folder / kBestFile);
  std::int64_t older = 0;
  for (const StepFolder& found : step_folders(folder)) try {
      if (found.step > newest)
        add(concat("'", found.path.string(), "' is now '", put_aside(found.path).string(), "': the run went back behind it"));
      else if (found.step < newest && found.path.filename() != best && ++older >= keep && keep > 0)
        runtime::remove_folder(found.path);
    } catch (const std::exception& error) { add(error.what()); }
  return note;
}

/// Signals are for the threads that wait for them; and the training goes first where processors are few.
void stand_back() {
  constexpr int kNice = 10;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  static_cast<void>(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice));
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  check_user(!error, "cannot make the folder '", folder.string(), "' for checkpoints: ", error.message());
  runtime::remove_abandoned(folder);
  remove_parts(folder);
}

void find_folder(const fs::path& folder) {
  std::error_code error;
  check_user(fs::is_directory(folder, error), "the folder '", folder.string(),
             "' for checkpoints, which the first rank has made, is not there: each rank writes its share of the optimizer's states "
             "into it, on a filesystem that all see; --zero 0 has the first write all");
}

}  // namespace

struct CheckpointWriter::Impl {
  struct Job {
    Snapshot* snapshot = nullptr;
    Standing standing = Standing::ordinary;
    std::vector<TensorType> types = {};  // not empty: memory for these, and nothing is written
  };

  CheckpointOptions options;
  std::array<Snapshot, 2> snapshots;
  mutable std::mutex mutex;  // of all below
  std::condition_variable changed;
  std::vector<Snapshot*> unused{&snapshots[0], &snapshots[1]};
  std::deque<Job> jobs;  // the first is being written
  std::vector<CheckpointEvent> events;
  std::int64_t written = 0, failed = 0;
  std::string last_failure;
  fs::path latest;
  bool ends = false;
  std::thread thread;

  void run();
  void allocate(const Job& job) const;
  CheckpointEvent write(const Job& job) const;
  void note(CheckpointEvent event);
};

/// What memory lacks is told when the snapshot is taken.
void CheckpointWriter::Impl::allocate(const Job& job) const {
  try {
    for (const TensorType& type : job.types) job.snapshot->states.push_back({.name = {}, .value = Tensor(type)});
  } catch (const std::bad_alloc&) { job.snapshot->states.clear(); }
}

/// The order is the promise: whatever is moved or removed comes after the new one lies on the disk.
CheckpointEvent CheckpointWriter::Impl::write(const Job& job) const {
  const std::int64_t step = job.snapshot->run.step;
  CheckpointEvent event{.step = step, .path = options.folder / checkpoint_name(step)};
  try {
    if (options.rank > 0) {
      write_part(event.path, *job.snapshot);
      return event;
    }
    write_checkpoint(event.path, *job.snapshot, [&](runtime::AtomicFolder& folder, Manifest& manifest) {
      collect_parts(event.path, options.ranks, options.patience, folder, manifest);
    });
    if (job.standing == Standing::best) point_to(options.folder / kBestFile, event.path);
    point_to(options.folder / kLatestFile, event.path);
    event.note = prune(options.folder, step, options.keep);
  } catch (const std::bad_alloc&) {
    event.failure = concat("cannot write '", event.path.string(), "': out of memory");
  } catch (const std::exception& error) { event.failure = error.what(); }
  return event;
}

void CheckpointWriter::Impl::note(CheckpointEvent event) {
  if (event.failure.empty()) {
    ++written;
    latest = event.path;
  } else {
    ++failed;
    last_failure = event.failure;
  }
  events.push_back(std::move(event));
}

void CheckpointWriter::Impl::run() {
  stand_back();
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return ends || !jobs.empty(); });
    if (jobs.empty()) return;
    const Job job = jobs.front();
    lock.unlock();
    std::optional<CheckpointEvent> event;
    if (job.types.empty()) event = write(job);
    else allocate(job);
    lock.lock();
    if (event) note(std::move(*event));
    jobs.pop_front();
    unused.push_back(job.snapshot);
    changed.notify_all();
  }
}

CheckpointWriter::CheckpointWriter(CheckpointOptions options) : impl_(std::make_unique<Impl>()) {
  if (options.keep < 0) throw UserError(concat("keep ", options.keep, " checkpoints: wanted 0 or more"), ExitCode::usage);
  if (options.rank == 0) make_folder(options.folder);
  else find_folder(options.folder);
  { const runtime::AtomicFolder attempt(options.folder / checkpoint_name(0)); }  // says now what would fail later
  impl_->options = std::move(options);
  impl_->thread = std::thread([this] { impl_->run(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ends = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

void CheckpointWriter::prepare(Trainer& trainer) {
  std::vector<TensorType> types = snapshot_types(trainer);
  if (types.empty()) return;
  Impl& self = *impl_;
  {
    const std::lock_guard lock(self.mutex);
    check_internal(self.jobs.empty() && self.unused.size() == self.snapshots.size(), "a snapshot is prepared after another");
    self.jobs.push_back({.snapshot = self.unused.back(), .types = std::move(types)});
    self.unused.pop_back();
  }
  self.changed.notify_all();
}

void CheckpointWriter::write(Trainer& trainer, const RunState& run, Standing standing) {
  Impl& self = *impl_;
  Snapshot* into = nullptr;
  {
    std::unique_lock lock(self.mutex);
    self.changed.wait(lock, [&] { return !self.unused.empty(); });
    into = self.unused.back();
    self.unused.pop_back();
  }
  try {
    take_snapshot(trainer, run, *into);
  } catch (...) {
    const std::lock_guard lock(self.mutex);
    self.unused.push_back(into);
    throw;
  }
  {
    const std::lock_guard lock(self.mutex);
    self.jobs.push_back({into, standing});
  }
  self.changed.notify_all();
}

std::vector<CheckpointEvent> CheckpointWriter::poll() {
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->events, {});
}

std::vector<CheckpointEvent> CheckpointWriter::finish() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return impl_->jobs.empty(); });
  return std::exchange(impl_->events, {});
}

std::string CheckpointWriter::failures() const {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->failed == 0) return "";
  return concat(impl_->failed, " of ", impl_->failed + impl_->written,
                " checkpoints could not be written, the last for: ", impl_->last_failure);
}

fs::path CheckpointWriter::latest() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->latest;
}

}  // namespace gcomp::driver
