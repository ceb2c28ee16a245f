// The calls of one emulated library: counted, failed where the test wants it, and reported at the end of the process.
//
// GCOMP_EMULATED_FAIL="cuMemAlloc_v2:3:2,kernel:1:719": the third call of cuMemAlloc_v2 returns error 2, the first kernel that runs
// fails with 719. -9 in place of an error kills the process. GCOMP_EMULATED_FAIL_RANK=2: on that rank alone.
// GCOMP_EMULATED_REPORT=DIR: LIBRARY.json is written there, of a rank LIBRARY.RANK.json.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace gcomp::emulated {

class Calls {
 public:
  /// Reads the failures to inject from the environment.
  Calls();

  /// Counts an event, a call mostly; returns the error that this one shall fail with, or 0.
  int enter(const std::string& name);
  /// Adds to a figure that is no call.
  void add(const std::string& figure, std::int64_t amount = 1);
  std::int64_t count(const std::string& name) const;

  /// Ends an interval: what was counted since the last mark is kept under `name`.
  void mark(const std::string& name);

  /// Writes the report, if one is wanted, with `more` figures in it.
  void report(const std::string& library, const std::map<std::string, std::int64_t>& more) const;

 private:
  using Counts = std::map<std::string, std::int64_t>;
  struct Failure {
    std::string name;
    std::int64_t call = 0;
    int error = 0;
  };
  struct Interval {
    std::string name;
    Counts counts;
  };

  mutable std::mutex mutex_;
  std::vector<Failure> failures_;
  Counts counts_, since_mark_;
  std::vector<Interval> intervals_;
};

}  // namespace gcomp::emulated
