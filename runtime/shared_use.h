// Which steps of a program touch states that another program touches too: what has to be done before the other may begin, and what
// may be done while the other still runs. Nothing is known of states but that both have them.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/program.h"

namespace gcomp::runtime {

/// The buffers that a step reads or writes, in no order; some may stand there twice.
std::vector<int> buffers_of(const Step& step);

/// The states that each step of a program reads or writes, by name. Launches do not say which of the two they do, so that two
/// programs which only read a state count as sharing it.
class StateUse {
 public:
  explicit StateUse(const Program& program);

  const std::set<std::string>& all() const { return all_; }
  /// The first step that touches one of these; none where no step does.
  std::optional<std::size_t> first(const std::set<std::string>& states) const;
  std::optional<std::size_t> last(const std::set<std::string>& states) const;

 private:
  bool touches(std::size_t step, const std::set<std::string>& states) const;

  std::vector<std::set<std::string>> steps_;
  std::set<std::string> all_;
};

}  // namespace gcomp::runtime
