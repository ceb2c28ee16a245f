#include "runtime/cpu/compile_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "ir/base/error.h"

namespace gcomp::runtime::cpu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = "gcomp-kernels-";
constexpr char kLockName[] = "lock";
constexpr char kNewLockName[] = "lock.new";

fs::path temporary_directory() {
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  return error ? fs::path("/tmp") : base;
}

/// The lock is held before it has its name: whoever finds a lock that nobody holds finds a dead process's.
Descriptor lock_in(const fs::path& folder) {
  const std::string made = (folder / kNewLockName).string(), name = (folder / kLockName).string();
  Descriptor file(open(made.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0 || flock(file.get(), LOCK_EX | LOCK_NB) != 0 || rename(made.c_str(), name.c_str()) != 0) return Descriptor();
  return file;
}

/// Whether this is a folder of this user's, itself and no link to one, whose lock nobody holds.
bool is_abandoned(const fs::path& path) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (folder.get() < 0 || fstat(folder.get(), &status) != 0 || status.st_uid != geteuid()) return false;
  const Descriptor lock(openat(folder.get(), kLockName, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (lock.get() < 0 || fstat(lock.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  return flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

CompileFolder::CompileFolder() {
  std::string name = (temporary_directory() / concat(kFolderPrefix, "XXXXXX")).string();
  const StartingEntry entry;
  if (!mkdtemp(name.data()))
    throw DeviceError(concat("cannot create a folder for compilation (", name, "): ", std::strerror(errno)),
                      ExitCode::kernel_compile);
  path_ = name;
  tied_ = EndsWithProcess::folder(name);
  lock_ = lock_in(path_);
}

CompileFolder::~CompileFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void CompileFolder::keep() {
  std::error_code ignored;
  tied_.release();
  fs::remove(path_ / kLockName, ignored);
  path_.clear();
}

int remove_abandoned_folders() {
  int removed = 0;
  std::error_code error;
  for (fs::directory_iterator entry(temporary_directory(), error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kFolderPrefix) || !is_abandoned(entry->path())) continue;
    std::error_code ignored;
    fs::remove_all(entry->path(), ignored);
    if (!ignored) ++removed;
  }
  return removed;
}

}  // namespace gcomp::runtime::cpu
