#include "runtime/cpu/collective.h"

#include <cstring>

namespace gcomp::runtime::cpu {
namespace {

class Exchange final : public LibraryCall {
 public:
  Exchange(const CollectiveCall& call, const std::byte* operand, std::byte* result, Communicator& communicator)
      : kind_(call.kind), root_(static_cast<int>(call.root)), communicator_(communicator) {
    const auto part = static_cast<std::size_t>(call.bytes), ranks = static_cast<std::size_t>(call.ranks);
    send_ = {operand, kind_ == CollectiveKind::all_to_all ? part * ranks : part};
    receive_ = {result, kind_ == CollectiveKind::broadcast ? part : part * ranks};
  }

  WorkspaceSize workspace() const override { return {}; }
  void bind(const Workspace&, int) override {}
  void run(ThreadPool&) override {
    if (receive_.empty()) return;
    switch (kind_) {
      case CollectiveKind::all_to_all: return communicator_.all_to_all(send_, receive_);
      case CollectiveKind::all_gather: return communicator_.all_gather(send_, receive_);
      case CollectiveKind::broadcast:
        std::memcpy(receive_.data(), send_.data(), send_.size());
        return communicator_.broadcast(receive_, root_);
    }
  }

 private:
  CollectiveKind kind_;
  int root_;
  Communicator& communicator_;
  std::span<const std::byte> send_;
  std::span<std::byte> receive_;
};

}  // namespace

std::unique_ptr<LibraryCall> make_collective(const CollectiveCall& call, const std::byte* operand, std::byte* result,
                                             Communicator& communicator) {
  return std::make_unique<Exchange>(call, operand, result, communicator);
}

}  // namespace gcomp::runtime::cpu
