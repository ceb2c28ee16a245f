// What must not outlive this process when a signal ends it: temporary files, folders of compilations, compilers. They are kept in a
// table that a signal handler may read. Installing one is up to the program; tools/gcomp does.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>

namespace gcomp::runtime {

/// An entry of that table, for as long as it lives. Where the table is full or the path too long there is none.
class EndsWithProcess {
 public:
  EndsWithProcess() = default;
  /// A file, by its path counted from an open directory or AT_FDCWD, and what a library writes beside it under its name with a
  /// further ending.
  static EndsWithProcess file(int directory, const std::string& path);
  /// A folder with the files in it.
  static EndsWithProcess folder(const std::string& path);
  /// All processes of a group.
  static EndsWithProcess process_group(pid_t id);

  ~EndsWithProcess() { release(); }
  EndsWithProcess(EndsWithProcess&& other) noexcept;
  EndsWithProcess& operator=(EndsWithProcess&& other) noexcept;
  EndsWithProcess(const EndsWithProcess&) = delete;
  EndsWithProcess& operator=(const EndsWithProcess&) = delete;

  /// It stays. Does not return once remove_left_behind() has begun in another thread: what that one has ended, a compiler say, is
  /// not to be taken for a failure whose files are kept.
  void release();

 private:
  explicit EndsWithProcess(int slot) : slot_(slot) {}
  int slot_ = -1;
};

/// Around the start of something and its entry: remove_left_behind() waits for the entry, and does not run in this thread
/// meanwhile.
class StartingEntry {
 public:
  StartingEntry();
  ~StartingEntry();
  StartingEntry(const StartingEntry&) = delete;
  StartingEntry& operator=(const StartingEntry&) = delete;

 private:
  sigset_t before_;
};

/// Ends the processes and removes the files and folders of the table. Safe in a signal handler; for one that ends the process, as
/// no entry of the table can be released after it.
void remove_left_behind() noexcept;

/// A thread runs in a library that cannot be stopped, and nobody waits for it any more. Such a process ends by _Exit: what runs at
/// an ordinary end could take away what the thread uses.
void note_abandoned_thread() noexcept;
bool has_abandoned_thread() noexcept;

}  // namespace gcomp::runtime
