// Several processes that train one model together, its ranks: what moves bytes between them. An application that has a transport of
// its own, such as an MPI communicator, implements it in a few lines and gives it to DeviceOptions::communicator.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "gcomp/error.h"

namespace gcomp {

/// The ranks are numbered from 0 to size() - 1. All of them call the same functions in the same order with the same sizes, each
/// from one thread at a time; a call returns when its own part is done. Bytes arrive as they were sent: nothing here adds or
/// rounds. Functions throw DeviceError, naming what failed, where a rank cannot be reached.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// For messages: "Open MPI v4.1.4".
  virtual std::string description() const = 0;
  /// The name of the machine that this rank runs on.
  virtual std::string host() const = 0;

  /// `send` and `receive` are size() parts of equal length: part r goes to rank r, and from rank r comes part r. They do not
  /// overlap.
  virtual void all_to_all(std::span<const std::byte> send, std::span<std::byte> receive) = 0;
  /// Every rank's `send`, one after another, to all; `receive` is size() times as long, and may hold `send` at its own place.
  virtual void all_gather(std::span<const std::byte> send, std::span<std::byte> receive) = 0;
  /// What `root` has there, to all.
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  /// Another one between the same ranks, this one's own, whose calls may go on in a second thread while calls of this one do, and
  /// do not wait for them; null where the transport has none. With one, gradients go out while the rest of them are still computed;
  /// without, each exchange has its time, and all calls come from the thread that trains.
  virtual Communicator* beside() { return nullptr; }
  /// Ends all ranks, this one included, and lets the launcher give this exit code; does not return where the transport can do that.
  virtual void abort(int exit_code) noexcept = 0;
};

/// One rank failed in the middle of a step, and the others wait for it: whoever catches this calls Communicator::abort().
class RankFailed : public Error {
 public:
  using Error::Error;
};

}  // namespace gcomp
