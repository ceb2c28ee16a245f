// The output of a program, however much it is: its beginning and its end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "ir/base/error.h"

namespace gcomp::runtime::cpu {

class BoundedLog {
 public:
  void append(std::string_view text) {
    const std::size_t first = std::min(text.size(), kMostHead - head_.size());
    head_ += text.substr(0, first);
    text.remove_prefix(first);
    left_out_ += text.size();
    tail_ += text.substr(text.size() - std::min(text.size(), kMostTail));
    if (tail_.size() > 2 * kMostTail) tail_.erase(0, tail_.size() - kMostTail);
  }

  /// All of it, or its first 12 KiB and its last 4 KiB, with the number of bytes between them.
  std::string text() const {
    const std::size_t kept = std::min(tail_.size(), kMostTail);
    const std::string_view tail = std::string_view(tail_).substr(tail_.size() - kept);
    if (left_out_ == kept) return concat(head_, tail);
    return concat(head_, "\n... ", left_out_ - kept, " bytes are left out ...\n", tail);
  }

 private:
  static constexpr std::size_t kMostHead = 12 << 10, kMostTail = 4 << 10;
  std::string head_, tail_;
  std::size_t left_out_ = 0;  // after the head
};

}  // namespace gcomp::runtime::cpu
